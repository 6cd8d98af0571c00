"""The rows of a file, or of standard input, as the inputs of a signature; read as they come."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from errors import InputError
from finetune.readers.lines import read_lines
from finetune.readers.tables import Column, Row, parse_json_row, read_table

FORMATS = ("lines", "tsv", "csv", "jsonl")
_EXTENSIONS = {".txt": "lines", ".tsv": "tsv", ".csv": "csv", ".jsonl": "jsonl"}
# The roles of a task's columns, under the names of a signature's inputs.
_ROLES = {"text": "text_a", "text_pair": "text_b", "words": "words"}
WORD_LIST = "words"  # the input that is a list


class Record(NamedTuple):
    """One row.

    Attributes:
        where: where it stands ("reviews.tsv, line 3").
        id: from the column `id`, or its number from 0.
        values: input -> text, or list of words.
    """

    where: str
    id: str
    values: dict[str, Any]


class Inputs:
    """What a signature takes, and what the columns of a file may be called.

    Args:
        names: the signature's inputs.
        task: the task's declaration as JSON, None of a pre-trained model: its column names, too,
            stand for the inputs.
    """

    def __init__(self, names: Iterable[str], task: dict[str, Any] | None):
        self.names = list(names)
        self._columns = task["columns"] if task else {}
        self.header = task["header"] if task else True
        # Of the task's own files, and so of those alone that are in their format.
        self._delimiters = {task.get("format"): task.get("delimiter")} if task else {}

    def delimiter(self, file_format: str) -> str | None:
        """What the task's declaration says to stand between the columns of such files."""
        return self._delimiters.get(file_format)

    def columns(self, known: Iterable[str]) -> dict[str, Column]:
        """Input -> the column of that name or of the task's, whichever is known, or else both."""
        known = set(known)
        columns: dict[str, Column] = {name: name for name in self.names}
        for name in self.names:
            own = self._columns.get(_ROLES.get(name))
            if name not in known and isinstance(own, str):
                columns[name] = own if own in known else tuple(dict.fromkeys((name, own)))
        columns["id"] = "id" if "id" in known else self._columns.get("id", "id")
        return columns

    def numbers(self) -> dict[str, int]:
        """Input -> number of its column in a table without a header: the task's, or in order."""
        own = [self._columns.get(_ROLES.get(name)) for name in self.names]
        if all(isinstance(number, int) for number in own):
            return dict(zip(self.names, own))
        return {name: number for number, name in enumerate(self.names)}


def extension_format(path: str) -> str | None:
    """One of FORMATS, if the file's extension is one's."""
    return _EXTENSIONS.get(os.path.splitext(path)[1].lower())


def infer_format(path: str, first_line: bytes, inputs: Inputs) -> str:
    """One of FORMATS by the file's extension, or else by its first line.

    Raises:
        InputError: neither says it.
    """
    if known := extension_format(path):
        return known
    if json_keys(first_line):
        return "jsonl"
    if len(inputs.names) == 1 and inputs.names != [WORD_LIST]:
        return "lines"
    raise InputError(
        f"{path}: --format should say how {', '.join(inputs.names)} are written: tsv, csv or jsonl"
    )


def read_records(
    path: str,
    lines: Iterable[bytes],
    inputs: Inputs,
    file_format: str | None = None,
    header: bool | None = None,
    refused: Callable[[str, InputError], None] | None = None,
) -> Iterator[Record]:
    """Yields the rows; bytes that are not UTF-8 become U+FFFD, as in the model's graph.

    Args:
        path: names the file in errors.
        lines: the lines of the file, read when they are needed.
        inputs: what is wanted.
        file_format: one of FORMATS; by default inferred.
            "lines": every line is a text, an empty one, too.
        header: whether a table begins with the names of its columns; by default as in the task's
            files.
        refused: is given id and error of each row that is not as it should be, which is then left
            out; by default the error is raised.

    Raises:
        InputError: a row that is not as it should be, or no rows at all can be found so; names
            the line.
    """
    lines = (line.decode("utf-8", "replace").encode() for line in lines)
    first = next(lines, None)
    if first is None:
        return
    source = itertools.chain([first], lines)
    guessed = not (file_format or extension_format(path))
    file_format = file_format or infer_format(path, first, inputs)
    header = inputs.header if header is None else header
    numbers = itertools.count()

    def refuse(error: InputError, identity: Any = None) -> None:
        if refused is None:
            raise error
        number = next(numbers)
        refused(str(number if identity is None else identity), error)

    if file_format == "lines":
        rows = _read_texts(path, source, inputs, refuse if guessed else None)
    elif file_format == "jsonl":
        rows = _read_objects(path, source, inputs, refuse)
    else:
        columns = inputs.columns(_fields(first, file_format)) if header else inputs.numbers()
        settings = {"header": header, "optional": ("id",), "source": source, "refuse": refuse}
        settings["delimiter"] = inputs.delimiter(file_format)
        rows = read_table(path, file_format == "csv", columns, **settings)
    for where, values in rows:
        identity = values.pop("id", None)
        try:
            _check(where, values)
        except InputError as error:
            refuse(error, identity)
            continue
        number = next(numbers)
        yield Record(where, str(number if identity is None else identity), values)


def _read_texts(
    path: str,
    source: Iterable[bytes],
    inputs: Inputs,
    refuse: Callable[[InputError], None] | None,
) -> Iterator[Row]:
    """With `refuse`, the format is a guess, which JSON objects contradict."""
    if len(inputs.names) != 1 or inputs.names == [WORD_LIST]:
        raise InputError(
            f"{path}: lines hold one text each, but {', '.join(inputs.names)} are wanted; use tsv,"
            " csv or jsonl"
        )
    for number, line in read_lines(path, source=source):
        where = f"{path}, line {number}"
        if refuse and json_keys(line.encode()):
            sentence = "should be a text, as the first line is one, but is a JSON object"
            refuse(InputError(f"{where}: {sentence}; say --format jsonl, or lines"))
            continue
        yield where, {inputs.names[0]: line}


def _read_objects(
    path: str, source: Iterable[bytes], inputs: Inputs, refuse: Callable[[InputError], None]
) -> Iterator[Row]:
    """The first line that is a JSON object says whose names its keys are."""
    columns = None
    for number, line in read_lines(path, source=source):
        if not line.strip():
            continue
        where, keys = f"{path}, line {number}", None
        if columns is None:
            keys = json_keys(line.encode())
            columns = inputs.columns(keys) if keys else None
        try:
            row = parse_json_row(where, line, columns or inputs.columns(()), ("id",))
        except InputError as error:
            refuse(error)
            continue
        yield where, row


def json_keys(line: bytes) -> list[str]:
    """The keys of a line that is a JSON object; none of any other."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return []  # the reader says what is wrong
    return list(value) if isinstance(value, dict) else []


def _fields(line: bytes, file_format: str) -> list[str]:
    text = line.decode("utf-8-sig", errors="replace").strip("\r\n")
    separator = "\t" if file_format == "tsv" else ","
    return [name.strip().strip('"') for name in text.split(separator)]


def _check(where: str, values: dict[str, Any]) -> None:
    for name, value in values.items():
        if name != WORD_LIST:
            if not isinstance(value, str):
                raise InputError(f"{where}: `{name}` should be a text. Received: {value!r:.60}")
            continue
        words = value if isinstance(value, list) else [None]
        if not all(isinstance(word, str) and word for word in words):
            raise InputError(
                f"{where}: `{name}` should be a list of words that are not empty. Received:"
                f" {value!r:.60}"
            )
