"""The fine-tuning objective: an encoder and a head behind the training loop's interface."""

from __future__ import annotations

import tensorflow as tf

from convbert.model import Backbone
from convbert.model.kernels import compiled_for_each_length, split_seeds
from convbert.training import metrics
from convbert.training.objective import Objective

EPSILON = 1e-6


class FineTuning(Objective):
    """The loss of a task's head (`model.heads.task`) over a batch's labelled sequences or words.

    `reduction` is "sum" over the global batch as in the original, whose gradients are then clipped
    at almost every step; or "mean" over sequences or words, which is always reported.
    """

    def __init__(self, encoder: Backbone, head, reduction: str = "sum"):
        super().__init__(name="fine_tuning")
        self.encoder, self.head, self.reduction = encoder, head, reduction
        self.reads_whole_batch = getattr(head, "reads_whole_batch", False)
        self.gathers_batch = getattr(head, "gathers_batch", False)
        ones = tf.ones([1, 1], tf.int32)  # creates the head's variables
        self.predict({"input_ids": ones, "input_mask": ones, "segment_ids": 0 * ones})

    def prepare(self, features, seed):
        """Returns the features unchanged, as nothing is masked or drawn."""
        return features

    def normalizers(self, batch):
        """Returns the total weight of sequences or words."""
        return {"weights": tf.reduce_sum(self.head.loss_weights(batch))}

    def loss(self, batch, normalizers, *, training, seed=None):
        """Returns the loss, and its mean as the only metric: scores come from whole splits."""
        encoder_seed, head_seed = split_seeds(seed, 2) if training else (None, None)
        output = self.encoder(batch, training=training, seed=encoder_seed)
        losses = self.head.loss(output, batch, training=training, seed=head_seed)
        weights = self.head.loss_weights(batch)
        loss = tf.reduce_sum(losses * weights)
        if self.reduction == "mean":
            loss /= normalizers["weights"] + EPSILON
        return loss, {"loss": metrics.mean(losses, weights)}

    def tracing(self):
        """Compiles for each length, as lengths of batches are known only at run time."""
        return compiled_for_each_length()

    def predict(self, batch) -> dict[str, tf.Tensor]:
        """Returns the head's predictions for a batch; see its `predict`."""
        return self.head.predict(self.encoder(batch), batch)


def learning_rate_scales(
    objective: FineTuning, decay: float, corrected: bool = False
) -> list[float] | None:
    """Returns learning-rate factors of `objective.trainable_variables`: layer-wise decay.

    With n layers, the original gives the task's layer 1, layer l (counted from 0) decay^(n + 1 - l)
    and the embeddings with their projection decay^(n + 2), so even the top layer gets decay^2.
    `corrected` uses one power less below the head: the top layer gets decay^1. Layers that share
    weights count as the top one.

    Returns None if `decay` is 0, which turns layer-wise decay off as in the original.

    Source: model/optimization.py of ELECTRA, `_get_layer_lrs`.
    """
    if not decay:
        return None
    power = {id(variable): 0 for variable in objective.head.trainable_variables}
    lowest = 1 if corrected else 2
    for distance, group in enumerate(reversed(objective.encoder.layer_groups())):
        power |= {id(variable): distance + lowest for variable in group}
    return [decay ** power[id(variable)] for variable in objective.trainable_variables]
