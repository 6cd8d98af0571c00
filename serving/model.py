"""Models in Python programs and notebooks: texts to arrays; see `convbert`."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import tensorflow as tf

import plugins as plugin_files
import storage
from errors import InputError
from files import as_path
from serving.answers import Answers
from serving.client import COUNTS, Client, length, load_saved_model, without_padding
from serving.description import DESCRIPTION, inputs_of, read_description
from serving.export import describe
from serving.litert import litert_file
from serving.litert_model import load_signatures
from serving.load import PRETRAINING, signatures
from serving.load import load as load_model_directory
from serving.metrics import Evaluation, evaluate, progress_bar
from serving.records import WORD_LIST, Record
from serving.rows import are_words, is_one_row, records
from signatures.signature import Signature

# Of one request: the model's graph divides it by tokens; see `signatures.parts`.
_CHARACTERS, _ROWS = 2**16, 2048
_PRECISIONS = ("float32", "mixed_bfloat16")
_DECODED = np.frompyfunc(bytes.decode, 1, 1)
Ask = Callable[..., dict[str, tf.Tensor]]  # from inputs by name to outputs by name
_METHODS = {"masked_tokens": "fill_mask", "replaced_tokens": "replaced"}
_NEEDS = {
    "predict": "a model fine-tuned on a task",
    "replaced_tokens": "a pre-trained model with a discriminator or self-critic",
    "masked_tokens": "a pre-trained masked language model, generator or self-critic",
    "continue_text": "a pre-trained causal language model, not in LiteRT",
    "score": "a pre-trained model with the head of its objective",
}


class Model:
    """A model that answers about texts. Made by `load`.

    Wherever `texts` are wanted, a list, array, Series or other iterable of texts will do, and gets
    `Answers`; a single text gets a single answer. Where the model takes several texts at once, a
    row is a tuple of them in the order of `inputs()`, or a mapping, and a DataFrame has a column
    for each. Texts of similar length share a batch, whatever their order. `progress` shows a bar:
    by default in a terminal or notebook, when it takes longer than two seconds.

    All methods raise InputError for texts of wrong types, for none, and where the model lacks what
    the method needs.

    Attributes:
        description: what docs/serving.md says of `model.json`.
    """

    def __init__(self, description: dict[str, Any], ask: dict[str, Callable[[], Ask]], kept: Any):
        """`ask` has a graph for each signature, made when asked; `kept` its weights."""
        self.description = description
        self._ask, self._kept = ask, kept
        self._asked: dict[str, Ask] = {}

    def __repr__(self) -> str:
        return f"<{self.kind} model; signatures: {', '.join(self.signatures)}>"

    @property
    def kind(self) -> str:
        """The kind of its task, or "pretraining"."""
        return self.description["kind"]

    @property
    def labels(self) -> list[str]:
        """The labels of its task, in the order of `probabilities`; [] without any."""
        return list(self.description["labels"])

    @property
    def signatures(self) -> list[str]:
        """What `ask` can ask of texts."""
        found = self.description["signatures"].items()
        return [name for name, item in found if "input_ids" not in item["inputs"]]

    def inputs(self, signature: str = "serving_default") -> list[str]:
        """The names of the texts that a signature takes, in the order of tuples."""
        return list(inputs_of(self.description, signature).names)

    def embed(
        self, texts: Any, *, pooling: str = "mean", progress: bool | None = None
    ) -> np.ndarray:
        """Vectors of texts, float32 [n, D]; of a single text [D].

        Args:
            texts: see the class.
            pooling: "mean" of the last layer's hidden states; or "pooled", the vector that heads
                of fine-tuned models read, such as that of [CLS].
            progress: see the class.
        """
        if pooling not in ("mean", "pooled"):
            raise InputError(f"`pooling` should be mean or pooled. Received: {pooling!r}")
        found = self.ask("embeddings", texts, only=(pooling,), progress=progress)
        return getattr(found, pooling)

    def predict(self, texts: Any, *, progress: bool | None = None) -> Any:
        """What a fine-tuned model says of texts; the fields are in docs/serving.md, "Signatures".

        Args:
            texts: see the class; of taggers texts, or lists of words.
            progress: see the class.
        """
        if self.kind == PRETRAINING:
            raise self._lacking("predict")
        signature = "serving_default"
        if not isinstance(texts, (str, bytes, Mapping, tuple, np.ndarray, pd.Series, pd.DataFrame)):
            texts = list(texts) if np.iterable(texts) else texts
        if WORD_LIST in self.description["signatures"]:
            words = inputs_of(self.description, WORD_LIST)
            signature = WORD_LIST if are_words(texts, words) else signature
        return self.ask(signature, texts, progress=progress)

    def fill_mask(self, texts: Any, *, progress: bool | None = None) -> Any:
        """The ten most probable pieces for each [MASK]: `candidates`, `probabilities`."""
        return self.ask("masked_tokens", texts, progress=progress)

    def replaced(self, texts: Any, *, progress: bool | None = None) -> Any:
        """`pieces` of texts and the `probabilities` that each was replaced."""
        return self.ask("replaced_tokens", texts, progress=progress)

    def score(self, texts: Any, *, progress: bool | None = None) -> Any:
        """How natural texts are: `score`, a log-probability, with `num_pieces`, `num_words`."""
        return self.ask("score", texts, progress=progress)

    def continue_text(self, texts: Any, *, progress: bool | None = None, **options: Any) -> Any:
        """What a causal language model writes after texts: `continuation`, `pieces`, `log_probs`.

        Options: num_tokens, temperature, top_k, top_p, seed; see docs/serving.md.
        """
        return self.ask("continue_text", texts, options=options, progress=progress)

    def evaluate(
        self,
        data: str | os.PathLike | pd.DataFrame,
        *,
        metrics: list[str] | None = None,
        bootstrap: int = 0,
        progress: bool | None = None,
    ) -> Evaluation:
        """Scores on a labelled file or table; see `serving.metrics.evaluate`."""
        return evaluate(self, data, metrics=metrics, bootstrap=bootstrap, progress=progress)

    def ask(
        self,
        signature: str,
        texts: Any,
        *,
        options: dict[str, Any] | None = None,
        only: Sequence[str] | None = None,
        progress: bool | None = None,
    ) -> Any:
        """Asks a signature by name.

        Args:
            signature: one of `signatures`.
            texts: see the class.
            options: of the signature, by name; the same for all texts.
            only: names of the outputs that are wanted; by default all.
            progress: see the class.

        Returns:
            `Answers`; of a single text one answer, with the signature's outputs as fields, without
            padding.
        """
        if signature not in self.signatures:
            raise self._lacking(signature)
        if signature not in self._asked:
            self._asked[signature] = self._ask[signature]()
        client = Client(self.description, signature, self._asked[signature], options)
        names = [name for name in client.outputs if name not in client.lengths]
        if only is not None:
            names = [_checked_name(name, names) for name in only]
            if not names:
                raise InputError("`only` should name at least one output. Received: none")
        one = is_one_row(texts, client.inputs)
        asked = records([texts] if one else texts, client.inputs)
        found: dict[str, list] = {name: [] for name in names}
        requests = list(_requests(asked))
        with progress_bar(None, progress, " texts", total=len(asked)) as bar:
            for numbers in requests:
                outputs = client.ask([asked[number] for number in numbers])
                for name in names:
                    found[name].append(_rows(outputs, name, client.outputs[name].axes[1:]))
                bar.update(len(numbers))
        back = np.argsort(np.concatenate(requests))
        columns = {name: _in_order(parts, back) for name, parts in found.items()}
        of_labels = [name for name in names if client.outputs[name].axes[1:] == ("L",)]
        index = texts.index if isinstance(texts, (pd.Series, pd.DataFrame)) else None
        answers = Answers(columns, self.labels, of_labels, index)
        return answers[0] if one else answers

    def _lacking(self, what: str) -> InputError:
        has = f"This is a model of kind {self.kind}, with {', '.join(self.signatures)}"
        if what in _NEEDS:
            return InputError(f"{_METHODS.get(what, what)} needs {_NEEDS[what]}. {has}")
        return InputError(f"`signature` should be one of the model's. {has}. Received: {what!r}")


def load(
    path: str | os.PathLike,
    *,
    plugins: Sequence[str] = (),
    max_seq_length: int | None = None,
    precision: str | None = None,
    scoring_method: str | None = None,
) -> Model:
    """Loads a model that answers about texts.

    Args:
        path: a model directory of run_pretraining.py, run_finetuning.py or checkpoints.convert, or
            a folder of fine-tuned runs, of which the best is taken; or what export_savedmodel.py
            wrote: the folder of a SavedModel, or a LiteRT file or its folder.
        plugins: Python files or modules to import first.
        max_seq_length: of a model directory; by default as in training. An exported model has its
            own, and so of all below.
        precision: "float32" (the default) or "mixed_bfloat16".
        scoring_method: of `Model.score`; see docs/scoring.md.

    Raises:
        InputError: there is no model, or the arguments do not fit it.
    """
    path = as_path("path", path)
    if plugins:
        plugin_files.load([plugins] if isinstance(plugins, str) else plugins)
    if precision not in (None, *_PRECISIONS):
        known = " or ".join(_PRECISIONS)
        raise InputError(f"`precision` should be {known}. Received: {precision!r}")
    settings = {"max_seq_length": max_seq_length, "precision": precision}
    settings = {**settings, "scoring_method": scoring_method}
    given = {name: value for name, value in settings.items() if value is not None}
    tflite = litert_file(path)
    if not tflite and not storage.exists(os.path.join(path, DESCRIPTION)):
        model = load_model_directory(path, **given)
        asked = signatures(model)
        return Model(describe(model, asked, path), _traced_later(asked), model)
    if given:
        raise InputError(
            f"{path}: {', '.join(given)} of an exported model should be said when it is exported"
        )
    description = read_description(path)
    if tflite:
        asked = load_signatures(tflite)
        return Model(description, _traced_later(asked), asked)
    saved = load_saved_model(path)
    return Model(description, {n: lambda f=f: f for n, f in saved.signatures.items()}, saved)


def _checked_name(name: str, names: Sequence[str]) -> str:
    if name not in names:
        raise InputError(f"`only` should be among {', '.join(names)}. Received: {name!r}")
    return name


def _traced_later(asked: dict[str, Signature]) -> dict[str, Callable[[], Ask]]:
    return {name: signature.trace for name, signature in asked.items()}


def _requests(asked: Sequence[Record]) -> Iterator[np.ndarray]:
    """The numbers of records, those of similar length together."""
    lengths = np.array([length(record) for record in asked])
    order = np.argsort(lengths, kind="stable")
    start = 0
    while start < len(order):
        ahead = lengths[order[start : start + _ROWS]]
        fits = np.arange(1, len(ahead) + 1) * ahead <= _CHARACTERS  # True, then False
        end = start + max(1, int(fits.sum()))
        yield order[start:end]
        start = end


def _rows(outputs: dict[str, np.ndarray], name: str, axes: Sequence[str]) -> np.ndarray | list:
    """An output as an array or, where rows have lengths of their own, as a list without padding."""
    value = outputs[name]
    if value.dtype == object:
        value = _DECODED(value)
    if not any(axis in COUNTS for axis in axes):
        return value
    lengths = {count: outputs[count] for count in COUNTS.values() if count in outputs}
    return [
        without_padding(row, axes, {count: values[i] for count, values in lengths.items()})
        for i, row in enumerate(value)
    ]


def _in_order(parts: list, back: np.ndarray) -> np.ndarray | list:
    """A column of requests in the order of the texts."""
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)[back]
    rows = list(itertools.chain(*parts))
    return [rows[place] for place in back]
