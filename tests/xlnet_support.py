"""XLNets in the formats of others, for tests: tiny, with a small SentencePiece model."""

import json
import pathlib

import numpy as np
from scipy.special import softmax

from convbert.checkpoints.model_directory import Conversion
from convbert.checkpoints.tf1_file import write_checkpoint
from convbert.data.vocabulary import Vocabulary
from convbert.model.xlnet.config import XLNetConfig
from tests.huggingface_support import random_conversion
from tests.model_support import TINY_XLNET
from tests.sentencepiece_support import comma_model

WORDS = Vocabulary.of_model(comma_model())
V = WORDS.size
TINY = TINY_XLNET.replace(vocab_size=V)


def conversion(config: XLNetConfig = TINY) -> Conversion:
    return random_conversion(config, WORDS, objective="permutation_lm")


def original_tensors(config: XLNetConfig = TINY, seed: int = 0) -> dict[str, np.ndarray]:
    """Random tensors under the original's names, as its code makes them (modeling.py)."""
    D, N, L = config.hidden_size, config.num_attention_heads, config.num_hidden_layers
    H, inner, draw = D // N, config.intermediate_size, np.random.default_rng(seed)
    scope = "model/transformer"
    shapes = {
        f"{scope}/word_embedding/lookup_table": (config.vocab_size, D),
        f"{scope}/mask_emb/mask_emb": (1, 1, D),
        **{f"{scope}/r_{which}_bias": (L, N, H) for which in "wrs"},
        f"{scope}/seg_embed": (L, 2, N, H),
        "model/lm_loss/bias": (config.vocab_size,),
    }
    for i in range(L):
        layer = f"{scope}/layer_{i}"
        shapes |= {f"{layer}/rel_attn/{which}/kernel": (D, N, H) for which in "qkvro"}
        for norm in ("rel_attn", "ff"):
            shapes |= {f"{layer}/{norm}/LayerNorm/{part}": (D,) for part in ("gamma", "beta")}
        for name, (inputs, outputs) in (("layer_1", (D, inner)), ("layer_2", (inner, D))):
            shapes[f"{layer}/ff/{name}/kernel"] = (inputs, outputs)
            shapes[f"{layer}/ff/{name}/bias"] = (outputs,)
    return {
        name: draw.normal(1.0 if name.endswith("gamma") else 0.0, 0.4, shape).astype(np.float32)
        for name, shape in shapes.items()
    }


def write_original(folder: pathlib.Path, tensors: dict[str, np.ndarray], **changes) -> str:
    """A folder as XLNet's releases are, of TINY; `changes` are of its `xlnet_config.json`."""
    folder.mkdir(parents=True)
    write_checkpoint(str(folder / "xlnet_model.ckpt"), tensors)
    fields = {"d_head": TINY.head_size, "d_inner": TINY.intermediate_size, "n_token": V}
    fields |= {"d_model": TINY.hidden_size, "n_head": TINY.num_attention_heads}
    fields |= {"n_layer": TINY.num_hidden_layers, "ff_activation": "gelu", "untie_r": True}
    (folder / "xlnet_config.json").write_text(json.dumps(fields | changes))
    (folder / "spiece.model").write_bytes(WORDS.model)
    return str(folder)


def original_output(tensors, config: XLNetConfig, ids, segments, permitted=None, targets=()):
    """The last states of a text by the original's names and equations: [S, D], of queries [P, D].
    `permitted` [S, S] says which token the query of a token may see; `targets` are positions."""
    D, scope = config.hidden_size, "model/transformer"
    S, H = len(ids), D // config.num_attention_heads
    places = S - np.arange(S)[:, None] + np.arange(S)  # [S, S], of i and j
    frequencies = 10000.0 ** -(np.arange(0, D, 2) / D)
    angles = np.arange(S, -S, -1)[:, None] * frequencies
    distances = np.concatenate([np.sin(angles), np.cos(angles)], -1)  # [2 S, D]
    other = (segments[:, None] != segments).astype(int)
    permitted = np.ones([S, S], bool) if permitted is None else permitted
    content, targets = permitted | np.eye(S, dtype=bool), np.asarray(targets, int)
    hidden = tensors[f"{scope}/word_embedding/lookup_table"][ids]
    queries = np.repeat(tensors[f"{scope}/mask_emb/mask_emb"][0], len(targets), 0)
    for i in range(config.num_hidden_layers):
        layer, streams = f"{scope}/layer_{i}", []
        r_w, r_r, r_s = (tensors[f"{scope}/r_{which}_bias"][i] for which in "wrs")
        k, v, r = (
            np.einsum("sd,dnh->snh", inputs, tensors[f"{layer}/rel_attn/{name}/kernel"])
            for name, inputs in (("k", hidden), ("v", hidden), ("r", distances))
        )
        both = (hidden, np.arange(S), content), (queries, targets, permitted[targets])
        for states, at, seen in both:
            q = np.einsum("sd,dnh->snh", states, tensors[f"{layer}/rel_attn/q/kernel"])
            scores = np.einsum("inh,jnh->nij", q + r_w, k)
            scores += np.einsum("inh,ijnh->nij", q + r_r, r[places[at]])
            of_segments = np.einsum("inh,snh->nis", q + r_s, tensors[f"{scope}/seg_embed"][i])
            scores += np.where(other[at], of_segments[..., 1:], of_segments[..., :1])
            weights = softmax(np.where(seen, scores / H**0.5, -np.inf), -1)
            context = np.einsum("nij,jnh->inh", weights, v)
            output = np.einsum("inh,dnh->id", context, tensors[f"{layer}/rel_attn/o/kernel"])
            y = _norm(states + output, tensors, f"{layer}/rel_attn/LayerNorm")
            x = y @ tensors[f"{layer}/ff/layer_1/kernel"] + tensors[f"{layer}/ff/layer_1/bias"]
            x = 0.5 * x * (1.0 + np.tanh((2.0 / np.pi) ** 0.5 * (x + 0.044715 * x**3)))
            x = x @ tensors[f"{layer}/ff/layer_2/kernel"] + tensors[f"{layer}/ff/layer_2/bias"]
            streams.append(_norm(y + x, tensors, f"{layer}/ff/LayerNorm"))
        hidden, queries = streams
    return hidden, queries


def _norm(x, tensors, name):
    centered = x - x.mean(-1, keepdims=True)
    deviation = np.sqrt((centered**2).mean(-1, keepdims=True) + 1e-12)
    return centered / deviation * tensors[f"{name}/gamma"] + tensors[f"{name}/beta"]
