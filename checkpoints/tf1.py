"""Reads checkpoints of the original TensorFlow 1 code (ConvBERT and ELECTRA name theirs alike).

The `*_variables` functions are the whole correspondence: they map the original's variable names to
our variables, by structure. Reading, writing and comparing gradients all go through such a dict.
"""

from __future__ import annotations

import os
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tf_keras

from errors import InputError
from model import DiscriminatorHead, Encoder, EncoderConfig, MaskedLMHead
from model.config import CONFIG_FILE, read_fields
from model.convolution import SpanKey
from model.encoder import EncoderLayer
from model.layers import Dense, GroupedDense, LayerNorm

_SLOTS = ("/adam_m", "/adam_v")  # moments of the original's optimizer
_GLOBAL_STEP = "global_step"

_VARIABLES = {
    Dense: ("kernel", "bias"),
    GroupedDense: ("kernel", "bias"),
    SpanKey: ("depthwise_kernel", "pointwise_kernel", "bias"),
    LayerNorm: ("beta", "gamma"),
}

_CONV_TYPES = {"sdconv": "mixed", "noconv": "attention"}  # `conv_type` -> `token_mixer`
_REQUIRED_FIELDS = (
    *("vocab_size", "embedding_size", "hidden_size", "num_hidden_layers"),
    *("num_attention_heads", "intermediate_size", "conv_type"),
)


class Restored(NamedTuple):
    """What a checkpoint held besides the variables that were assigned.

    Attributes:
        global_step: the training step, or None when it is not stored.
        optimizer_slots: names of the Adam moments; known, not read.
    """

    global_step: int | None
    optimizer_slots: tuple[str, ...]


def encoder_variables(
    encoder: Encoder, scope: str = "electra", embeddings_scope: str = "electra"
) -> dict[str, tf.Variable]:
    """Maps the original's names to the variables of an encoder.

    Args:
        encoder: a built encoder.
        scope: "electra" for the encoder that is kept, "generator" for a generator.
        embeddings_scope: where the embeddings are; the original shares the discriminator's,
            "electra", unless they are untied, then "generator".

    Raises:
        InputError: the original has no names for such an architecture.
    """
    config = encoder.config
    if (
        config.token_mixer == "convolution"
        or config.share_layers
        or (config.token_mixer == "mixed" and config.convolution != "span")
    ):
        raise InputError(
            "the original's checkpoints have only `token_mixer` attention, or mixed with the span"
            f" `convolution`, and no `share_layers`. Received: {config}"
        )
    embeddings = encoder.embeddings
    prefix = f"{embeddings_scope}/embeddings"
    variables = {
        f"{prefix}/{name}": getattr(embeddings, name)
        for name in ("word_embeddings", "token_type_embeddings", "position_embeddings")
    }
    variables.update(_named(f"{prefix}/LayerNorm", embeddings.norm))
    if encoder.embeddings_project is not None:
        variables.update(_named(f"{scope}/embeddings_project", encoder.embeddings_project))
    for i, layer in enumerate(encoder.encoder_layers):
        variables.update(_layer_variables(f"{scope}/encoder/layer_{i}", layer))
    return variables


def masked_lm_head_variables(
    head: MaskedLMHead, scope: str = "generator_predictions"
) -> dict[str, tf.Variable]:
    """Maps the original's names to a masked-LM head's own variables (not the tied embeddings)."""
    return {
        **_named(f"{scope}/dense", head.transform),
        **_named(f"{scope}/LayerNorm", head.norm),
        f"{scope}/output_bias": head.output_bias,
    }


def discriminator_head_variables(
    head: DiscriminatorHead, scope: str = "discriminator_predictions"
) -> dict[str, tf.Variable]:
    """Maps the original's names to the variables of a discriminator head."""
    return {**_named(f"{scope}/dense", head.transform), **_named(f"{scope}/dense_1", head.logit)}


def read_checkpoint(
    prefix: str, variables: dict[str, tf.Variable], ignore: tuple[str, ...] = ()
) -> Restored:
    """Assigns the tensors of a TensorFlow 1 checkpoint to variables; all of them or none.

    Args:
        prefix: path without `.index`, or a folder, of which the latest checkpoint is taken.
        variables: original name -> variable.
        ignore: beginnings of the names of tensors that are not wanted, such as "generator".

    Raises:
        InputError: the file cannot be read, a tensor is missing or of another shape, or one is
            left over that is neither ignored nor known to be the optimizer's.
    """
    try:
        reader = tf.train.load_checkpoint(prefix)
        shapes = reader.get_variable_to_shape_map()
        missing = sorted(set(variables) - set(shapes))
        if missing:
            raise InputError(f"{prefix}: tensors are missing: {_listed(missing)}")
        for name, variable in variables.items():
            if list(variable.shape) != list(shapes[name]):
                raise InputError(
                    f"{prefix}: {name} should have shape {list(variable.shape)}."
                    f" Received: {list(shapes[name])}"
                )
        slots = tuple(sorted(name for name in shapes if name.endswith(_SLOTS)))
        unused = sorted(set(shapes) - set(variables) - set(slots) - {_GLOBAL_STEP})
        unused = [name for name in unused if not name.startswith(ignore)]
        if unused:
            raise InputError(f"{prefix}: tensors that no variable takes: {_listed(unused)}")
        values = {name: np.asarray(reader.get_tensor(name)) for name in variables}
        step = int(reader.get_tensor(_GLOBAL_STEP)) if _GLOBAL_STEP in shapes else None
    except InputError:
        raise
    except (tf.errors.OpError, ValueError, RuntimeError, IndexError) as error:
        raise InputError(f"{prefix}: not a readable TensorFlow checkpoint ({error})") from error
    for name, variable in variables.items():
        variable.assign(values[name])
    return Restored(step, slots)


def read_config(folder: str) -> EncoderConfig:
    """Reads a `config.json` of the original's field names.

    Fields that speak of the generator or the losses are not the encoder's and are left out.
    `mask_padding` is False, as padding enters the original's convolution.

    Raises:
        InputError: the file is missing, is not JSON, lacks a field, or one does not fit.
    """
    path = os.path.join(folder, CONFIG_FILE)
    fields = read_fields(path)
    missing = [name for name in _REQUIRED_FIELDS if name not in fields]
    if missing:
        raise InputError(f"{path}: the fields {', '.join(missing)} are missing")
    if fields["conv_type"] not in _CONV_TYPES:
        raise InputError(
            f"{path}: `conv_type` should be one of {', '.join(_CONV_TYPES)}."
            f" Received: {fields['conv_type']!r}"
        )
    known = EncoderConfig.__dataclass_fields__
    values = {name: value for name, value in fields.items() if name in known}
    mixer = _CONV_TYPES[fields["conv_type"]]
    try:
        return EncoderConfig(**{**values, "token_mixer": mixer, "mask_padding": False})
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def _layer_variables(scope: str, layer: EncoderLayer) -> dict[str, tf.Variable]:
    mixer, attention = layer.mixer, f"{scope}/attention"
    feed_forward = "g_dense" if isinstance(layer.intermediate, GroupedDense) else "dense"
    parts = {
        f"{attention}/self/query": mixer.query,
        f"{attention}/self/key": mixer.attention.key,
        f"{attention}/self/value": mixer.attention.value,
        f"{attention}/output/dense": layer.mixer_output,
        f"{attention}/output/LayerNorm": layer.mixer_norm,
        f"{scope}/intermediate/{feed_forward}": layer.intermediate,
        f"{scope}/output/{feed_forward}": layer.output_dense,
        f"{scope}/output/LayerNorm": layer.output_norm,
    }
    if mixer.convolution is not None:
        parts[f"{attention}/self/conv_attn_key"] = mixer.convolution.span_key
        parts[f"{attention}/self/conv_attn_kernel"] = mixer.convolution.kernel
        parts[f"{attention}/self/conv_attn_point"] = mixer.convolution.value
    return {k: v for name, part in parts.items() for k, v in _named(name, part).items()}


def _named(scope: str, layer: tf_keras.layers.Layer) -> dict[str, tf.Variable]:
    return {f"{scope}/{name}": getattr(layer, name) for name in _VARIABLES[type(layer)]}


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
