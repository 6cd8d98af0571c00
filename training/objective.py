"""The interface between what is learned and the loop that trains it."""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Callable, Iterator

import tensorflow as tf


class Objective(tf.Module, abc.ABC):
    """Owns its networks, whose variables are all it has, and turns plain text into a loss.

    A training step calls, in this order,

        batch = objective.prepare(features, seed)          # all that chance decides
        normalizers = objective.normalizers(batch)         # summed over replicas by the loop
        loss, sums = objective.loss(batch, normalizers, training=True, seed=seed)

    so that the loop can sum `normalizers` over the replicas in between: losses are means over the
    global batch, whatever the number of devices.

    Attributes:
        encoder: the network that fine-tuning takes.
        reads_whole_batch: whether the loss of a sequence depends on the others of its batch, as
            with in-batch negatives. The batch is then not cut: micro-batches and several devices
            are rejected.
        losses: a generator method with `loss`'s arguments, of its terms, each with its own metrics.
            The loop takes a term's gradients before it asks for the next term, so that what two of
            them need for their gradients is never in memory at once. No gradient may pass from a
            term to what an earlier one has computed.
    """

    encoder: tf.Module
    reads_whole_batch: bool = False
    losses: Callable[..., Iterator[tuple[tf.Tensor, dict[str, tf.Tensor]]]] | None = None

    @abc.abstractmethod
    def prepare(self, features: dict[str, tf.Tensor], seed: tf.Tensor) -> dict[str, tf.Tensor]:
        """Masks and draws noise: int32 [B, S] features to whatever `loss` needs, all [B, ...]."""

    @abc.abstractmethod
    def normalizers(self, batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Returns the divisors of the losses, as scalars of this replica's part of the batch."""

    @abc.abstractmethod
    def loss(
        self,
        batch: dict[str, tf.Tensor],
        normalizers: dict[str, tf.Tensor],
        *,
        training: bool,
        seed: tf.Tensor | None = None,
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """This replica's share of the loss, and its metrics as sums (see training.metrics).

        Dropout is on in training only, and a function of `seed`, int32 [2].
        """

    def tracing(self) -> contextlib.AbstractContextManager:
        """Returns the context in which the loop traces a training step's `loss` and gradients."""
        return contextlib.nullcontext()
