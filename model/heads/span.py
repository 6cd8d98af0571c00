"""Span prediction: start, end given the start, and whether there is an answer."""

from __future__ import annotations

from typing import Protocol

import tensorflow as tf
import tf_keras

from convbert.common.backend import built_for_litert
from convbert.model.config import BackboneConfig

HIDDEN_SIZE = 512  # of the end and answerability layers, as in the original
_OUTSIDE = -1000.0  # added to the logits of tokens that cannot be in an answer
_NO_TOKEN = -10000.0  # log probability that fills up a beam; below any token's


class SpanSettings(Protocol):
    """The hyper-parameters that a SpanHead reads."""

    joint_prediction: bool
    beam_size: int
    answerable_classifier: bool
    answerable_uses_start_logits: bool
    answerable_weight: float


class SpanHead(tf_keras.layers.Layer):
    """Predicts the start and end of an answer, and whether there is one.

    A dense layer chooses the start from the context's tokens and the summary token (see
    `BackboneConfig.summary_token`), which means no answer. With `joint_prediction`,
    Dense(gelu(Dense([h_s; h_t]))) chooses the end given the start h_s: the gold start in training,
    each of the `beam_size` best in prediction. Version 2's answerability classifier reads the
    text's vector and the mean of all tokens weighted by their start probability.

    Source: `get_prediction_module` in finetune/qa/qa_tasks.py of ELECTRA. There, the dense layer
    sees the concatenation [h_s; h_t] for every start and token; here its two halves are applied
    separately and added, one start at a time: the same result with less memory. Scores without
    joint prediction are logits there; here they are always log probabilities.

    Shape: sequence [B, S, D], pooled [B, D]; see `loss` and `predict`. B and S may be dynamic, and
    S smaller than the beam. Softmaxes are computed in float32.

    Args:
        version_2: whether questions may have no answer.
    """

    def __init__(self, config: BackboneConfig, hparams: SpanSettings, *, version_2: bool):
        super().__init__(name="span")
        self.hparams = hparams
        self.version_2 = version_2
        self.classifies = version_2 and hparams.answerable_classifier
        self.width = D = config.hidden_size
        self.summary_token = config.summary_token
        self.start_logit = _dense(1, D, "start")
        if hparams.joint_prediction:
            self.end_hidden = _dense(HIDDEN_SIZE, 2 * D, "end_hidden", "gelu")
            self.end_logit = _dense(1, HIDDEN_SIZE, "end")
        else:
            self.end_logit = _dense(1, D, "end")
        if self.classifies:
            pooled = D
            if hparams.answerable_uses_start_logits:
                self.answerable_hidden = _dense(HIDDEN_SIZE, 2 * D, "answerable_hidden", "gelu")
                pooled = HIDDEN_SIZE
            self.answerable_logit = _dense(1, pooled, "answerable")

    def loss_weights(self, batch):
        """Returns 1 for sequences, 0 for batch padding: float32 [B]."""
        return batch["weight"]

    def loss(self, output, batch, *, training, seed=None):
        """Returns the loss of each sequence: float32 [B].

        It is the mean of the start's and the end's cross entropies; with the classifier, plus
        `answerable_weight` times its cross entropy.

        Args:
            batch: input_mask, segment_ids int32 [B, S]; start_position, end_position,
                is_impossible int32 [B]. Position 0 means that the answer is not in the window,
                regardless of the summary token's position.
        """
        sequence = output.sequence
        nowhere, outside = self._places(batch)
        starts, ends = (
            tf.where(batch[name] == 0, nowhere, batch[name])
            for name in ("start_position", "end_position")
        )
        start_logits = self._start_logits(sequence, outside)
        end_logits = self._end_logits(sequence, outside, starts[:, None])[:, 0]
        cross_entropy = tf.nn.sparse_softmax_cross_entropy_with_logits
        losses = (cross_entropy(starts, start_logits) + cross_entropy(ends, end_logits)) / 2.0
        if not self.classifies:
            return losses
        impossible = tf.cast(batch["is_impossible"], tf.float32)
        logit = self._unanswerable_logit(output, start_logits)
        classifier = tf.nn.sigmoid_cross_entropy_with_logits(impossible, logit)
        return losses + self.hparams.answerable_weight * classifier

    def predict(self, output, batch):
        """Predicts the K = `beam_size` best starts of each sequence, and for each the K best ends.

        Args:
            batch: input_mask, segment_ids int32 [B, S].

        Returns:
            start_log_probs float32, start_index int32 [B, K], best first; end_log_probs float32,
            end_index int32 [B, K, K], for each start; if S < K, the last are at index 0 with log
            probability -10000. answerable_logit float32 [B] is high for no answer: the classifier's
            logit or, without a classifier, the log probability of the summary token as the span.
        """
        sequence, K = output.sequence, self.hparams.beam_size
        nowhere, outside = self._places(batch)
        start_logits = self._start_logits(sequence, outside)
        all_starts = tf.nn.log_softmax(start_logits)  # [B, S]
        start_log_probs, start_index = _top_k(all_starts, K)
        if self.hparams.joint_prediction:
            end_logits = self._end_logits(sequence, outside, start_index)  # [B, K, S]
        else:
            end_logits = self._end_logits(sequence, outside, nowhere[:, None])  # [B, 1, S]
        end_log_probs, end_index = _top_k(tf.nn.log_softmax(end_logits), K)
        shape = tf.stack([tf.shape(sequence)[0], K, K])
        if self.classifies:
            null = self._unanswerable_logit(output, start_logits)
        else:
            null_ends = tf.nn.log_softmax(self._end_logits(sequence, outside, nowhere[:, None]))
            null = tf.gather(all_starts + null_ends[:, 0], nowhere, batch_dims=1)
        return {
            "start_log_probs": start_log_probs,
            "start_index": start_index,
            "end_log_probs": tf.broadcast_to(end_log_probs, shape),
            "end_index": tf.broadcast_to(end_index, shape),
            "answerable_logit": null,
        }

    def _places(self, batch):
        """Returns the position for no answer, int32 [B], and the logits' bias, float32 [B, S]."""
        mask, S = batch["input_mask"], tf.shape(batch["input_mask"])[1]
        place = self.summary_token
        last = tf.reduce_max(tf.range(S) * mask, 1)  # on whichever side padding is
        nowhere = 0 * last + place if place >= 0 else last + 1 + place
        context = tf.cast(mask, tf.float32) * tf.cast(batch["segment_ids"] == 1, tf.float32)
        allowed = tf.maximum(context, tf.one_hot(nowhere, S))  # [B, S]
        return nowhere, _OUTSIDE * (1.0 - allowed)

    def _start_logits(self, sequence, outside):
        """Maps [B, S, D] to float32 [B, S]."""
        return self.start_logit(sequence)[..., 0] + outside

    def _end_logits(self, sequence, outside, starts):
        """Returns the logits of each token as the end of an answer that begins at `starts`.

        Shape: sequence [B, S, D], starts int32 [B, K] -> float32 [B, K, S]; [B, 1, S] without
        joint prediction, where the start does not matter.
        """
        if not self.hparams.joint_prediction:
            return (self.end_logit(sequence)[..., 0] + outside)[:, None]
        sequence = tf.cast(sequence, self.compute_dtype)
        kernel = tf.cast(self.end_hidden.kernel, self.compute_dtype)  # [2D, 512]
        bias = tf.cast(self.end_hidden.bias, self.compute_dtype)
        of_starts = tf.gather(sequence, starts, batch_dims=1) @ kernel[: self.width]  # [B, K, 512]
        of_tokens = sequence @ kernel[self.width :] + bias  # [B, S, 512]

        def of_one(start):
            """[B, 512] -> [B, S]"""
            hidden = self.end_hidden.activation(start[:, None] + of_tokens)
            return self.end_logit(hidden)[..., 0] + outside

        if starts.shape[1] == 1:
            return of_one(of_starts[:, 0])[:, None]
        if built_for_litert():  # LiteRT has no tensor lists
            return tf.stack([of_one(start) for start in tf.unstack(of_starts, axis=1)], 1)
        logits = tf.map_fn(
            of_one, tf.transpose(of_starts, [1, 0, 2]), fn_output_signature=tf.float32
        )
        return tf.transpose(logits, [1, 0, 2])  # [K, B, S] -> [B, K, S]

    def _unanswerable_logit(self, output, start_logits):
        """Maps an EncoderOutput and start logits [B, S] to float32 [B]."""
        sequence, pooled = output.sequence, output.pooled
        if self.hparams.answerable_uses_start_logits:
            starts = tf.cast(tf.nn.softmax(start_logits), sequence.dtype)
            start = tf.einsum("bs,bsd->bd", starts, sequence)
            pooled = self.answerable_hidden(tf.concat([pooled, start], axis=-1))
        return self.answerable_logit(pooled)[:, 0]


def _dense(units: int, width: int, name: str, activation=None) -> tf_keras.layers.Dense:
    """Builds a dense layer with Glorot initialisation, as the original; logits are float32."""
    dtype = "float32" if units == 1 else None
    layer = tf_keras.layers.Dense(units, activation, name=name, dtype=dtype)
    with tf.name_scope(f"span/{name}"):
        layer.build([None, width])
    return layer


def _top_k(log_probs: tf.Tensor, K: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the K best values of the last axis and their indices; pads if there are fewer."""
    S = tf.shape(log_probs)[-1]
    filler = tf.fill(tf.concat([tf.shape(log_probs)[:-1], [K]], 0), _NO_TOKEN)
    values, indices = tf.math.top_k(tf.concat([log_probs, filler], -1), K)
    return values, tf.where(indices < S, indices, 0)
