"""Names of XLNet's weights in both formats, and our variables.

`tf1_slots` and `huggingface_slots` are the whole correspondence; reading and writing go through
them.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import tensorflow as tf

from model.xlnet.head import XLNetLMHead
from model.xlnet.network import XLNet

# Original: name under `rel_attn/`, name at Hugging Face, ours.
_BIASES = {"r_w_bias": "content", "r_r_bias": "position", "r_s_bias": "segment"}
_KERNELS = {"q": "query_kernel", "k": "key_kernel", "v": "value_kernel", "r": "encoding_kernel"}


@dataclasses.dataclass(frozen=True)
class Slot:
    """Variables and the tensor that holds them.

    Attributes:
        variables: ours: one; or one of each layer, which the tensor stacks; or one several times,
            where all layers share it.
        shape: the tensor's.
        transposed: whether the tensor has the axes of our matrices the other way round, before it
            is given its shape.
        stacked: whether the first axis of the tensor is that of the layers.
    """

    variables: tuple[tf.Variable, ...]
    shape: tuple[int, ...]
    transposed: bool = False
    stacked: bool = False

    def assign(self, tensor: np.ndarray) -> None:
        """Takes a tensor of `shape`."""
        parts = tensor if self.stacked else tensor[None]
        for variable, part in zip(self.variables, parts, strict=True):
            shape = tuple(variable.shape)
            if self.transposed:
                variable.assign(part.reshape(shape[::-1]).T)
            else:
                variable.assign(part.reshape(shape))

    def tensor(self) -> np.ndarray:
        """The tensor, contiguous."""
        parts = [variable.numpy() for variable in self.variables]
        parts = [part.T if self.transposed else part for part in parts]
        joined = np.stack(parts) if self.stacked else parts[0]
        return np.ascontiguousarray(joined.reshape(self.shape))


def tf1_slots(encoder: XLNet, head: XLNetLMHead | None) -> dict[str, Slot]:
    """The original's names; of fine-tuned ones, too, but for their heads."""
    config, layers = encoder.config, encoder.encoder_layers
    N, H, L = config.num_attention_heads, config.head_size, config.num_hidden_layers
    words = _same(encoder.embeddings.word_embeddings)
    slots = {"model/transformer/word_embedding/lookup_table": words}
    for theirs, ours in _BIASES.items():
        if encoder.tied_biases is None:
            own = tuple(getattr(layer.attention.biases, ours) for layer in layers)
            slots[f"model/transformer/{theirs}"] = Slot(own, (L, N, H), stacked=True)
        else:
            slots[f"model/transformer/{theirs}"] = _same(getattr(encoder.tied_biases, ours))
    segments = tuple(layer.attention.segment_embeddings for layer in layers)
    slots["model/transformer/seg_embed"] = Slot(segments, (L, 2, N, H), stacked=True)
    for i, layer in enumerate(layers):
        scope = f"model/transformer/layer_{i}"
        for name, slot in _attention(layer, "{}/kernel").items():
            slots[f"{scope}/rel_attn/{name}"] = slot
        for name, part in (("rel_attn", layer.attention_norm), ("ff", layer.output_norm)):
            slots[f"{scope}/{name}/LayerNorm/gamma"] = _same(part.gamma)
            slots[f"{scope}/{name}/LayerNorm/beta"] = _same(part.beta)
        for name, part in (("layer_1", layer.intermediate), ("layer_2", layer.output_dense)):
            slots[f"{scope}/ff/{name}/kernel"] = _same(part.kernel)
            slots[f"{scope}/ff/{name}/bias"] = _same(part.bias)
    if head is not None:
        slots["model/lm_loss/bias"] = _same(head.output_bias)
        shape = (1, 1, config.hidden_size)
        slots["model/transformer/mask_emb/mask_emb"] = Slot((head.mask_embedding,), shape)
    return slots


def huggingface_slots(encoder: XLNet, head: XLNetLMHead | None, prefix: str) -> dict[str, Slot]:
    """Hugging Face's names; `prefix` is "transformer." or, of an encoder by itself, empty.

    Biases that all layers share are there once for each of them.
    """
    slots = {"word_embedding.weight": _same(encoder.embeddings.word_embeddings)}
    for i, layer in enumerate(encoder.encoder_layers):
        attention, inside = layer.attention, f"layer.{i}.rel_attn"
        for theirs, ours in _BIASES.items():
            slots[f"{inside}.{theirs}"] = _same(getattr(attention.biases, ours))
        slots[f"{inside}.seg_embed"] = _same(attention.segment_embeddings)
        slots |= {f"{inside}.{name}": slot for name, slot in _attention(layer, "{}").items()}
        for name, part in (
            (f"{inside}.layer_norm", layer.attention_norm),
            (f"layer.{i}.ff.layer_norm", layer.output_norm),
        ):
            slots[f"{name}.weight"], slots[f"{name}.bias"] = _same(part.gamma), _same(part.beta)
        for name, part in (("layer_1", layer.intermediate), ("layer_2", layer.output_dense)):
            shape = tuple(part.kernel.shape)[::-1]  # torch's linear layers hold [out, in]
            slots[f"layer.{i}.ff.{name}.weight"] = Slot((part.kernel,), shape, transposed=True)
            slots[f"layer.{i}.ff.{name}.bias"] = _same(part.bias)
    slots = {prefix + name: slot for name, slot in slots.items()}
    if head is not None:
        slots["lm_loss.bias"] = _same(head.output_bias)
        shape = (1, 1, encoder.config.hidden_size)
        slots[f"{prefix}mask_emb"] = Slot((head.mask_embedding,), shape)
    return slots


def _same(variable: tf.Variable) -> Slot:
    return Slot((variable,), tuple(variable.shape))


def _attention(layer, pattern: str) -> dict[str, Slot]:
    """The kernels, [D, N, H] in both formats, also that of the output."""
    config = layer.attention.config
    shape = (config.hidden_size, config.num_attention_heads, config.head_size)
    slots = {
        pattern.format(theirs): Slot((getattr(layer.attention, ours),), shape)
        for theirs, ours in _KERNELS.items()
    }
    output = Slot((layer.attention.output_kernel,), shape, transposed=True)
    return {**slots, pattern.format("o"): output}
