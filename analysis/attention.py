"""Measures where attention and convolution kernels look, on the texts of a task.

    convbert attention --model_dir MODEL --task mrpc --data_dir GLUE --output_dir OUT

The measures are those of the ConvBERT supplement (section 1.5: concentration on the diagonal,
Figure 1: averaged maps), by layer and head, with distance, entropy and the convolution's kernels.
Writes attention.json, maps.png and offsets.png, and prints a table.

The texts are the task's first development split, encoded as fine-tuning encodes them, but at most
as long as those of training. Sequences never contain padding: a batch has one length. "Without
special tokens" leaves out [CLS] and [SEP], both as the attending and as the attended token.
Numerators and denominators are summed over everything a number covers (tokens, texts, heads,
layers) before they are divided.
"""

from __future__ import annotations

import convbert.common.startup  # noqa: F401  TensorFlow reads the environment when it is imported

# isort: split
import os
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import compress
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from scipy.special import entr

from convbert.analysis.pictures import panels, save
from convbert.analysis.tables import format_table, parse_arguments
from convbert.common import storage
from convbert.common.errors import InputError, decorating, main_with_clear_errors
from convbert.common.files import write_json
from convbert.data.text.layout import TextLayout
from convbert.data.tokenizers import create_tokenizer
from convbert.data.vocabulary import Vocabulary
from convbert.finetune.declaration import load_task
from convbert.finetune.hparams import resolve_hparams
from convbert.finetune.task_files import read_split, resolve_labels
from convbert.model import Backbone, EncoderConfig
from convbert.model.modern.config import ModernConfig
from convbert.model.xlnet.config import XLNetConfig
from convbert.serving.load import load_model_directory

WINDOW = 4  # |i - j| <= 4 is near
PUBLISHED = {"BERT": 0.941, "ConvBERT": 0.608}  # C on MRPC: Table 4 of the supplement
_TOKENS_PER_BATCH = 2048
_DRAWN, _OFFSETS = 3, 16  # the figures: texts, and the largest offset


class Maps(NamedTuple):
    """The weights with which an encoder mixes B texts of one length, float32, of each layer."""

    # [B, N, S, S]: from axis 2 to 3; NaN in a layer without attention; [] if all are.
    attention: list[np.ndarray]
    kernels: list[np.ndarray]  # [B, S, N, K]; [] without predicted kernels


def maps_of(encoder: Backbone, ids: np.ndarray, segment_ids: np.ndarray) -> Maps:
    """Runs an encoder on texts int32 [B, S] without padding.

    InputError for a backbone of a plug-in, and for one that predicts no weights at all.
    """
    config = encoder.config
    if not isinstance(config, (EncoderConfig, XLNetConfig, ModernConfig)):
        raise InputError(f"attention of the architecture {config.architecture} is not supported")
    features = {"input_ids": tf.constant(ids), "segment_ids": tf.constant(segment_ids)}
    features["input_mask"] = tf.ones_like(features["input_ids"])
    kernels = {} if isinstance(config, XLNetConfig) else {"output_kernels": True}
    output = encoder(features, output_attentions=True, **kernels)
    maps = Maps(*([x.numpy() for x in per_layer] for per_layer in output[-2:]))
    if isinstance(config, ModernConfig) and config.token_mixer == "gated_convolution":
        for i in range(config.num_hidden_layers):
            if not config.is_global(i):
                maps.attention.insert(i, np.full_like(maps.attention[0], np.nan))
    if not any(maps):
        raise InputError("an encoder of only static convolution has no weights that depend on text")
    return maps


def kernel_offsets(config: EncoderConfig | ModernConfig) -> np.ndarray:
    """Returns the offset of each tap's token from the token in the middle: int64 [K]."""
    K = config.conv_kernel_size
    return np.arange(K) - (K - 1 if config.causal else (K - 1) // 2)


def by_offset(attention: np.ndarray) -> np.ndarray:
    """Sums weights [..., S, S] of equal offset, from 1 - S to S - 1: [..., 2S - 1].

    The offset is that of the attended token from the attending one.
    """
    S = attention.shape[-1]
    diagonals = [np.trace(attention, offset, -2, -1) for offset in range(1 - S, S)]
    return np.stack(diagonals, -1)


def concentration(weights: np.ndarray) -> np.ndarray:
    """Computes C, weight within `WINDOW` over weight beyond it, of `by_offset`: [...]."""
    near = np.abs(_offsets(weights)) <= WINDOW
    with np.errstate(divide="ignore", invalid="ignore"):
        return weights[..., near].sum(-1) / weights[..., ~near].sum(-1)


def mean_distance(weights: np.ndarray) -> np.ndarray:
    """Computes the mean of |offset|, weighted by `weights` of `by_offset`: [...]."""
    return weights @ np.abs(_offsets(weights)) / weights.sum(-1)


def _offsets(weights: np.ndarray) -> np.ndarray:
    longest = weights.shape[-1] // 2
    return np.arange(-longest, longest + 1)


def attention_sums(
    attention: np.ndarray, special: np.ndarray, longest: int
) -> dict[str, np.ndarray]:
    """Sums over a batch of texts of one length, for each head.

    Args:
        attention: [B, N, S, S].
        special: bool [B, S], True for special tokens.
        longest: the length to which offsets are padded, so that batches add up.

    Returns:
        `all` and `without_special`, see `by_offset`: [N, 2 longest - 1]; and over the attending
        tokens, [N]: `entropy` in nats, and `to_special`, weight on special tokens.
    """
    attention = attention.astype(np.float64)
    ordinary = ~special[:, None, :]
    pairs = ordinary[..., None] & ordinary[..., None, :]  # [B, 1, S, S]
    padding = [(0, 0), (longest - attention.shape[-1],) * 2]
    return {
        "all": np.pad(by_offset(attention.sum(0)), padding),
        "without_special": np.pad(by_offset((attention * pairs).sum(0)), padding),
        "entropy": entr(attention).sum((0, 2, 3)),
        "to_special": (attention * special[:, None, None, :]).sum((0, 2, 3)),
    }


class Sample(NamedTuple):
    """A model and the encoded texts of a task."""

    encoder: Backbone
    vocabulary: Vocabulary
    sequences: list[tuple[np.ndarray, np.ndarray]]  # ids and segments, int32 [S]
    about: dict[str, Any]  # the first fields of attention.json

    def batches(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yields ids and segments int32 [B, S], of one length each, the shortest first."""
        lengths = np.array([len(ids) for ids, _ in self.sequences])
        for S in np.unique(lengths):
            own = [self.sequences[i] for i in np.flatnonzero(lengths == S)]
            size = max(1, _TOKENS_PER_BATCH // int(S))
            for start in range(0, len(own), size):
                ids, segment_ids = zip(*own[start : start + size])
                yield np.stack(ids), np.stack(segment_ids)


def load_sample(
    model_dir: str, task_name: str, data_dir: str, max_examples: int | None = None
) -> Sample:
    """Loads a model, and the first `max_examples` of a task's first development split."""
    if max_examples is not None and max_examples < 1:
        raise InputError(f"`max_examples` should be at least 1. Received: {max_examples}")
    model = load_model_directory(model_dir)
    task = resolve_labels(load_task(task_name), data_dir)
    # At positions that training never saw, attention says nothing of the model.
    length = min(task.plugin.defaults["max_seq_length"], model.max_seq_length)
    fitting = {"max_seq_length": length}
    if asked := getattr(task.plugin.hparams, "max_query_length", 0):  # of questions about a text
        fitting["max_query_length"] = min(asked, length // 2)
    hparams = resolve_hparams(fitting, task, model.config)
    examples = read_split(task, data_dir, task.dev[0])[:max_examples]
    layout = TextLayout(create_tokenizer(model.vocabulary), length)
    encoded = task.plugin.encode(task, examples, layout, hparams)
    places = encoded.row_splits[1:-1]
    columns = (np.split(encoded.tokens[of], places) for of in ("input_ids", "segment_ids"))
    exists = encoded.sequences.get("present", np.ones(len(encoded.lengths)))  # of options
    about: dict[str, Any] = {"model_dir": storage.abspath(model_dir), "task": task.name}
    about |= {"split": task.dev[0], "max_seq_length": length, "truncated": encoded.truncated}
    return Sample(model.networks[0], model.vocabulary, [*compress(zip(*columns), exists)], about)


def measure(
    model_dir: str, task: str, data_dir: str, max_examples: int | None = None
) -> dict[str, Any]:
    """Measures a model on the first `max_examples` of a task's first development split.

    Returns the content of attention.json, see docs/reference.md. Measures by head have `all`,
    `by_layer` and `by_head`, such as `["concentration"]["all"]`; None where undefined. InputError
    for an architecture that is not supported.
    """
    return measures(load_sample(model_dir, task, data_dir, max_examples))


def concentration_scores(
    model_dir: str, data_dir: str, task: str = "mrpc", max_examples: int | None = None
) -> dict[str, float]:
    """Returns C of all layers and heads, also without special tokens and of uniform attention."""
    found = measures(load_sample(model_dir, task, data_dir, max_examples), kernels=False)
    kinds = ("concentration", "concentration_without_special", "concentration_uniform")
    values = {name: found[name]["all"] for name in kinds if name in found}
    return values | {"mean length": found["lengths"]["mean"], "truncated": found["truncated"]}


def measures(sample: Sample, kernels: bool = True) -> dict[str, Any]:
    """Computes all measures of `measure`, those of kernels if wanted."""
    lengths = np.array([len(ids) for ids, _ in sample.sequences])
    total: dict[int, Any] = defaultdict(Counter)  # of each layer
    uniform: Any = Counter()
    for ids, segment_ids in sample.batches():
        maps = maps_of(sample.encoder, ids, segment_ids)
        special = np.isin(ids, (sample.vocabulary.cls_id, sample.vocabulary.sep_id))
        for i, layer in enumerate(maps.attention):
            total[i].update(attention_sums(layer, special, lengths.max()))
        alike = _uniform(ids, getattr(sample.encoder.config, "causal", False))
        uniform.update(attention_sums(alike, special, lengths.max()))
    numbers = {"mean": lengths.mean(), "shortest": lengths.min(), "longest": lengths.max()}
    result = {
        **sample.about,
        "examples": len(lengths),
        "lengths": {name: round(float(value), 2) for name, value in numbers.items()},
        "window": WINDOW,
        "published_concentration": PUBLISHED,
    }
    if total:
        sums = {name: np.stack([layer[name] for layer in total.values()]) for name in uniform}
        result |= _attention_measures(sums, uniform, lengths)
    if kernels and maps.kernels:
        result["kernels"] = _kernel_measures(sample)
    return result


def _uniform(ids: np.ndarray, causal: bool) -> np.ndarray:
    """Returns attention that is the same for all tokens in sight: [B, 1, S, S] for [B, S]."""
    B, S = ids.shape
    seen = np.tril(np.ones([S, S])) if causal else np.ones([S, S])
    return np.tile(seen / seen.sum(-1, keepdims=True), [B, 1, 1, 1])


def _attention_measures(
    sums: dict[str, np.ndarray], uniform: Any, lengths: np.ndarray
) -> dict[str, Any]:
    """Returns the measures from `attention_sums` [L, N, ...], and C of uniform attention."""
    queries = lengths.sum()
    shown = np.abs(_offsets(sums["all"])) <= _OFFSETS
    return {
        "concentration": _levels(sums["all"], concentration),
        "concentration_without_special": _levels(sums["without_special"], concentration),
        "concentration_uniform": {
            name: _plain(concentration(uniform[name][0])) for name in ("all", "without_special")
        },
        "distance": _levels(sums["all"], mean_distance),
        "entropy": _levels(sums["entropy"] / queries),
        "log_n": _plain(lengths @ np.log(lengths) / queries),
        "to_special": _levels(sums["to_special"] / queries),
        "offsets": _plain(_offsets(sums["all"])[shown]),
        "share_by_offset": _levels(sums["all"][..., shown] / queries),
    }


def _kernel_measures(sample: Sample) -> dict[str, Any]:
    """Returns the measures of kernels, which are made again for each: all of them may not fit."""

    def mean_of(function: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """Means over texts and tokens of a function of kernels [L, B, S, N, K]."""
        total, count = np.zeros(1), 0
        for ids, segment_ids in sample.batches():
            kernels = np.stack(maps_of(sample.encoder, ids, segment_ids).kernels)
            total = total + function(kernels.astype(np.float64)).sum((1, 2))
            count += ids.size
        return total / count

    def differences(kernels: np.ndarray) -> np.ndarray:
        """Squares of what differs from the mean, and half the sum of its absolute values."""
        apart = np.abs(kernels - mean[:, None, None])
        return np.concatenate([apart**2, apart.sum(-1, keepdims=True) / 2], -1)

    mean = mean_of(lambda kernels: kernels)  # [L, N, K]
    apart = mean_of(differences)
    return {
        "offsets": _plain(kernel_offsets(sample.encoder.config)),
        "mean": _levels(mean),
        "deviation": _levels(apart[..., :-1] ** 0.5),
        "total_variation": _levels(apart[..., -1]),
    }


def _levels(values: np.ndarray, measure_of: Callable = np.asarray) -> dict[str, Any]:
    """Measures means of [L, N, ...] over layers and heads, over heads, and each head."""
    with warnings.catch_warnings():  # about layers without attention
        warnings.simplefilter("ignore")
        means = {"all": np.nanmean(values, (0, 1)), "by_layer": np.nanmean(values, 1)}
    means["by_head"] = values
    return {name: _plain(measure_of(value)) for name, value in means.items()}


def _plain(values: Any) -> Any:
    """Returns numbers for JSON; None for those that are not finite."""
    plain = np.asarray(values).astype(object)
    plain[~np.isfinite(np.asarray(values))] = None
    return plain.tolist()


def summary(result: dict[str, Any]) -> str:
    """Formats the measures of `measure`: a row for each layer and for all, and what to compare."""
    kernels = result.get("kernels", {})
    columns = {
        "C": result.get("concentration"),
        "C without special": result.get("concentration_without_special"),
        "distance": result.get("distance"),
        "entropy": result.get("entropy"),
        "share to special": result.get("to_special"),
        "kernels' total variation": kernels.get("total_variation"),
    }
    columns = {name: column for name, column in columns.items() if column}
    values = zip(*([*column["by_layer"], column["all"]] for column in columns.values()))
    rows = [[str(number), *map(_cell, row)] for number, row in enumerate(values, 1)]
    rows[-1][0] = "all"
    lengths, lines = result["lengths"], [format_table(["layer", *columns], rows), ""]
    if "concentration" in result:
        alike = map(_cell, (*result["concentration_uniform"].values(), result["log_n"]))
        lines.append("uniform attention: C {}, without special {}; entropy {}".format(*alike))
        published = ", ".join(f"{name} {value}" for name, value in PUBLISHED.items())
        lines.append(f"published C on MRPC, lengths not stated: {published}")
    lines.append(
        f"{result['task']} {result['split']}: {result['examples']} texts of {lengths['mean']:.1f}"
        f" tokens on average, {lengths['shortest']:g} to {lengths['longest']:g};"
        f" {result['truncated']} truncated to {result['max_seq_length']}"
    )
    return "\n".join(lines)


def _cell(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.3f}"


def draw_maps(sample: Sample, path: str) -> None:
    """Draws the first texts' attention, averaged over layers and heads, as Figure 1."""
    figure, places = panels(1, len(sample.sequences[:_DRAWN]), 6, 6.5)
    for panel, (ids, segment_ids) in zip(places[0], sample.sequences):
        maps = maps_of(sample.encoder, ids[None], segment_ids[None])
        mean = np.nanmean([layer[0].mean(0) for layer in maps.attention], 0)  # [S, S]
        pieces = [sample.vocabulary.tokens[i].replace("$", r"\$") for i in ids]
        panel.imshow(np.sqrt(mean), cmap="viridis")  # the root shows small weights, too
        panel.set_xticks(range(len(pieces)), pieces, rotation=90, fontsize=5)
        panel.set_yticks(range(len(pieces)), pieces, fontsize=5)
        panel.set_title(f"C = {_cell(_plain(concentration(by_offset(mean))))}", fontsize=9)
    save(figure, path)


def draw_offsets(result: dict[str, Any], path: str) -> None:
    """Draws each layer's mean weights by offset, of attention and of kernels."""
    kernels = result.get("kernels", {})
    drawn = {
        "attention": (result.get("offsets"), result.get("share_by_offset")),
        "kernels": (kernels.get("offsets"), kernels.get("mean")),
    }
    drawn = {name: values for name, values in drawn.items() if values[0]}
    figure, places = panels(1, len(drawn), 6, 4)
    for panel, (name, (offsets, values)) in zip(places[0], drawn.items()):
        for i, layer in enumerate(values["by_layer"]):
            if layer[0] is not None:
                panel.plot(offsets, layer, marker=".", label=f"layer {i + 1}")
        panel.set(xlabel="offset of the other token", ylabel="mean weight", title=name)
        panel.legend(fontsize=7)
    save(figure, path)


def main(argv: list[str]) -> None:
    """Measures, writes the files and prints the table."""
    arguments = parse_arguments(
        argv,
        model_dir={"required": True, "help": "model directory, pre-trained or fine-tuned"},
        task={"default": "mrpc", "help": "name of a task, or its JSON file (default: mrpc)"},
        data_dir={"default": "", "help": "folder of the tasks' files, or tfds"},
        output_dir={"required": True, "help": "folder for attention.json and pictures"},
        max_examples={"type": int, "help": "number of texts, the first ones (default: all)"},
    )
    where = (arguments.task, arguments.data_dir, arguments.max_examples)
    sample = load_sample(arguments.model_dir, *where)
    result, folder = measures(sample), arguments.output_dir
    storage.makedirs(folder)
    write_json(os.path.join(folder, "attention.json"), result)
    print(summary(result))
    with decorating("the pictures"):
        if "concentration" in result:
            draw_maps(sample, os.path.join(folder, "maps.png"))
        draw_offsets(result, os.path.join(folder, "offsets.png"))


if __name__ == "__main__":
    main_with_clear_errors(main, takes_arguments=True)(["attention", *sys.argv[1:]])
