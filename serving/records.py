"""The rows of a file, or of standard input, as the inputs of a signature; read as they come."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, NamedTuple

from data.encodings import reject_other_encodings
from errors import InputError
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

FORMATS = ("lines", "tsv", "csv", "jsonl", "json", "conll", "conllu")
# Not .txt, which says nothing: CoNLL files are called so, too.
_EXTENSIONS = {f".{name}": name for name in ("tsv", "csv", "jsonl", "conll", "conllu")}
WORD_FORMATS = ("conll", "conllu")  # of sentences that are divided into words
# How JSON begins, or what was meant to be JSON. "[MASK] is" and "[1] A note" are texts.
_ARRAY = re.compile(rb"""\s*\[\s*([\["'{\]]|$)""")
_JSON = re.compile(rb"\s*\{|" + _ARRAY.pattern)
_CONLL_LINE = re.compile(rb"-DOCSTART-|# ?(sent_id|text|newdoc|newpar|global\.columns)\b")
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
        self._labels = task.get("labels", ())
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

    @property
    def tagging(self) -> bool:
        """Whether the task is one of tags, so that a file may hold a word per line."""
        return "words" in self._columns

    def is_conll(self, line: bytes) -> bool:
        """Whether the first line of a file given to a tagger is one word of a CoNLL file."""
        if not self.tagging:
            return False
        if _CONLL_LINE.match(line) or b"\t" in line.strip():
            return True
        fields, column = line.decode("utf-8", "replace").split(), self._columns.get("tags")
        place = column if isinstance(column, int) else -1
        has_tag = len(fields) > 1 and -len(fields) <= place < len(fields)
        return has_tag and fields[place] in self._labels


def extension_format(path: str) -> str | None:
    """One of FORMATS, if the file's extension is one's."""
    return _EXTENSIONS.get(os.path.splitext(path)[1].lower())


def peek(
    lines: Iterator[bytes], file_format: str | None, limit: int
) -> tuple[Iterator[bytes], bytes]:
    """All lines, of which as many are read as it takes to find the row to choose a signature by.

    That row is the first line that is not blank; of JSON lines, the first object among `limit`
    lines; of a JSON array, which is read to its end, the first item.
    """
    if file_format == "jsonl":
        begin = _through_first(itertools.islice(lines, limit), json_keys)
    else:
        begin = _through_first(lines, bytes.strip)
    sample = begin[-1] if begin else b""
    if file_format == "json" or (file_format is None and is_array(sample)):
        begin += lines
        with contextlib.suppress(ValueError, RecursionError, LookupError, TypeError):
            sample = json.dumps(json.loads(b"".join(begin).decode("utf-8-sig"))[0]).encode()
    return itertools.chain(begin, lines), sample


def infer_format(path: str, first_line: bytes, inputs: Inputs) -> str:
    """One of FORMATS by the file's extension, or else by its first line that is not blank.

    Raises:
        InputError: neither says it, or the line contradicts that it is a text.
    """
    if known := extension_format(path):
        return known
    if json_keys(first_line):
        return "jsonl"
    if is_array(first_line):
        return "json"
    received = f"Received: {first_line.strip()[:60].decode('utf-8', 'replace')!r}"
    if _JSON.match(first_line):
        raise InputError(
            f"{path}: the first line begins like JSON, but is no JSON object; say --format lines if"
            f" it is a text. {received}"
        )
    if inputs.is_conll(first_line):
        raise InputError(
            f"{path}: the first line looks like a word of a CoNLL file; say --format conll, conllu,"
            f" or lines. {received}"
        )
    if inputs.one_text:
        return "lines"
    raise InputError(
        f"{path}: --format should say how {', '.join(inputs.names)} are written: one of"
        f" {', '.join(FORMATS[1:])}"
    )


def is_array(line: bytes) -> bool:
    """Whether a line begins a JSON array of objects, strings or arrays."""
    return _ARRAY.match(line) is not None


def read_records(
    path: str,
    lines: Iterable[bytes],
    inputs: Inputs,
    file_format: str | None = None,
    header: bool | None = None,
    rejected: Callable[[str, InputError], None] | None = None,
) -> Iterator[Record]:
    """Yields the rows; bytes that are not UTF-8 become U+FFFD, as in the model's graph.

    Args:
        path: names the file in errors.
        lines: the lines of the file, read when they are needed.
        inputs: what is wanted.
        file_format: one of FORMATS, by default inferred. Of "lines", an empty one is a text, too;
            "json" is one array, which is read to its end first.
        header: whether a table begins with names of columns; by default as the task's files do.
        rejected: is given id and error of each row that is not as it should be, which is then left
            out; by default the error is raised.

    Raises:
        InputError: a row that is not as it should be, or no rows at all can be found so; names
            the line. Or the file is in UTF-16 or UTF-32.
    """
    numbers = itertools.count()

    def reject(error: InputError, identity: Any = None) -> None:
        if rejected is None:
            raise error
        number = next(numbers)
        rejected(str(number if identity is None else identity), error)

    for where, values in _rows(path, lines, inputs, file_format, header, reject):
        values = gathered(values)
        identity = values.pop("id", None)
        try:
            check_texts(where, values, inputs.lists)
        except InputError as error:
            reject(error, identity)
            continue
        number = next(numbers)
        yield Record(where, str(number if identity is None else identity), values)


def _rows(
    path: str,
    lines: Iterable[bytes],
    inputs: Inputs,
    file_format: str | None,
    header: bool | None,
    reject: Reject,
) -> Iterator[Row]:
    """See `read_records`; the values are not checked yet."""
    lines = _in_utf8(path, lines)
    begin = _through_first(lines, bytes.strip)
    if not begin:
        return iter(())
    source, first = itertools.chain(begin, lines), begin[-1].removeprefix(b"\xef\xbb\xbf")
    inferred = not (file_format or extension_format(path))
    file_format = file_format or infer_format(path, first, inputs)
    if file_format == "lines":
        return _read_texts(path, source, inputs, reject if inferred else None)
    if file_format == "jsonl":
        numbered = read_lines(path, source=source)
        items = ((f"{path}, line {number}", line) for number, line in numbered if line.strip())
        return _read_objects(items, inputs, reject)
    if file_format == "json":
        return _read_objects(_array_items(path, source, inputs), inputs, reject)
    if file_format in WORD_FORMATS:
        return _read_words(path, source, inputs, file_format)
    header = inputs.header if header is None else header
    return read_table(
        path,
        file_format == "csv",
        inputs.columns(_fields(first, file_format)) if header else inputs.numbers(),
        header=header,
        optional=("id",),
        source=source,
        reject=reject,
        delimiter=inputs.delimiter(file_format),
    )


def _in_utf8(path: str, lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yields the lines of a file; bytes that are not UTF-8 become U+FFFD.

    Raises:
        InputError: it begins as UTF-16 or UTF-32 does, whose lines would not be found.
    """
    for number, line in enumerate(lines):
        if number == 0:
            reject_other_encodings(line, f"{path}: the rows")
        yield line.decode("utf-8", "replace").encode()


def _read_texts(
    path: str, source: Iterable[bytes], inputs: Inputs, reject: Reject | None
) -> Iterator[Row]:
    """With `reject`, the format is inferred: JSON objects or sentences of words contradict it."""
    if not inputs.one_text:
        raise InputError(
            f"{path}: lines hold one text each, but {', '.join(inputs.names)} are wanted; use tsv,"
            " csv or jsonl"
        )
    before, ended = False, 0  # whether there was a text; the blank line after it
    for number, line in read_lines(path, source=source):
        where, blank = f"{path}, line {number}", not line.strip()
        if reject and inputs.tagging and ended and not blank:
            raise InputError(
                f"{path}, line {ended}: a blank line ends a sentence in a CoNLL file; say --format"
                " conll, conllu, or lines. Received: no format, and lines on both sides of it"
            )
        ended = ended or number * (blank and before)
        before = before or not blank
        if reject and json_keys(line.encode()):
            sentence = "should be a text, as the first line is one, but is a JSON object"
            reject(InputError(f"{where}: {sentence}; say --format jsonl, or lines"))
            continue
        yield where, {inputs.names[0]: line}


def _read_objects(
    items: Iterable[tuple[str, str]], inputs: Inputs, reject: Reject
) -> Iterator[Row]:
    """Rows of JSON, of which the first that is an object says whose names its keys are."""
    columns = None
    for where, item in items:
        keys = json_keys(item.encode()) if columns is None else None
        columns = inputs.columns(keys) if keys else columns
        try:
            row = parse_json_row(where, item, columns or inputs.columns(()), ("id",))
        except InputError as error:
            reject(error)
            continue
        yield where, row


def _array_items(path: str, source: Iterable[bytes], inputs: Inputs) -> Iterator[tuple[str, str]]:
    """The items of a JSON array, as JSON; a text where one is wanted stands for an object."""
    try:
        items = json.loads(b"".join(source).decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: should be a JSON array ({error})") from error
    if not isinstance(items, list):
        raise InputError(f"{path}: should be a JSON array. Received: {items!r:.60}")
    for number, item in enumerate(items, start=1):
        if inputs.one_text and isinstance(item, str):
            item = {inputs.names[0]: item}
        yield f"{path}, item {number}", json.dumps(item)


def _read_words(
    path: str, source: Iterable[bytes], inputs: Inputs, file_format: str
) -> Iterator[Row]:
    if inputs.names != [WORD_LIST]:
        raise InputError(
            f"{path}: {file_format} files hold words, but {', '.join(inputs.names)} are wanted"
        )
    if file_format == "conllu":
        rows = read_conllu(path, "upos", source=source)
    else:
        columns = {"words": inputs.word_column()}
        rows = read_conll(path, columns, tagged=False, source=source)
    for where, row in rows:
        yield where, {name: row[name] for name in ("words", "id") if name in row}


def _through_first(lines: Iterator[bytes], wanted: Callable[[bytes], Any]) -> list[bytes]:
    """The lines up to the first that is wanted, or all."""
    found = []
    for line in lines:
        found.append(line)
        if wanted(line):
            break
    return found


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
        if name not in lists:
            if not isinstance(value, str):
                raise InputError(f"{where}: `{name}` should be a text. Received: {value!r:.60}")
            continue
        texts = value if isinstance(value, list) else [None]
        if not all(isinstance(text, str) and text for text in texts):
            raise InputError(
                f"{where}: `{name}` should be a list of texts that are not empty. Received:"
                f" {value!r:.60}"
            )
