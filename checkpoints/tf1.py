"""Names of the original TensorFlow 1 code's variables (ConvBERT and ELECTRA name theirs alike).

The `*_variables` functions are the whole correspondence: they map the original's variable names to
our variables, by structure. Reading, writing and comparing gradients all go through such a dict.
"""

from __future__ import annotations

import itertools

import tensorflow as tf
import tf_keras

from checkpoints.slots import check_named
from model import DiscriminatorHead, Encoder, MaskedLMHead
from model.layers import Dense, GroupedDense, LayerNorm
from model.token_mixing import SpanKey

ENCODER, GENERATOR = "electra", "generator"  # scopes of the encoder that is kept, and the other
DISCRIMINATOR_HEAD, MASKED_LM_HEAD = "discriminator_predictions", "generator_predictions"
SLOTS = ("adam_m", "adam_v")  # moments of the original's optimizer: NAME/adam_m
TABLES = ("word_embeddings", "token_type_embeddings", "position_embeddings")

_VARIABLES = {
    Dense: ("kernel", "bias"),
    GroupedDense: ("kernel", "bias"),
    SpanKey: ("depthwise_kernel", "pointwise_kernel", "bias"),
    LayerNorm: ("beta", "gamma"),
}


def encoder_layers(encoder: Encoder) -> dict[str, tf_keras.layers.Layer]:
    """The layers of an encoder, all but the tables of its embeddings, by name without the scope.

    Checked: it has no other layers or variables.
    """
    layers = {"embeddings/LayerNorm": encoder.embeddings.norm}
    if encoder.embeddings_project is not None:
        layers["embeddings_project"] = encoder.embeddings_project
    for i, layer in enumerate(encoder.encoder_layers):
        scope, mixer = f"encoder/layer_{i}", layer.mixer
        attention = f"{scope}/attention"
        feed_forward = "g_dense" if isinstance(layer.intermediate, GroupedDense) else "dense"
        layers |= {
            f"{attention}/self/query": mixer.query,
            f"{attention}/self/key": mixer.key,
            f"{attention}/self/value": mixer.value,
            f"{attention}/output/dense": layer.mixer_output,
            f"{attention}/output/LayerNorm": layer.mixer_norm,
            f"{scope}/intermediate/{feed_forward}": layer.intermediate,
            f"{scope}/output/{feed_forward}": layer.output_dense,
            f"{scope}/output/LayerNorm": layer.output_norm,
        }
        if mixer.convolution is not None:
            layers |= {
                f"{attention}/self/conv_attn_key": mixer.convolution.span_key,
                f"{attention}/self/conv_attn_kernel": mixer.convolution.kernel_logits,
                f"{attention}/self/conv_attn_point": mixer.conv_value,
            }
    tables = [getattr(encoder.embeddings, name) for name in TABLES]
    named = (v for layer in layers.values() for v in _named("", layer).values())
    check_named(encoder, itertools.chain(tables, named))
    return layers


def encoder_variables(
    encoder: Encoder, scope: str = ENCODER, embeddings_scope: str = ENCODER
) -> dict[str, tf.Variable]:
    """Maps the original's names to the variables of an encoder.

    Args:
        encoder: a built encoder.
        scope: ENCODER for the one that is kept, or GENERATOR.
        embeddings_scope: likewise; a generator's are ENCODER's unless they are untied.
    """
    variables = {
        f"{embeddings_scope}/embeddings/{name}": getattr(encoder.embeddings, name)
        for name in TABLES
    }
    for name, layer in encoder_layers(encoder).items():
        inside = embeddings_scope if name.startswith("embeddings/") else scope
        variables |= _named(f"{inside}/{name}", layer)
    return variables


def head_variables(head: DiscriminatorHead | MaskedLMHead) -> dict[str, tf.Variable]:
    """Maps the original's names to a head's own variables (not to embeddings that it shares)."""
    shared = []
    if isinstance(head, DiscriminatorHead):
        layers = {"dense": head.transform, "dense_1": head.logit}
        scope, variables = DISCRIMINATOR_HEAD, {}
    else:
        shared = head.embeddings.variables
        layers = {"dense": head.transform, "LayerNorm": head.norm}
        scope, variables = MASKED_LM_HEAD, {f"{MASKED_LM_HEAD}/output_bias": head.output_bias}
    for name, layer in layers.items():
        variables |= _named(f"{scope}/{name}", layer)
    check_named(head, [*shared, *variables.values()])
    return variables


def objective_variables(
    objective, scope: str = ENCODER, embeddings_scope: str = ENCODER
) -> dict[str, tf.Variable]:
    """Maps the original's names to the variables of all networks of an objective.

    An objective has `encoder`, and may have `head`, `generator` and `generator_head`.
    """
    encoder, generator = objective.encoder, getattr(objective, "generator", None)
    variables = encoder_variables(encoder, scope, embeddings_scope)
    if generator is not None and generator is not encoder:
        tied = generator.embeddings is encoder.embeddings
        variables |= encoder_variables(generator, GENERATOR, ENCODER if tied else GENERATOR)
    for head in (objective.head, getattr(objective, "generator_head", None)):
        variables |= head_variables(head) if head is not None else {}
    return variables


def _named(scope: str, layer: tf_keras.layers.Layer) -> dict[str, tf.Variable]:
    return {f"{scope}/{name}": getattr(layer, name) for name in _VARIABLES[type(layer)]}
