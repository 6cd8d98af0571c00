"""Flags of the commands that train: on which devices, and in how much of their memory."""

from __future__ import annotations

from absl import flags

from convbert.training import workers

flags.DEFINE_string(
    "strategy",
    None,
    "Devices: one_device, mirrored (all GPUs), mirrored:N, multi_worker or tpu.",
)
flags.DEFINE_integer(
    "worker_timeout",
    workers.TIMEOUT,
    "Seconds to wait for a worker of --strategy multi_worker: for its start, or at a step.",
    lower_bound=1,
)
flags.DEFINE_string(
    "tpu", None, "TPU: local, grpc://HOST:PORT, a name. Default: the environment's TPU_NAME, local."
)
flags.DEFINE_enum("precision", None, ["float32", "mixed_bfloat16"], "Compute dtype policy.")
flags.DEFINE_integer(
    "micro_batch_size",
    None,
    "Sequences that a device computes at a time; gradients of a batch are accumulated.",
)
flags.DEFINE_bool("rematerialize", None, "Second computation of layers instead of their storage.")
