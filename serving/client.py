"""Asks a model that export_savedmodel.py wrote, and says what it answers as JSON objects."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401  (its ops are in the graph)

import storage
from errors import InputError, reason
from finetune import kinds
from serving.description import check_belongs, inputs_of, options_of, read_description
from serving.litert import litert_file
from serving.litert_model import load_signatures
from serving.records import WORD_LIST, Record
from signatures.tensors import tensors_of

GRAPH_FILE = "saved_model.pb"
_DIGITS = 6  # of floats, as finetune/predictions.py writes probabilities
# The outputs that say the lengths along axes.
COUNTS = {"S": "num_pieces", "W": "num_words", "M": "num_masks", "C": "num_options"}


def load_saved_model(folder: str) -> tf.Module:
    """The SavedModel in a folder; its `signatures` are graphs by name."""
    described = read_description(folder)["digests"]["graph"]
    try:
        check_belongs(folder, GRAPH_FILE, graph_digest(folder), described)
        return tf.saved_model.load(folder)
    except (OSError, tf.errors.OpError, IndexError) as error:  # IndexError: variables are cut
        raise InputError(f"{folder}: the SavedModel cannot be loaded ({reason(error)})") from error


def graph_digest(folder: str) -> str:
    """SHA-256 of a SavedModel's graph and of its variables' index, which has their checksums."""
    digest = hashlib.sha256()
    for name in (GRAPH_FILE, os.path.join("variables", "variables.index")):
        with storage.open(os.path.join(folder, name), "rb") as file:
            digest.update(file.read())
    return digest.hexdigest()


class Client:
    """One signature of an exported model, which takes `inputs`.

    Args:
        description: of the model, see `read_description`.
        signature: its name.
        ask: its graph, from inputs by name to outputs by name.
        options: values of its inputs that have defaults, the same for all texts.
    """

    def __init__(
        self,
        description: dict[str, Any],
        signature: str,
        ask: Callable[..., dict[str, tf.Tensor]],
        options: dict[str, Any] | None = None,
    ):
        self._ask = ask
        self.inputs = inputs_of(description, signature)
        self._options = options_of(description, signature, options or {})
        self.outputs = tensors_of(description["signatures"][signature], "outputs")
        axes = {axis for tensor in self.outputs.values() for axis in tensor.axes}
        # Names of outputs; lists without padding say them, too.
        self.lengths = {name for axis, name in COUNTS.items() if axis in axes}
        self._labels, self._answer_row = description["labels"], None
        kind = description["kind"]
        # Of a kind that is registered elsewhere, the outputs are written as they are.
        asked = description["signatures"]
        is_default = signature == WORD_LIST or asked[signature] == asked["serving_default"]
        if is_default and kind in kinds.names():
            self._answer_row = kinds.get(kind).answer_row

    @classmethod
    def of(
        cls,
        folder: str,
        signature: str = "serving_default",
        options: dict[str, Any] | None = None,
    ) -> Client:
        """A client of the exported model in a folder; see the class."""
        description = read_description(folder)
        inputs_of(description, signature)  # before what takes time
        options_of(description, signature, options or {})
        if path := litert_file(folder):
            model = load_signatures(path)
            ask = model[signature].trace()
        else:
            model = load_saved_model(folder)
            ask = model.signatures[signature]
        client = cls(description, signature, ask, options)
        client._model = model  # which graphs do not keep alive
        return client

    def answers(self, records: Sequence[Record], batch_size: int) -> Iterator[dict[str, Any]]:
        """What the model says of records, in their order; texts of similar length share a batch."""
        order = np.argsort([length(record) for record in records], kind="stable")
        found: dict[int, dict[str, Any]] = {}
        for start in range(0, len(order), batch_size):
            numbers = order[start : start + batch_size]
            batch = [records[number] for number in numbers]
            found.update(zip(numbers.tolist(), self._rows(batch)))
        return (found[number] for number in range(len(records)))

    def ask(self, batch: Sequence[Record]) -> dict[str, np.ndarray]:
        """The outputs for a batch, padded as the signature has them."""
        inputs = {}
        for name in self.inputs.names:
            values = [record.values[name] for record in batch]
            if name in self.inputs.lists:
                values = tf.ragged.constant(values, dtype=tf.string, ragged_rank=1).to_tensor("")
            inputs[name] = tf.constant(values, tf.string)
        for name, (value, dtype) in self._options.items():
            inputs[name] = tf.fill([len(batch)], tf.constant(value, dtype))
        try:
            found = self._ask(**inputs)
            # As described: the order of a SavedModel's outputs differs from run to run.
            return {name: found[name].numpy() for name in self.outputs if name in found}
        except tf.errors.OpError as error:
            places = " to ".join(dict.fromkeys((batch[0].where, batch[-1].where)))
            raise InputError(f"{places}: the model cannot answer ({reason(error)})") from error

    def _rows(self, batch: Sequence[Record]) -> list[dict[str, Any]]:
        outputs = self.ask(batch)
        return [
            {"id": record.id, **self._row({name: value[i] for name, value in outputs.items()})}
            for i, record in enumerate(batch)
        ]

    def _row(self, values: dict[str, np.ndarray]) -> dict[str, Any]:
        """The outputs of one record, in the form of finetune/predictions.py where it has one."""
        found = {
            name: _plain(without_padding(value, self.outputs[name].axes[1:], values))
            for name, value in values.items()
            if name not in self.lengths and name != "tokens"
        }
        row = found
        if self._answer_row is not None:
            row = self._answer_row(found, self._labels)
        return row if "truncated" not in found else {**row, "truncated": found["truncated"]}


def length(record: Record) -> int:
    """The characters of a record's texts."""
    return sum(
        len(value) if isinstance(value, str) else sum(map(len, value))
        for value in record.values.values()
    )


def without_padding(
    value: np.ndarray, axes: Sequence[str], values: dict[str, np.ndarray]
) -> np.ndarray:
    """An output of one record, cut to its own length along the axes that have one.

    Args:
        value: with `axes`, those of `Tensor` but the batch.
        values: all outputs of the record, the lengths among them.
    """
    counts = [values.get(COUNTS.get(axis)) for axis in axes]
    return value[tuple(slice(count) for count in counts)] if axes else value


def _plain(value: Any) -> Any:
    """A NumPy value as JSON has it."""
    if isinstance(value, np.ndarray):
        return [_plain(item) for item in value]
    if isinstance(value, bytes):
        return value.decode()
    value = value.item()
    return round(value, _DIGITS) if isinstance(value, float) else value
