"""XLNet's networks: their weights' names in both formats, and what else both formats share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from checkpoints.model_directory import (
    INCOMPLETE,
    Conversion,
    Networks,
    describe_pretraining,
)
from checkpoints.slots import Slot, Tensors, check_named, fill
from data.vocabulary import Vocabulary
from errors import InputError
from model import build_backbone
from model.xlnet.config import XLNetConfig
from model.xlnet.network import XLNet, XLNetLayer, XLNetLMHead
from pretrain.load import SpecialIds
from training.stored_shapes import no_larger_than

# Fields of both formats, and ours.
FIELDS = {
    "d_model": "hidden_size",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "d_inner": "intermediate_size",
    "ff_activation": "hidden_act",
    "untie_r": "untie_biases",
}
UNWEIGHTED = ("max_position_embeddings", "type_vocab_size")  # fields that no weights depend on
# Names in both formats under `rel_attn/`, and ours.
_BIASES = {"r_w_bias": "content", "r_r_bias": "position", "r_s_bias": "segment"}
_KERNELS = {"q": "query_kernel", "k": "key_kernel", "v": "value_kernel", "r": "encoding_kernel"}


def tf1_slots(encoder: XLNet, head: XLNetLMHead | None) -> dict[str, Slot]:
    """The original's names; of fine-tuned ones, too, but for their heads."""
    config, layers = encoder.config, encoder.encoder_layers
    N, H, L = config.num_attention_heads, config.head_size, config.num_hidden_layers
    slots = {"word_embedding/lookup_table": Slot.of(encoder.embeddings.word_embeddings)}
    for theirs, ours in _BIASES.items():
        if encoder.tied_biases is None:
            own = tuple(getattr(layer.attention.biases, ours) for layer in layers)
            slots[theirs] = Slot(own, (L, N, H))
        else:
            slots[theirs] = Slot.of(getattr(encoder.tied_biases, ours))
    segments = tuple(layer.attention.segment_embeddings for layer in layers)
    slots["seg_embed"] = Slot(segments, (L, 2, N, H))
    for i, layer in enumerate(layers):
        kernels = {f"rel_attn/{name}/kernel": slot for name, slot in _kernels(layer).items()}
        for name, part in (("rel_attn", layer.attention_norm), ("ff", layer.output_norm)):
            kernels[f"{name}/LayerNorm/gamma"] = Slot.of(part.gamma)
            kernels[f"{name}/LayerNorm/beta"] = Slot.of(part.beta)
        for name, part in (("layer_1", layer.intermediate), ("layer_2", layer.output_dense)):
            kernels[f"ff/{name}/kernel"] = Slot.of(part.kernel)
            kernels[f"ff/{name}/bias"] = Slot.of(part.bias)
        slots |= {f"layer_{i}/{name}": slot for name, slot in kernels.items()}
    if head is not None:
        slots["mask_emb/mask_emb"] = Slot((head.mask_embedding,), (1, 1, config.hidden_size))
    slots = {f"model/transformer/{name}": slot for name, slot in slots.items()}
    if head is not None:
        slots["model/lm_loss/bias"] = Slot.of(head.output_bias)
    return _checked(slots, encoder, head)


def huggingface_slots(encoder: XLNet, head: XLNetLMHead | None, prefix: str) -> dict[str, Slot]:
    """Hugging Face's names; `prefix` is "transformer." or, of an encoder by itself, empty.

    Biases that all layers share are there once for each of them.
    """
    slots = {"word_embedding.weight": Slot.of(encoder.embeddings.word_embeddings)}
    for i, layer in enumerate(encoder.encoder_layers):
        attention = {**_kernels(layer), "seg_embed": Slot.of(layer.attention.segment_embeddings)}
        for theirs, ours in _BIASES.items():
            attention[theirs] = Slot.of(getattr(layer.attention.biases, ours))
        parts = {f"rel_attn.{name}": slot for name, slot in attention.items()}
        for name, part in (("rel_attn", layer.attention_norm), ("ff", layer.output_norm)):
            parts[f"{name}.layer_norm.weight"] = Slot.of(part.gamma)
            parts[f"{name}.layer_norm.bias"] = Slot.of(part.beta)
        for name, part in (("layer_1", layer.intermediate), ("layer_2", layer.output_dense)):
            parts[f"ff.{name}.weight"] = Slot.of(part.kernel, (1, 0))  # [out, in]
            parts[f"ff.{name}.bias"] = Slot.of(part.bias)
        slots |= {f"layer.{i}.{name}": slot for name, slot in parts.items()}
    if head is not None:
        slots["mask_emb"] = Slot((head.mask_embedding,), (1, 1, encoder.config.hidden_size))
    slots = {prefix + name: slot for name, slot in slots.items()}
    if head is not None:
        slots["lm_loss.bias"] = Slot.of(head.output_bias)
    return _checked(slots, encoder, head)


def _kernels(layer: XLNetLayer) -> dict[str, Slot]:
    """The kernels of attention, [D, N, H] in both formats, also that of the output."""
    attention, config = layer.attention, layer.attention.config
    shape = (config.hidden_size, config.num_attention_heads, config.head_size)
    slots = {name: Slot((getattr(attention, our),), shape) for name, our in _KERNELS.items()}
    return {**slots, "o": Slot((attention.output_kernel,), shape, (1, 0))}


def _checked(slots: dict[str, Slot], encoder: XLNet, head: XLNetLMHead | None) -> dict[str, Slot]:
    named = [variable for slot in slots.values() for variable in slot.variables]
    for network in (encoder, head) if head is not None else (encoder,):
        check_named(network, named)
    return slots


def read_networks(
    tensors: Tensors,
    config: XLNetConfig,
    vocabulary: Vocabulary,
    slots_of: Callable[[XLNet, XLNetLMHead | None], dict[str, Slot]],
    left_out: Callable[[str], str | None],
    complete: bool,
) -> Conversion:
    """A conversion whose networks hold the tensors; an encoder alone where not `complete`."""
    hparams = describe_pretraining(config, vocabulary, objective="permutation_lm")
    with no_larger_than(tensors.shapes.values(), tensors.where):
        if complete:
            networks = hparams.build_objective(config, SpecialIds(vocabulary))
        else:
            networks = Networks(build_backbone(config))
    notes = fill(slots_of(networks.encoder, networks.head), tensors, left_out)
    if not complete:
        notes.append(f"there is no head of permutation language modelling; {INCOMPLETE}")
    return Conversion(config, hparams, vocabulary, networks, notes=notes)


def check_head_size(received: Any, config: XLNetConfig, path: str) -> None:
    """Raises InputError unless heads are as wide as they always are here."""
    if received != config.head_size:
        raise InputError(
            f"{path}: `d_head` should be d_model / n_head, {config.head_size}. Received: {received}"
        )


def unwritten(conversion: Conversion) -> list[str]:
    """Notes on what both formats have no place for."""
    moments = ", the optimizer's moments" if conversion.optimizer else ""
    notes = [f"left out, as the format has no place for it: the settings of pre-training{moments}"]
    config = conversion.config
    if conversion.objective.head is None:
        notes.append("left out, as the model has no such head: mask_emb and the output layer")
    if config.hidden_dropout_prob != config.attention_probs_dropout_prob:
        notes.append(
            f"`dropout` there is {config.hidden_dropout_prob}, also of attention probabilities,"
            f" where it is {config.attention_probs_dropout_prob} here; it matters in training only"
        )
    return notes
