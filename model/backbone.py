"""The interface that backbones of all architectures offer to objectives, heads and serving."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import tensorflow as tf
import tf_keras

from convbert.common.errors import InputError
from convbert.model.config import BackboneConfig
from convbert.model.kernels import sizes


class EncoderOutput(NamedTuple):
    """The outputs of a backbone.

    Attributes:
        sequence: [B, S, D], the last layer's hidden states.
        pooled: [B, D], the state of the token at `summary_token`, without a further layer: the
            first for BERT, ELECTRA and ConvBERT; the last for XLNet and causal encoders. Heads read
            it instead of choosing a position.
        embedding_output: [B, S, D], the first layer's input; may be None.
        hidden_states: one [B, S, D] per layer.
        attention_probs: one [B, N, S, S] per layer with attention, on request; else empty. In
            training these are after dropout, as they weight the values.
        conv_kernels: one float32 [B, S, N, K] per layer that predicts a kernel for every token,
            on request; else empty. Each sums to 1.
    """

    sequence: tf.Tensor
    pooled: tf.Tensor
    embedding_output: tf.Tensor | None = None
    hidden_states: tuple[tf.Tensor, ...] = ()
    attention_probs: tuple[tf.Tensor, ...] = ()
    conv_kernels: tuple[tf.Tensor, ...] = ()


def rematerialize(module: tf.Module) -> None:
    """Makes the backbones in `module` keep only the input of each layer in training.

    The gradient recomputes the rest: less memory for one more forward pass.

    Raises:
        InputError: no backbone has an attribute `rematerialize`.
    """
    able = [part for part in (module, *module.submodules) if hasattr(part, "rematerialize")]
    if not able:
        raise InputError("`rematerialize` is not supported by this architecture")
    for part in able:
        part.rematerialize = True


@tf.autograph.experimental.do_not_convert
def run_layer(
    layer: tf_keras.layers.Layer, *states: tf.Tensor, rematerialized: bool, **options: Any
) -> tuple[Any, ...]:
    """Returns `layer(*states, **options)`: the new states, then what else the layer returns.

    With rematerialization it returns only the states, and their gradient recomputes the layer.
    """
    if not rematerialized:
        return layer(*states, **options)
    return tf.recompute_grad(lambda *states: layer(*states, **options)[: len(states)])(*states)


def last_token(hidden: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Returns the state of each text's last non-padding token: [B, S, D], [B, S] -> [B, D]."""
    last = tf.reduce_max(tf.range(sizes(mask)[1]) * mask, 1)
    return tf.gather(hidden, last, batch_dims=1)


def packed_positions(sequence_ids: tf.Tensor) -> tf.Tensor:
    """Returns each token's position in its sequence, int32 [B, S], for `sequence_ids` [B, S]."""
    numbers = tf.cast(sequence_ids, tf.float32)  # GPUs compare no integers of 32 bits
    same = tf.equal(numbers[:, :, None], numbers[:, None, :])
    first = tf.argmax(same, -1, tf.int32)  # the first of equal numbers
    return tf.range(sizes(sequence_ids)[1]) - first


class Backbone(Protocol):
    """A tf.Module that maps word pieces to vectors, such as `model.encoder.Encoder`.

    A backbone with the attribute `rematerialize` supports `rematerialize` above.

    Attributes:
        config: its architecture.
        hidden_size: D.
        embeddings: has `word_embeddings`, float32 [V, E], to which a masked-LM head ties its
            output.
    """

    config: BackboneConfig
    hidden_size: int
    embeddings: tf.Module

    def __call__(
        self,
        features: dict[str, tf.Tensor],
        training: bool = False,
        seed: tf.Tensor | None = None,
    ) -> EncoderOutput:
        """Encodes a batch.

        Args:
            features: `input_ids`, `input_mask` (1 for tokens, 0 for padding), `segment_ids`, int32
                [B, S]. B and S may be dynamic; S is at most `max_position_embeddings`. Rows with
                several sequences, which do not attend to each other, also have `sequence_ids`,
                their numbers from 1, 0 for padding; between them is a `packing_gap` of padding.
                Only backbones whose configuration has a `packing_gap` support them.
            training: whether dropout is on.
            seed: int32 [2], decides all dropout in training; [3] for one of several equal parts of
                a batch, with the part's number, from 0, as the last element.
        """

    def layer_groups(self) -> list[list[tf.Variable]]:
        """The trainable variables, grouped from the bottom to the top.

        The first group is the embeddings; each layer is a further group. Layer-wise learning rates
        decrease by a factor from each group to the one below.
        """
