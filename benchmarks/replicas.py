"""The step of one of several devices, with the sums over all of them as XLA's own operations."""

from __future__ import annotations

import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops


class Replicas(tf.distribute.ReplicaContext):
    """What `tf.distribute.get_replica_context` returns inside, as TPUStrategy's would.

    TPUStrategy itself needs a TPU. Its sums become the same all-reduces in the compiled program.

    Example:
        with Replicas(8, number):
            step(features)

    Args:
        count: of the devices.
        number: which of them this is, an int32 scalar.
    """

    def __init__(self, count: int, number: tf.Tensor):
        super().__init__(tf.distribute.get_strategy(), number)
        self._count = count

    @property
    def num_replicas_in_sync(self) -> int:
        """See ReplicaContext."""
        return self._count

    def all_reduce(self, reduce_op, value, options=None):
        """See ReplicaContext; sums only."""
        if tf.distribute.ReduceOp(reduce_op) != tf.distribute.ReduceOp.SUM:
            raise ValueError(f"only sums are taken over replicas. Received: {reduce_op}")
        groups = [list(range(self._count))]

        def summed(tensor):
            return gen_xla_ops.xla_all_reduce(tensor, groups, "Add", "CrossReplica")

        return tf.nest.map_structure(summed, value)
