"""Names of weights in other formats, for our variables: ConvBERT, ELECTRA, BERT and XLNet.

`_encoder_layers`, `_head_layers` and `_WEIGHTS` map names of the original TensorFlow 1 code, which
are the same for ConvBERT and ELECTRA; `_RENAMED` and the second half of `_WEIGHTS` convert them to
Hugging Face's names. Task heads are in huggingface/task_heads.py.
"""

from __future__ import annotations

import tf_keras

from convbert.checkpoints.slots import TRANSPOSED, Slot, checked
from convbert.model import DiscriminatorHead, Encoder, MaskedLMHead
from convbert.model.layers import Embeddings, GroupedDense
from convbert.model.token_mixing import SpanKey
from convbert.model.xlnet.network import XLNet, XLNetLayer, XLNetLMHead

ENCODER, GENERATOR = "electra", "generator"  # scopes of the encoder and of the generator
DISCRIMINATOR_HEAD, MASKED_LM_HEAD = "discriminator_predictions", "generator_predictions"
BERT_HEAD = "cls.predictions"  # masked-LM head in Hugging Face's BERT
# Parts of an XLNet that only pre-training uses.
XLNET_HEAD = ("model/lm_loss/bias", "model/transformer/mask_emb/mask_emb")  # the original's names
XLNET_WORDS = "word_embedding.weight"  # Hugging Face's
_BIASES = {"r_w_bias": "content_bias", "r_r_bias": "position_bias", "r_s_bias": "segment_bias"}
_KERNELS = {"q": "query_kernel", "k": "key_kernel", "v": "value_kernel", "r": "encoding_kernel"}
# The original's and our names of a layer's variables; Hugging Face's names and axes.
_WEIGHTS: dict[type, dict[str, tuple[str, tuple[int, ...] | None]]] = {
    Embeddings: {
        "word_embeddings": ("word_embeddings.weight", None),
        "token_type_embeddings": ("token_type_embeddings.weight", None),
        "position_embeddings": ("position_embeddings.weight", None),
    },
    tf_keras.layers.Dense: {"kernel": ("weight", TRANSPOSED), "bias": ("bias", None)},
    GroupedDense: {"kernel": ("weight", None), "bias": ("bias", None)},
    tf_keras.layers.LayerNormalization: {"gamma": ("weight", None), "beta": ("bias", None)},
    SpanKey: {
        "depthwise_kernel": ("depthwise.weight", (1, 2, 0)),  # [K, D, 1] -> [D, 1, K]
        "pointwise_kernel": ("pointwise.weight", (2, 1, 0)),  # [1, D, A] -> [A, D, 1]
        "bias": ("bias", None),  # [A] -> [A, 1]
    },
}
# Hugging Face's replacements, in this order.
_RENAMED = {
    "/": ".",
    "layer_": "layer.",
    "g_dense": "dense",
    "conv_attn_key": "key_conv_attn_layer",
    "conv_attn_kernel": "conv_kernel_layer",
    "conv_attn_point": "conv_out_layer",
}


def original_encoder(
    encoder: Encoder, scope: str = ENCODER, embeddings_scope: str = ENCODER
) -> dict[str, Slot]:
    """Returns the original's names of an encoder.

    A generator's embeddings are in ENCODER's scope unless they are untied.
    """
    slots: dict[str, Slot] = {}
    for name, layer in _encoder_layers(encoder).items():
        of_embeddings = name.split("/")[0] == "embeddings"
        slots |= _original_layer(f"{embeddings_scope if of_embeddings else scope}/{name}", layer)
    return checked(slots, encoder)


def original_slots(objective) -> dict[str, Slot]:
    """Returns the original's names of all networks of an objective."""
    encoder, generator = objective.encoder, getattr(objective, "generator", None)
    slots = original_encoder(encoder)
    if generator is not None and generator is not encoder:
        tied = generator.embeddings is encoder.embeddings
        slots |= original_encoder(generator, GENERATOR, ENCODER if tied else GENERATOR)
    heads = [objective.head, getattr(objective, "generator_head", None)]
    for head in filter(None, heads):  # without shared embeddings
        scope, layers = _head_layers(head)
        if isinstance(head, MaskedLMHead):
            slots[f"{scope}/output_bias"] = Slot.of(head.output_bias)
        for name, layer in layers.items():
            slots |= _original_layer(f"{scope}/{name}", layer)
    return checked(slots, *heads)


def huggingface_encoder(encoder: Encoder, prefix: str) -> dict[str, Slot]:
    """Returns Hugging Face's names; `prefix` is e.g. "electra.", or "" for a bare encoder."""
    slots: dict[str, Slot] = {}
    for name, layer in _encoder_layers(encoder).items():
        for original, theirs in _RENAMED.items():
            name = name.replace(original, theirs)
        slots |= huggingface_layer(name, layer)
    return checked({prefix + name: slot for name, slot in slots.items()}, encoder)


def huggingface_slots(
    encoder: Encoder, head: DiscriminatorHead | MaskedLMHead | None, prefix: str, model_type: str
) -> dict[str, Slot]:
    """Returns Hugging Face's names of an encoder and its head (ELECTRA's discriminator)."""
    slots = huggingface_encoder(encoder, prefix)
    if head is None:
        return slots
    scope, layers = _head_layers(head)
    if isinstance(head, DiscriminatorHead):
        layers["dense_prediction"] = layers.pop("dense_1")
    else:
        bias = "generator_lm_head.bias"
        if model_type == "bert":
            scope, bias = f"{BERT_HEAD}.transform", f"{BERT_HEAD}.bias"
        slots[bias] = Slot.of(head.output_bias)
    for name, layer in layers.items():
        slots |= huggingface_layer(f"{scope}.{name}", layer)
    return checked(slots, head)


def huggingface_layer(scope: str, layer: tf_keras.layers.Layer) -> dict[str, Slot]:
    """Returns Hugging Face's names of a layer's weights."""
    slots = {}
    for ours, (theirs, axes) in _weights(layer).items():
        variable = getattr(layer, ours)
        slots[f"{scope}.{theirs}"] = Slot.of(variable, axes)
        if isinstance(layer, SpanKey) and ours == "bias":
            slots[f"{scope}.{theirs}"] = Slot((variable,), (*variable.shape, 1))
    return slots


def _original_layer(scope: str, layer: tf_keras.layers.Layer) -> dict[str, Slot]:
    return {f"{scope}/{name}": Slot.of(getattr(layer, name)) for name in _weights(layer)}


def _weights(layer: tf_keras.layers.Layer) -> dict[str, tuple]:
    """Returns the row of `_WEIGHTS`; empty for a layer that `checked` will reject."""
    return next((row for kind, row in _WEIGHTS.items() if isinstance(layer, kind)), {})


def _encoder_layers(encoder: Encoder) -> dict[str, tf_keras.layers.Layer]:
    """Returns the original's names of an encoder's layers, without the scope."""
    embeddings = encoder.embeddings
    layers = {"embeddings": embeddings, "embeddings/LayerNorm": embeddings.norm}
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
    return layers


def _head_layers(
    head: DiscriminatorHead | MaskedLMHead,
) -> tuple[str, dict[str, tf_keras.layers.Layer]]:
    """Returns the original's scope of a head, and names of its layers."""
    if isinstance(head, DiscriminatorHead):
        return DISCRIMINATOR_HEAD, {"dense": head.transform, "dense_1": head.logit}
    return MASKED_LM_HEAD, {"dense": head.transform, "LayerNorm": head.norm}


def original_xlnet(encoder: XLNet, head: XLNetLMHead | None) -> dict[str, Slot]:
    """Returns the original's names of an XLNet, without heads of fine-tuned ones."""
    config, layers = encoder.config, encoder.encoder_layers
    N, H, L = config.num_attention_heads, config.head_size, config.num_hidden_layers
    slots = {"word_embedding/lookup_table": Slot.of(encoder.embeddings.word_embeddings)}
    for theirs, ours in _BIASES.items():
        slots[theirs] = Slot(tuple(getattr(layer.attention, ours) for layer in layers), (L, N, H))
    segments = tuple(layer.attention.segment_embeddings for layer in layers)
    slots["seg_embed"] = Slot(segments, (L, 2, N, H))
    for i, layer in enumerate(layers):
        for name, slot in _xlnet_kernels(layer).items():
            slots[f"layer_{i}/{name}/kernel"] = slot
        for name, part in _xlnet_parts(layer).items():
            slots |= _original_layer(f"layer_{i}/{name}", part)
    slots = {f"model/transformer/{name}": slot for name, slot in slots.items()}
    if head is not None:
        bias, mask = XLNET_HEAD
        slots[bias] = Slot.of(head.output_bias)
        slots[mask] = Slot((head.mask_embedding,), (1, 1, config.hidden_size))
    return checked(slots, encoder, head)


def huggingface_xlnet(encoder: XLNet, head: XLNetLMHead | None, prefix: str) -> dict[str, Slot]:
    """Returns Hugging Face's names; `prefix` is "transformer.", or "" for a bare encoder."""
    slots = {XLNET_WORDS: Slot.of(encoder.embeddings.word_embeddings)}
    for i, layer in enumerate(encoder.encoder_layers):
        scope, attention = f"layer.{i}", layer.attention
        slots[f"{scope}.rel_attn.seg_embed"] = Slot.of(attention.segment_embeddings)
        for theirs, ours in _BIASES.items():
            slots[f"{scope}.rel_attn.{theirs}"] = Slot.of(getattr(attention, ours))
        for name, slot in _xlnet_kernels(layer).items():
            slots[f"{scope}.{name.replace('/', '.')}"] = slot
        for name, part in _xlnet_parts(layer).items():
            name = name.replace("LayerNorm", "layer_norm").replace("/", ".")
            slots |= huggingface_layer(f"{scope}.{name}", part)
    if head is not None:
        slots["mask_emb"] = Slot((head.mask_embedding,), (1, 1, encoder.config.hidden_size))
    slots = {prefix + name: slot for name, slot in slots.items()}
    if head is not None:
        slots["lm_loss.bias"] = Slot.of(head.output_bias)
    return checked(slots, encoder, head)


def _xlnet_kernels(layer: XLNetLayer) -> dict[str, Slot]:
    """Returns the attention kernels, [D, N, H] in both formats, including the output's."""
    attention, config = layer.attention, layer.attention.config
    shape = (config.hidden_size, config.num_attention_heads, config.head_size)
    slots = {name: Slot((getattr(attention, our),), shape) for name, our in _KERNELS.items()}
    slots["o"] = Slot((attention.output_kernel,), shape, TRANSPOSED)
    return {f"rel_attn/{name}": slot for name, slot in slots.items()}


def _xlnet_parts(layer: XLNetLayer) -> dict[str, tf_keras.layers.Layer]:
    """Returns the original's names of a layer's other parts."""
    return {
        "rel_attn/LayerNorm": layer.attention_norm,
        "ff/LayerNorm": layer.output_norm,
        "ff/layer_1": layer.intermediate,
        "ff/layer_2": layer.output_dense,
    }
