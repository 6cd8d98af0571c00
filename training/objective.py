"""The interface between objectives and the training loop."""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Iterator, Sequence

import tensorflow as tf


class Objective(tf.Module, abc.ABC):
    """Owns networks, which hold all its variables, and computes a loss from tokens.

    A training step calls, in this order,

        batch = objective.prepare(features, seed)          # all random choices
        normalizers = objective.normalizers(batch)         # summed over replicas by the loop
        loss, sums = objective.loss(batch, normalizers, training=True, seed=seed)

    so that the loop can sum `normalizers` over the replicas in between: losses are means over the
    global batch for any number of devices.

    Attributes:
        encoder: the network that fine-tuning uses.
        reads_whole_batch: whether the loss of a sequence depends on other sequences of its batch,
            as with in-batch negatives. Micro-batches and several devices are then rejected.
        gathers_batch: whether such a loss gathers the sequences of all devices itself, so that only
            micro-batches are rejected, and XLA on several devices.
    """

    encoder: tf.Module
    reads_whole_batch: bool = False
    gathers_batch: bool = False

    @property
    def followers(self) -> Sequence[tuple[tf.Variable, tf.Variable]]:
        """Returns pairs (variable, leader).

        Such a variable is the sum of its leader, without a gradient, and of a part of its own,
        which alone the optimizer updates.
        """
        return ()

    @abc.abstractmethod
    def prepare(self, features: dict[str, tf.Tensor], seed: tf.Tensor) -> dict[str, tf.Tensor]:
        """Masks and draws noise: maps features int32 [B, S] to `loss`'s inputs, all [B, ...]."""

    @abc.abstractmethod
    def normalizers(self, batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Returns the divisors of the losses, scalars over this replica's part of the batch."""

    @abc.abstractmethod
    def loss(
        self,
        batch: dict[str, tf.Tensor],
        normalizers: dict[str, tf.Tensor],
        *,
        training: bool,
        seed: tf.Tensor | None = None,
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Returns this replica's share of the loss, and metrics as sums (see training.metrics).

        Dropout is active only in training and depends on `seed`, int32 [2], or [3] for parts of a
        batch.
        """

    def losses(self, *args, **kwargs) -> Iterator[tuple[tf.Tensor, dict[str, tf.Tensor]]]:
        """Yields the terms of `loss`, by default a single one, each with its own metrics.

        The loop computes a term's gradients before it requests the next term, so that intermediate
        values of two terms are never in memory at once. No gradient may flow from a term into
        values computed by an earlier one.
        """
        yield self.loss(*args, **kwargs)

    def tracing(self) -> contextlib.AbstractContextManager:
        """Returns the context in which the loop traces the `loss` and gradients of a step."""
        return contextlib.nullcontext()
