"""The interface of backbones of any architecture for objectives, heads and serving."""

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
            it, never a position of their own choice.
        embedding_output: [B, S, D], the first layer's input; None if a network has none.
        hidden_states: one [B, S, D] per layer.
        attention_probs: one [B, N, S, S] per layer with attention, on request; else empty. In
            training, after dropout: the weights of the values.
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
    """Lets the backbones in `module` keep only what goes into each layer in training.

    They compute the rest again for its gradient: less memory for one more forward pass.

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

    Rematerialized, it returns the states alone; their gradient computes the layer again.
    """
    if not rematerialized:
        return layer(*states, **options)
    return tf.recompute_grad(lambda *states: layer(*states, **options)[: len(states)])(*states)


def last_token(hidden: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """The states of each text's last token that is not padding: [B, S, D], [B, S] -> [B, D]."""
    last = tf.reduce_max(tf.range(sizes(mask)[1]) * mask, 1)
    return tf.gather(hidden, last, batch_dims=1)


class Backbone(Protocol):
    """A network from word pieces to vectors, such as `model.encoder.Encoder`. A tf.Module.

    One with an attribute `rematerialize` can train in less memory, see the function of this name.

    Attributes:
        config: its architecture.
        hidden_size: D.
        embeddings: has `word_embeddings` [V, E], to which a masked-LM head ties its output.
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
                [B, S]. B and S may be dynamic; S is at most `max_position_embeddings`.
            training: whether dropout is on.
            seed: int32 [2], which decides all dropout in training; [3] where the batch is one of
                several equal parts, whose number, from 0, stands last.
        """

    def layer_groups(self) -> list[list[tf.Variable]]:
        """The trainable variables, grouped from the bottom to the top.

        The first group is the embeddings, and then one follows for every layer. Layer-wise learning
        rates decrease by a factor from each group to the one below.
        """
