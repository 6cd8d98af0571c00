"""The rows of a file, or of standard input, as the inputs of a signature; read as they come."""

from __future__ import annotations

import bisect
import contextlib
import itertools
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from errors import InputError
from finetune.readers.conll import read_conll, read_conllu
from finetune.readers.lines import marked_encoding, read_lines
from finetune.readers.tables import Column, Row, parse_json_row, read_table

FORMATS = ("lines", "tsv", "csv", "jsonl", "json", "conll", "conllu")
# Not .txt, which says nothing: CoNLL files are called so, too.
_EXTENSIONS = {f".{name}": name for name in ("tsv", "csv", "jsonl", "conll", "conllu")}
WORD_FORMATS = ("conll", "conllu")  # of sentences that are divided into words
# How JSON begins, or what was meant to be JSON. "[MASK] is" and "[1] A note" are texts.
_ARRAY = re.compile(rb"""\s*\[\s*([\["'{\]]|$)""")
_JSON = re.compile(rb"\s*\{|" + _ARRAY.pattern)
_WHITESPACE = re.compile(r"[ \t\r\n]*")
_CONLL_LINE = re.compile(rb"-DOCSTART-|# ?(sent_id|text|newdoc|newpar|global\.columns)\b")
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
        self._labels = set(task.get("labels", ())) if task else set()
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
        fields = line.decode("utf-8", "replace").split()
        column = self._columns["tags"] if isinstance(self._columns["tags"], int) else -1
        has_tag = len(fields) > 1 and -len(fields) <= column < len(fields)
        return (
            _CONLL_LINE.match(line) is not None
            or b"\t" in line.strip()
            or (has_tag and fields[column] in self._labels)
        )


def extension_format(path: str) -> str | None:
    """One of FORMATS, if the file's extension is one's."""
    return _EXTENSIONS.get(os.path.splitext(path)[1].lower())


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
    if _JSON.match(first_line):
        raise InputError(
            f"{path}: the first line begins like JSON, but is no JSON object; say --format lines if"
            f" it is a text. Received: {first_line.strip()[:60].decode('utf-8', 'replace')!r}"
        )
    if inputs.is_conll(first_line):
        raise InputError(
            f"{path}: the first line looks like a word of a CoNLL file; say --format conll, conllu,"
            f" or lines. Received: {first_line.strip()[:60].decode('utf-8', 'replace')!r}"
        )
    if len(inputs.names) == 1 and inputs.names != [WORD_LIST]:
        return "lines"
    raise InputError(
        f"{path}: --format should say how {', '.join(inputs.names)} are written: one of"
        f" {', '.join(FORMATS[1:])}"
    )


def is_array(line: bytes) -> bool:
    """Whether a line begins a JSON array of objects, strings or arrays."""
    return _ARRAY.match(line) is not None


def checked_encoding(path: str, lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yields the lines of a file, in which those of UTF-16 or UTF-32 would not be found.

    Raises:
        InputError: it begins with the byte order mark of one of these.
    """
    for number, line in enumerate(lines):
        if number == 0 and (encoding := marked_encoding(line)):
            raise InputError(
                f"{path}: the rows should be text in UTF-8. Received: the byte order mark of"
                f" {encoding}"
            )
        yield line


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
            "lines": every line is a text, an empty one, too. "json": one array, which is read to
            its end first.
        header: whether a table begins with the names of its columns; by default as in the task's
            files.
        refused: is given id and error of each row that is not as it should be, which is then left
            out; by default the error is raised.

    Raises:
        InputError: a row that is not as it should be, or no rows at all can be found so; names
            the line. Or the file is in UTF-16 or UTF-32.
    """
    lines = checked_encoding(path, lines)
    lines = (line.decode("utf-8", "replace").encode() for line in lines)
    begin = through_first(lines, bytes.strip)
    if not begin:
        return
    source, first = itertools.chain(begin, lines), begin[-1].removeprefix(b"\xef\xbb\xbf")
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
    elif file_format == "json":
        rows = _read_array(path, source, inputs, refuse)
    elif file_format in WORD_FORMATS:
        rows = _read_words(path, source, inputs, file_format)
    else:
        names = _fields(first, file_format)
        columns = inputs.columns(names) if header else inputs.numbers()
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
    """With `refuse`, the format is a guess, which JSON objects or sentences of words contradict."""
    if len(inputs.names) != 1 or inputs.names == [WORD_LIST]:
        raise InputError(
            f"{path}: lines hold one text each, but {', '.join(inputs.names)} are wanted; use tsv,"
            " csv or jsonl"
        )
    texts = read_lines(path, source=source)
    if refuse and inputs.tagging:
        texts = _without_sentences(path, texts)
    for number, line in texts:
        where = f"{path}, line {number}"
        if refuse and json_keys(line.encode()):
            sentence = "should be a text, as the first line is one, but is a JSON object"
            refuse(InputError(f"{where}: {sentence}; say --format jsonl, or lines"))
            continue
        yield where, {inputs.names[0]: line}


def _without_sentences(path: str, lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Yields the numbered lines; raises InputError where blank ones end sentences, as in CoNLL.

    That is, where a line follows after a blank one, or all lines before it have as many columns.
    """
    widths, count, blank = set(), 0, 0
    for number, line in lines:
        width = len(line.split())
        if not width and count:
            blank = blank or number
        if blank and (width or (count > 1 and len(widths) == 1 and max(widths) > 1)):
            raise InputError(
                f"{path}, line {blank}: a blank line ends a sentence in a CoNLL file; say --format"
                " conll, conllu, or lines. Received: no format, and lines before the blank one"
            )
        if width:
            widths.add(width)
            count += 1
        yield number, line


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


def _read_array(
    path: str, source: Iterable[bytes], inputs: Inputs, refuse: Callable[[InputError], None]
) -> Iterator[Row]:
    """The items of a JSON array: objects, or texts where one is wanted."""
    columns = None
    for where, item in _items(path, b"".join(source).decode("utf-8-sig")):
        if isinstance(item, str) and len(inputs.names) == 1 and inputs.names != [WORD_LIST]:
            item = {inputs.names[0]: item}
        if columns is None and isinstance(item, dict):
            columns = inputs.columns(item)
        try:
            row = parse_json_row(where, json.dumps(item), columns or inputs.columns(()), ("id",))
        except InputError as error:
            refuse(error)
            continue
        yield where, row


def _items(path: str, text: str) -> Iterator[tuple[str, Any]]:
    """Where each item of a JSON array begins, and the item."""
    line_feeds = [match.start() for match in re.finditer("\n", text)]
    decoder = json.JSONDecoder()

    def where(place: int) -> str:
        return f"{path}, line {bisect.bisect(line_feeds, place) + 1}"

    def expect(condition: bool, what: str, reason: str = "") -> None:
        if not condition:
            raise InputError(
                f"{where(place)}: {what}. Received: {text[place : place + 60]!r}{reason}"
            )

    def skip(place: int) -> int:
        return _WHITESPACE.match(text, place).end()

    place = skip(0)
    expect(text[place : place + 1] == "[", "should be a JSON array")
    place = skip(place + 1)
    going_on = text[place : place + 1] != "]"
    while going_on:
        try:
            item, end = decoder.raw_decode(text, place)
        except (ValueError, RecursionError) as error:
            expect(False, "should be an item of a JSON array", f" ({error})")
        yield where(place), item
        place = skip(end)
        going_on = text[place : place + 1] == ","
        place = skip(place + going_on)
    expect(text[place : place + 1] == "]", "a comma, or the end of the JSON array, should follow")
    place = skip(place + 1)
    expect(place == len(text), "nothing should follow the JSON array")


def first_item(lines: Iterable[bytes]) -> bytes:
    """The first item of a JSON array as a line; nothing where there is none."""
    text = b"".join(lines).decode("utf-8-sig", "replace")
    with contextlib.suppress(InputError):  # the reader says what is wrong
        for _, item in _items("", text):
            return json.dumps(item).encode()
    return b""


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


def through_first(lines: Iterator[bytes], wanted: Callable[[bytes], Any]) -> list[bytes]:
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
