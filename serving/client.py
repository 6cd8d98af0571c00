"""Client of one signature of a model, for any number of texts, and its answers."""

from __future__ import annotations

import itertools
import operator
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
import tensorflow as tf
from tqdm.auto import tqdm

from convbert.common.errors import InputError, reason
from convbert.finetune import kinds
from convbert.serving.description import inputs_of, options_of
from convbert.serving.records import WORD_LIST, Record

_DIGITS = 6  # of floats, as in `write_predictions`
_BAR_AFTER = 2.0  # seconds
# The outputs with the lengths along axes.
_COUNTS = {"S": "num_pieces", "W": "num_words", "M": "num_masks", "C": "num_options"}
_COUNTS |= {"N": "num_candidates"}
# Per request; the model's graph splits it further by tokens, see `serving.signatures.parts`.
_CHARACTERS, _ROWS = 2**16, 2048
_DECODED = np.frompyfunc(bytes.decode, 1, 1)
Ask = Callable[..., dict[str, tf.Tensor]]  # maps inputs to outputs, by name


class Answer(types.SimpleNamespace):
    """The answer to one text; its attributes are the signature's outputs."""


class Answers(Sequence):
    """Answers to texts, in order.

    `answers.label` is a column: an array with a value per text, or a list if the values differ in
    length. `answers[0]` is the first text's `Answer`, with the same attributes. `of_labels` names
    the columns with a value for each of the task's `labels`.
    """

    def __init__(
        self,
        columns: dict[str, np.ndarray | list],
        labels: Sequence[str] = (),
        of_labels: Sequence[str] = (),
        index: pd.Index | None = None,
    ):
        self.columns = columns
        self._labels, self._of_labels, self._index = labels, of_labels, index

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, place: int | slice) -> Any:
        if isinstance(place, slice):
            index = None if self._index is None else self._index[place]
            columns = {name: column[place] for name, column in self.columns.items()}
            return Answers(columns, self._labels, self._of_labels, index)
        place = operator.index(place)
        return Answer(**{name: column[place] for name, column in self.columns.items()})

    def __getattr__(self, name: str) -> np.ndarray | list:
        if name.startswith("__") or "columns" not in vars(self):  # e.g. while being copied
            raise AttributeError(name)
        if name in self.columns:
            return self.columns[name]
        raise AttributeError(f"answers have {', '.join(self.columns)}, but not {name!r}")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.columns]

    def __repr__(self) -> str:
        return f"<{len(self)} answers: {', '.join(self.columns)}>"

    def to_pandas(self) -> pd.DataFrame:
        """Returns a row per text; outputs such as `probabilities` have a column per label."""
        found: dict[str, Any] = {}
        for name, column in self.columns.items():
            if name in self._of_labels:
                values = np.asarray(column)
                found |= {f"{name}.{label}": values[:, i] for i, label in enumerate(self._labels)}
            else:
                found[name] = list(column)
        return pd.DataFrame(found, index=self._index)


class Client:
    """Client of one signature of a model, whose graph is `ask`.

    `options` are values of its inputs with defaults, the same for all texts. `outputs` maps names
    of outputs to axes, without lengths, as outputs are not padded.
    """

    def __init__(
        self,
        description: dict[str, Any],
        signature: str,
        ask: Ask,
        options: dict[str, Any] | None = None,
    ):
        self._ask = ask
        self.kept: Any = None  # objects that the graph does not keep alive
        self.inputs = inputs_of(description, signature)
        self._options = options_of(description, signature, options or {})
        asked = description["signatures"]
        outputs = {n: own["axes"] for n, own in asked[signature]["outputs"].items()}
        axes = {axis for axes in outputs.values() for axis in axes}
        lengths = {count for axis, count in _COUNTS.items() if axis in axes}
        self.outputs = {name: own for name, own in outputs.items() if name not in lengths}
        self._labels, self._answer_row = description["labels"], None
        kind = description["kind"]
        # For an unknown kind, outputs are written unchanged.
        is_default = signature == WORD_LIST or asked[signature] == asked["serving_default"]
        if is_default and kind in kinds.names():
            self._answer_row = kinds.get(kind).answer_row

    def columns(
        self,
        records: Sequence[Record],
        names: Iterable[str] | None = None,
        progress: bool | None = False,
    ) -> dict[str, np.ndarray | list]:
        """Returns outputs by name, for at least one record, in order.

        An output is an array, or a list of arrays if lengths differ.
        """
        found: dict[str, list] = {name: [] for name in (self.outputs if names is None else names)}
        requests = list(_requests(records))
        with _progress_bar(progress, len(records)) as bar:
            for numbers in requests:
                outputs = self.ask([records[number] for number in numbers])
                for name, parts in found.items():
                    parts.append(_without_padding(outputs, name, self.outputs[name][1:]))
                bar.update(len(numbers))
        back = np.argsort(np.concatenate(requests))
        return {name: _in_order(parts, back) for name, parts in found.items()}

    def rows(self, records: Sequence[Record]) -> list[dict[str, Any]]:
        """Returns the answers as JSON objects, in the form of `write_predictions` if it has one."""
        if not records:
            return []
        columns = self.columns(records, [name for name in self.outputs if name != "tokens"])
        found = []
        for i, record in enumerate(records):
            values = {name: _plain(column[i]) for name, column in columns.items()}
            row = self._answer_row(values, self._labels) if self._answer_row else values
            if "truncated" in values:
                row = {**row, "truncated": values["truncated"]}
            found.append({"id": record.id, **row})
        return found

    def ask(self, batch: Sequence[Record]) -> dict[str, np.ndarray]:
        """Returns the signature's padded outputs for a batch."""
        inputs = {}
        for name in self.inputs.names:
            values = [record.values[name] for record in batch]
            if name in self.inputs.lists:
                values = tf.ragged.constant(values, dtype=tf.string, ragged_rank=1).to_tensor("")
            inputs[name] = tf.constant(values, tf.string)
        for name, (value, dtype) in self._options.items():
            inputs[name] = tf.fill([len(batch)], tf.constant(value, dtype))
        try:
            return {name: value.numpy() for name, value in self._ask(**inputs).items()}
        except tf.errors.OpError as error:
            others = f" and {len(batch) - 1} of similar length" if len(batch) > 1 else ""
            place = f"{batch[0].where}{others}"
            raise InputError(f"{place}: the model cannot answer ({reason(error)})") from error


def _requests(records: Sequence[Record]) -> Iterator[np.ndarray]:
    """Yields indices of records, grouped by similar length."""
    texts = [record.values.values() for record in records]
    lengths = np.array(
        [sum(len(x) if isinstance(x, str) else sum(map(len, x)) for x in of) for of in texts]
    )
    order = np.argsort(lengths, kind="stable")
    start = 0
    while start < len(order):
        ahead = lengths[order[start : start + _ROWS]]
        fits = np.arange(1, len(ahead) + 1) * ahead <= _CHARACTERS  # True, then False
        end = start + max(1, int(fits.sum()))
        yield order[start:end]
        start = end


def _without_padding(outputs: dict[str, np.ndarray], name: str, axes: str) -> np.ndarray | list:
    """Returns an output as an array, or as a list without padding if lengths differ."""
    value = outputs[name]
    if value.dtype == object:
        value = _DECODED(value)
    lengths = [outputs.get(_COUNTS.get(axis, "")) for axis in axes]  # [B], or None, of each axis
    if all(counts is None for counts in lengths):
        return value
    return [
        row[tuple(slice(None if counts is None else counts[i]) for counts in lengths)]
        for i, row in enumerate(value)
    ]


def _in_order(parts: list, back: np.ndarray) -> np.ndarray | list:
    """Concatenates the requests' outputs in the order of the texts."""
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)[back]
    rows = list(itertools.chain(*parts))
    return [rows[place] for place in back]


def _plain(value: Any) -> Any:
    """Converts a NumPy value or a text to JSON."""
    value = value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return round(value, _DIGITS) if isinstance(value, float) else value


def _progress_bar(progress: bool | None, total: int) -> tqdm:
    """Returns a progress bar of texts; by default (None) in a terminal or notebook."""
    if progress is None:
        progress = "ipykernel" in sys.modules or sys.stderr.isatty()
    return tqdm(total=total, unit=" texts", delay=_BAR_AFTER, disable=not progress)
