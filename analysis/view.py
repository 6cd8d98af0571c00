"""Writes a page to look inside a model: attention, convolution kernels, replaced tokens, one text.

    convbert view --model_dir MODEL --text "The cat sat on the mat." --output page.html
    convbert view --model_dir MODEL --compare OTHER --text "..." --text_b "..." --output page.html

The page (analysis/view.html) is one file that needs no network and runs in any browser. Weights are
bytes, round(255 w), so they equal those of a forward pass within 1/255. The same input gives the
same bytes. See docs/reference.md for what it shows.
"""

from __future__ import annotations

import convbert.common.startup  # noqa: F401  TensorFlow reads the environment when it is imported

# isort: split
import base64
import hashlib
import html
import json
import pathlib
import re
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from convbert.analysis.attention import (
    attention_sums,
    concentration,
    kernel_offsets,
    maps_of,
    mean_distance,
)
from convbert.analysis.tables import parse_arguments
from convbert.common.errors import InputError, main_with_clear_errors, warn
from convbert.common.files import is_unicode, write_text
from convbert.common.settings import present
from convbert.data.text.layout import TextLayout, padded
from convbert.data.tokenizers import create_tokenizer
from convbert.pretrain.objectives.base import MASKED_TOKENS, REPLACED_TOKENS
from convbert.serving.load import ServedModel, load_model_directory

_TEMPLATE = pathlib.Path(__file__).with_name("view.html")
_CANDIDATES = 5
_MASKED_AT_ONCE = 32  # sequences
_REPLACED = 0.5  # the summary lists tokens above


def packed(layers: Sequence[np.ndarray]) -> str | None:
    """Packs weights in [0, 1] of each layer as base64 of bytes; None for no layers."""
    if not len(layers):
        return None
    numbers = np.rint(np.nan_to_num(np.stack(layers)) * 255).astype(np.uint8)
    return base64.b64encode(numbers.tobytes()).decode()


def look(model_dir: str, text: str, text_b: str | None = None) -> dict[str, Any]:
    """Runs a model on a text or a pair; returns what the page knows of the model, for JSON.

    `attention` is `packed` [L, N, S, S], `kernels` [L, N, S, K]; `distance` is [L][N], of attention
    (None in layers without any) or else of kernels; `replaced` [S] and `candidates` [S][5] (token,
    probability) are None where the model lacks the networks. InputError for an empty text.
    """
    for name, given in (("text", text), ("text_b", text_b)):
        if given is not None and not (is_unicode(given) and given.strip()):
            raise InputError(f"`{name}` should be a non-empty text. Received: {given!r:.60}")
    model = load_model_directory(model_dir)
    layout = TextLayout(create_tokenizer(model.vocabulary), model.max_seq_length)
    pair = (tf.constant([text]), None if text_b is None else tf.constant([text_b]))
    sequences = layout.single(pair[0]) if pair[1] is None else layout.pair(*pair)
    features = padded(sequences.ids, sequences.segment_ids)
    ids = features["input_ids"].numpy()
    special = np.isin(ids, (model.vocabulary.cls_id, model.vocabulary.sep_id))
    maps = maps_of(model.networks[0], ids, features["segment_ids"].numpy())
    kernels = [layer[0].transpose(1, 0, 2) for layer in maps.kernels]  # [N, S, K]
    taps = kernel_offsets(model.config) if kernels else np.zeros(0, int)
    sums = [attention_sums(layer, special, ids.size) for layer in maps.attention]
    distance = [mean_distance(own["all"]) for own in sums]
    distance = distance or [(layer @ np.abs(taps)).mean(1) for layer in kernels]
    objective = getattr(model.hparams, "objective", None)
    return {
        "name": model_dir.rstrip("/"),
        "trained": objective.name if objective else f"fine-tuned on {present(model.task).name}",
        "tokens": [model.vocabulary.tokens[i] for i in ids[0]],
        "special": special[0].tolist(),
        "layers": len(distance),
        "heads": len(distance[0]),
        "taps": taps.tolist(),
        "distance": [[_finite(head) for head in layer] for layer in distance],
        "concentration": [
            [_finite(concentration(own[name].sum(0))) for name in ("all", "without_special")]
            for own in sums
        ],
        "attention": packed([layer[0] for layer in maps.attention]),
        "kernels": packed(kernels),
        "replaced": _replaced(model, features),
        "candidates": _candidates(model, features, ~special[0]),
        "truncated": bool(sequences.truncated[0]),
    }


def _finite(value: np.ndarray) -> float | None:
    return round(float(value), 3) if np.isfinite(value) else None


def _replaced(model: ServedModel, features: dict[str, tf.Tensor]) -> list[float] | None:
    """Returns the probability that each token was replaced, [S]."""
    if (function := model.functions.get(present(REPLACED_TOKENS.function))) is None:
        return None
    logits = function.compute({name: features[name] for name in function.inputs})["logits"]
    return np.round(tf.sigmoid(logits)[0].numpy().astype(float), 3).tolist()


def _candidates(
    model: ServedModel, features: dict[str, tf.Tensor], ordinary: np.ndarray
) -> list[list[tuple[str, float]]] | None:
    """Returns the most probable tokens for each place, masked alone; [] for special tokens."""
    if (function := model.functions.get(present(MASKED_TOKENS.function))) is None:
        return None
    tokens, places = model.vocabulary.tokens, np.flatnonzero(ordinary)
    found: list[list[tuple[str, float]]] = [[] for _ in ordinary]
    for start in range(0, len(places), _MASKED_AT_ONCE):
        own = places[start : start + _MASKED_AT_ONCE]
        batch = {name: np.repeat(value, len(own), 0) for name, value in features.items()}
        batch["input_ids"][np.arange(len(own)), own] = model.vocabulary.mask_id
        batch["positions"] = own[:, None].astype(np.int32)
        answers = function.compute({name: tf.constant(batch[name]) for name in function.inputs})
        both = (answers[name].numpy()[:, 0, :_CANDIDATES] for name in ("candidates", "shares"))
        for place, ids, shares in zip(own, *both):
            found[place] = [(tokens[i], round(float(p), 3)) for i, p in zip(ids, shares)]
    return found


def page(models: Sequence[dict[str, Any]]) -> str:
    """Returns the page of one or two results of `look`."""
    template = _TEMPLATE.read_text(encoding="utf-8")
    policy = "default-src 'none'; base-uri 'none'; form-action 'none'"
    for kind in ("script", "style"):
        source = present(re.search(f"<{kind}>(.*?)</{kind}>", template, re.S))[1]
        digest = base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
        policy += f"; {kind}-src 'sha256-{digest}'"
    values = {
        "policy": policy,
        "title": html.escape("Inside " + " and ".join(model["name"] for model in models)),
        "summary": "\n".join(map(_summary, models)),
        # Or a token could end the element that holds the data.
        "data": json.dumps(models, separators=(",", ":")).replace("<", "\\u003c"),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda found: values[found[1]], template)


def _summary(model: dict[str, Any]) -> str:
    """Returns what the page says without JavaScript, as HTML."""
    layers = model["distance"]  # None in those without attention
    columns = {
        "mean distance": ["undefined" if None in row else f"{np.mean(row):.2f}" for row in layers]
    }
    for place, name in enumerate(("C", "C without special tokens")):
        cells = [row[place] for row in model["concentration"]]
        columns[name] = ["undefined" if cell is None else f"{cell:.3f}" for cell in cells]
    columns = {name: cells for name, cells in columns.items() if cells}
    head = "".join(f'<th scope="col">{name}</th>' for name in ("layer", *columns))
    rows = "".join(
        f'<tr><th scope="row">{i}</th>{"".join(f"<td>{cell}</td>" for cell in row)}</tr>'
        for i, row in enumerate(zip(*columns.values()), 1)
    )
    parts = [f"<h3>{html.escape(model['name'])}</h3>"]
    parts.append(f"<p>{html.escape(' '.join(model['tokens']))}</p>")
    parts.append(f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>")
    if model["replaced"] is not None:
        pairs = zip(model["tokens"], model["replaced"])
        listed = [f"{html.escape(token)} ({p:.2f})" for token, p in pairs if p > _REPLACED]
        parts.append(f"<p>Probably replaced: {', '.join(listed) or 'no token'}.</p>")
    return "\n".join(parts)


def main(argv: list[str]) -> None:
    """Writes the page."""
    arguments = parse_arguments(
        argv,
        model_dir={"required": True, "help": "model directory"},
        compare={"help": "another model directory, shown beside it"},
        text={"required": True, "help": "text to run the models on"},
        text_b={"help": "second text of a pair"},
        output={"required": True, "help": "HTML file to write"},
    )
    folders = filter(None, (arguments.model_dir, arguments.compare))
    models = [look(folder, arguments.text, arguments.text_b) for folder in folders]
    for model in models:
        if model["truncated"]:
            warn(f"{model['name']}: the text is cut to {len(model['tokens'])} tokens")
    text = page(models)
    write_text(arguments.output, text)
    print(f"{arguments.output}: {len(text.encode()) / 1e6:.1f} MB")


if __name__ == "__main__":
    main_with_clear_errors(main, takes_arguments=True)(["view", *sys.argv[1:]])
