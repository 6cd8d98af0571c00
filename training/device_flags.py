"""Device and memory flags of the commands that train."""

from __future__ import annotations

from absl import flags

from convbert.training import workers

flags.DEFINE_string("strategy", None, "one_device, mirrored[:N] (GPUs), multi_worker, tpu.")
_SECONDS = "Seconds to wait for workers at the start and at each step."
flags.DEFINE_integer("worker_timeout", workers.TIMEOUT, _SECONDS, lower_bound=1)
flags.DEFINE_string("tpu", None, "local, grpc://HOST:PORT, or a name. Default: TPU_NAME or local.")
flags.DEFINE_enum("precision", None, ["float32", "mixed_bfloat16"], "Compute dtype policy.")
flags.DEFINE_integer("micro_batch_size", None, "Sequences per device at a time. Default: all.")
flags.DEFINE_bool("rematerialize", None, "Recomputation of layers instead of their storage.")
