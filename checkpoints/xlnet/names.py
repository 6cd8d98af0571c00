"""Names of XLNet's weights in both formats, and our variables.

`tf1_slots` and `huggingface_slots` are the whole correspondence; reading and writing go through
them.
"""

from __future__ import annotations

from checkpoints.slots import Slot, check_named
from model.xlnet.head import XLNetLMHead
from model.xlnet.network import XLNet

# Original: name under `rel_attn/`, name at Hugging Face, ours.
_BIASES = {"r_w_bias": "content", "r_r_bias": "position", "r_s_bias": "segment"}
_KERNELS = {"q": "query_kernel", "k": "key_kernel", "v": "value_kernel", "r": "encoding_kernel"}


def tf1_slots(encoder: XLNet, head: XLNetLMHead | None) -> dict[str, Slot]:
    """The original's names; of fine-tuned ones, too, but for their heads."""
    config, layers = encoder.config, encoder.encoder_layers
    N, H, L = config.num_attention_heads, config.head_size, config.num_hidden_layers
    words = Slot.of(encoder.embeddings.word_embeddings)
    slots = {"model/transformer/word_embedding/lookup_table": words}
    for theirs, ours in _BIASES.items():
        if encoder.tied_biases is None:
            own = tuple(getattr(layer.attention.biases, ours) for layer in layers)
            slots[f"model/transformer/{theirs}"] = Slot(own, (L, N, H))
        else:
            slots[f"model/transformer/{theirs}"] = Slot.of(getattr(encoder.tied_biases, ours))
    segments = tuple(layer.attention.segment_embeddings for layer in layers)
    slots["model/transformer/seg_embed"] = Slot(segments, (L, 2, N, H))
    for i, layer in enumerate(layers):
        scope = f"model/transformer/layer_{i}"
        for name, slot in _attention(layer, "{}/kernel").items():
            slots[f"{scope}/rel_attn/{name}"] = slot
        for name, part in (("rel_attn", layer.attention_norm), ("ff", layer.output_norm)):
            slots[f"{scope}/{name}/LayerNorm/gamma"] = Slot.of(part.gamma)
            slots[f"{scope}/{name}/LayerNorm/beta"] = Slot.of(part.beta)
        for name, part in (("layer_1", layer.intermediate), ("layer_2", layer.output_dense)):
            slots[f"{scope}/ff/{name}/kernel"] = Slot.of(part.kernel)
            slots[f"{scope}/ff/{name}/bias"] = Slot.of(part.bias)
    if head is not None:
        slots["model/lm_loss/bias"] = Slot.of(head.output_bias)
        shape = (1, 1, config.hidden_size)
        slots["model/transformer/mask_emb/mask_emb"] = Slot((head.mask_embedding,), shape)
    return _checked(slots, encoder, head)


def huggingface_slots(encoder: XLNet, head: XLNetLMHead | None, prefix: str) -> dict[str, Slot]:
    """Hugging Face's names; `prefix` is "transformer." or, of an encoder by itself, empty.

    Biases that all layers share are there once for each of them.
    """
    slots = {"word_embedding.weight": Slot.of(encoder.embeddings.word_embeddings)}
    for i, layer in enumerate(encoder.encoder_layers):
        attention, inside = layer.attention, f"layer.{i}.rel_attn"
        for theirs, ours in _BIASES.items():
            slots[f"{inside}.{theirs}"] = Slot.of(getattr(attention.biases, ours))
        slots[f"{inside}.seg_embed"] = Slot.of(attention.segment_embeddings)
        slots |= {f"{inside}.{name}": slot for name, slot in _attention(layer, "{}").items()}
        for name, part in (
            (f"{inside}.layer_norm", layer.attention_norm),
            (f"layer.{i}.ff.layer_norm", layer.output_norm),
        ):
            slots[f"{name}.weight"], slots[f"{name}.bias"] = Slot.of(part.gamma), Slot.of(part.beta)
        for name, part in (("layer_1", layer.intermediate), ("layer_2", layer.output_dense)):
            # torch's linear layers hold [out, in]
            slots[f"layer.{i}.ff.{name}.weight"] = Slot.of(part.kernel, (1, 0))
            slots[f"layer.{i}.ff.{name}.bias"] = Slot.of(part.bias)
    slots = {prefix + name: slot for name, slot in slots.items()}
    if head is not None:
        slots["lm_loss.bias"] = Slot.of(head.output_bias)
        shape = (1, 1, encoder.config.hidden_size)
        slots[f"{prefix}mask_emb"] = Slot((head.mask_embedding,), shape)
    return _checked(slots, encoder, head)


def _checked(slots: dict[str, Slot], encoder: XLNet, head: XLNetLMHead | None) -> dict[str, Slot]:
    named = [variable for slot in slots.values() for variable in slot.variables]
    check_named(encoder, named)
    if head is not None:
        check_named(head, named)
    return slots


def _attention(layer, pattern: str) -> dict[str, Slot]:
    """The kernels, [D, N, H] in both formats, also that of the output."""
    config = layer.attention.config
    shape = (config.hidden_size, config.num_attention_heads, config.head_size)
    slots = {
        pattern.format(theirs): Slot((getattr(layer.attention, ours),), shape)
        for theirs, ours in _KERNELS.items()
    }
    output = Slot((layer.attention.output_kernel,), shape, (1, 0))
    return {**slots, pattern.format("o"): output}
