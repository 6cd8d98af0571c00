"""Device and memory flags of the commands that train."""

from __future__ import annotations

from absl import flags

from convbert.training import workers

flags.DEFINE_string(
    "strategy", None, "one_device, mirrored[:N] (all GPUs, or N), multi_worker, tpu."
)
flags.DEFINE_integer(
    "worker_timeout",
    workers.TIMEOUT,
    "Seconds to wait for workers at the start and at each step.",
    lower_bound=1,
)
flags.DEFINE_string(
    "tpu", None, "TPU: local, grpc://HOST:PORT or a name. Default: TPU_NAME if set, else local."
)
flags.DEFINE_enum("precision", None, ["float32", "mixed_bfloat16"], "Compute dtype policy.")
flags.DEFINE_integer(
    "micro_batch_size", None, "Sequences per device at a time; gradients are summed."
)
flags.DEFINE_bool("rematerialize", None, "Recomputation of layers instead of their storage.")
