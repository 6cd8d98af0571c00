"""The rows of a file, or of standard input, as the inputs of a signature; read as they come."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, NamedTuple

from data.encodings import reject_other_encodings
from errors import InputError
from files import is_unicode
from finetune.readers.conll import read_conll, read_conllu
from finetune.readers.lines import read_lines
from finetune.readers.tables import (
    Column,
    Row,
    gathered,
    parse_json_row,
    read_table,
    spread,
)

FORMATS = ("lines", "tsv", "csv", "jsonl", "conll", "conllu")
WORD_FORMATS = ("conll", "conllu")  # of sentences that are divided into words
# Inputs of signatures that are called otherwise than the role of the task's column.
_ROLES = {"text": "text_a", "text_pair": "text_b"}
WORD_LIST = "words"  # the signature of sentences that are divided into words, and its input
Reject = Callable[[InputError], None]


class Record(NamedTuple):
    """One row."""

    where: str  # such as "reviews.tsv, line 3"
    id: str  # from the column `id`, or the number from 0
    values: dict[str, Any]  # input -> text, or list of texts


class Inputs:
    """What a signature takes, and what the columns of a file may be called.

    Args:
        names: the signature's inputs.
        task: the task's declaration as JSON, None of a pre-trained model: its column names, too,
            stand for the inputs, by the role of the input's name.
        lists: those of the inputs that are lists of texts.
    """

    def __init__(
        self, names: Iterable[str], task: dict[str, Any] | None, lists: Collection[str] = ()
    ):
        self.names, self.lists = list(names), lists
        task = task or {"columns": {}, "header": True}
        self.header, self._columns = task["header"], task["columns"]
        # Of the task's own files, and so of those alone that are in their format.
        self._delimiters = {task.get("format"): task.get("delimiter")}

    @property
    def one_text(self) -> bool:
        """Whether a row is no more than a text."""
        return len(self.names) == 1 and not self.lists

    def delimiter(self, file_format: str) -> str | None:
        """What the task's declaration says to stand between the columns of such files."""
        return self._delimiters.get(file_format)

    def columns(self, known: Iterable[str]) -> dict[str, Column]:
        """Input -> the column of that name or of the task's, whichever is known, or else both.

        Of a list that has several columns, each is that of one of its items, see `spread`.
        """
        known = set(known)
        columns: dict[str, Any] = {name: name for name in self.names}
        for name in self.names:
            own = self._column(name)
            if name not in known and isinstance(own, list):
                columns[name] = own
            elif name not in known and isinstance(own, str):
                columns[name] = own if own in known else tuple(dict.fromkeys((name, own)))
        columns["id"] = "id" if "id" in known else self._columns.get("id", "id")
        return spread(columns)

    def numbers(self) -> dict[str, int]:
        """Input -> number of its column in a table without a header: the task's, or in order."""
        own = spread({name: self._column(name) for name in self.names})
        if all(isinstance(number, int) for number in own.values()):
            return own
        return {name: number for number, name in enumerate(self.names)}

    def _column(self, name: str) -> str | int | list[str | int] | None:
        return self._columns.get(_ROLES.get(name, name))

    def word_column(self) -> int:
        """The column of the words in a CoNLL file: the task's, or the first."""
        column = self._columns.get("words")
        return column if isinstance(column, int) else 0


class Source(NamedTuple):
    """Lines of rows, of which the first is known."""

    name: str  # the file in errors
    format: str  # one of FORMATS
    first: bytes  # the first line that is not blank
    lines: Iterator[bytes]  # all of them


def source(name: str, lines: Iterable[bytes], file_format: str | None = None) -> Source:
    """Reads ahead to the first row, which decides the signature, and the format if it is not given.

    Without a format it is that of the extension; of other files, and of standard input, JSON lines
    where the first line begins with a brace, else a text for each line. Bytes that are not UTF-8
    become U+FFFD, as in the model's graph.

    Raises:
        InputError: the lines are of UTF-16 or UTF-32.
    """
    lines, begun = _in_utf8(name, lines), []
    for line in lines:
        begun.append(line)
        if line.strip():
            break
    first = begun[-1].removeprefix(b"\xef\xbb\xbf") if begun else b""
    lines = itertools.chain(begun, lines)
    extension = os.path.splitext(name)[1][1:].lower()
    if file_format is None and extension in FORMATS:  # none is called .lines
        file_format = extension
    elif file_format is None:
        file_format = "jsonl" if first.lstrip().startswith(b"{") else "lines"
    return Source(name, file_format, first, lines)


def _in_utf8(path: str, lines: Iterable[bytes]) -> Iterator[bytes]:
    for number, line in enumerate(lines):
        if number == 0:
            reject_other_encodings(line, f"{path}: the rows")
        yield line.decode("utf-8", "replace").encode()


def read_records(
    rows: Source,
    inputs: Inputs,
    header: bool | None = None,
    rejected: Callable[[str, InputError], None] | None = None,
) -> Iterator[Record]:
    """Yields the rows.

    Args:
        rows: where they are from. Of "lines", an empty one is a text, too.
        inputs: what is wanted.
        header: whether a table begins with names of columns; by default as the task's files do.
        rejected: is given id and error of each row that is not as it should be, which is then left
            out; by default the error is raised.

    Raises:
        InputError: a row that is not as it should be, or no rows at all can be found so; names
            the line.
    """
    numbers = itertools.count()

    def reject(error: InputError, identity: Any = None) -> None:
        if rejected is None:
            raise error
        number = next(numbers)
        rejected(str(number if identity is None else identity), error)

    for where, values in _rows(rows, inputs, header, reject) if rows.first else ():
        values = gathered(values)
        identity = values.pop("id", None)
        try:
            check_texts(where, values, inputs.lists)
        except InputError as error:
            reject(error, identity)
            continue
        number = next(numbers)
        yield Record(where, str(number if identity is None else identity), values)


def _rows(rows: Source, inputs: Inputs, header: bool | None, reject: Reject) -> Iterator[Row]:
    """See `read_records`; the values are not checked yet."""
    path, file_format = rows.name, rows.format
    if file_format == "lines" and not inputs.one_text:
        raise InputError(
            f"{path}: lines hold one text each, but {', '.join(inputs.names)} are wanted; use"
            " --format tsv, csv or jsonl"
        )
    if file_format in WORD_FORMATS and inputs.names != [WORD_LIST]:
        raise InputError(
            f"{path}: {file_format} files hold words, but {', '.join(inputs.names)} are wanted"
        )
    if file_format in ("tsv", "csv"):
        header = inputs.header if header is None else header
        return read_table(
            path,
            file_format == "csv",
            inputs.columns(_fields(rows.first, file_format)) if header else inputs.numbers(),
            header=header,
            optional=("id",),
            source=rows.lines,
            reject=reject,
            delimiter=inputs.delimiter(file_format),
        )
    if file_format in WORD_FORMATS:
        return _sentences(rows, inputs)
    numbered = read_lines(path, source=rows.lines)
    lines = ((f"{path}, line {number}", line) for number, line in numbered)
    if file_format == "lines":
        return ((where, {inputs.names[0]: line}) for where, line in lines)
    return _objects(lines, inputs, reject)


def _objects(lines: Iterable[tuple[str, str]], inputs: Inputs, reject: Reject) -> Iterator[Row]:
    """Rows of JSON; the keys of the first object say whose names they are."""
    columns = None
    for where, line in lines:
        if not line.strip():
            continue
        keys = json_keys(line.encode()) if columns is None else None
        columns = inputs.columns(keys) if keys else columns
        try:
            row = parse_json_row(where, line, columns or inputs.columns(()), ("id",))
        except InputError as error:
            reject(error)
            continue
        yield where, row


def _sentences(rows: Source, inputs: Inputs) -> Iterator[Row]:
    if rows.format == "conllu":
        found = read_conllu(rows.name, "upos", source=rows.lines)
    else:
        columns = {"words": inputs.word_column()}
        found = read_conll(rows.name, columns, tagged=False, source=rows.lines)
    for where, row in found:
        yield where, {name: row[name] for name in ("words", "id") if name in row}


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


def check_texts(where: str, values: dict[str, Any], lists: Collection[str]) -> None:
    """Raises InputError where a value is no text, or of `lists` no list of texts."""
    for name, value in values.items():
        texts = value if name in lists else [value]
        valid = isinstance(texts, list) and all(
            isinstance(text, str) and (text or name not in lists) and is_unicode(text)
            for text in texts
        )
        if not valid:
            expected = "a list of texts that are not empty" if name in lists else "a text"
            raise InputError(
                f"{where}: `{name}` should be {expected}, valid in Unicode. Received: {value!a:.60}"
            )
