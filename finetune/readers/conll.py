"""Tagged sentences: columns between spaces or tabs (CoNLL shared tasks), and CoNLL-U."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from typing import Any

from errors import InputError
from finetune.readers.lines import read_lines
from finetune.readers.tables import Row

# https://universaldependencies.org/format.html
_CONLLU_COLUMNS = (
    "id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc"
)  # fmt: skip
CONLLU_TAGS = {"upos": 3, "xpos": 4, "deprel": 7}
_NOT_A_WORD = re.compile(r"\d+-\d+$|\d+\.\d+$")


def read_conll(
    path: str,
    columns: dict[str, str | int],
    *,
    tagged: bool = True,
    source: Iterable[bytes] | None = None,
) -> Iterator[Row]:
    """Yields sentences {"words", "tags", "tag_places"} of a file with one word per line.

    Columns stand between tabs or, in lines without tabs, spaces; all other whitespace, such as a
    no-break space, is part of a word. A blank line ends a sentence, and so does a line whose first
    column is "-DOCSTART-", which is passed over. Tags are taken as they are: no scheme (IOB1, BIO,
    BIOES) is converted into another.

    Args:
        path: the file.
        columns: the numbers, from 0 or negative from the end, of "words" and "tags".
        tagged: whether there must be tags; if not, "tags" may be missing from `columns` or from
            the file.
        source: see `read_lines`.

    Raises:
        InputError: a column that is not a number, a line with too few or too many columns, words
            and tags in one column.
    """
    found, width = _Sentence(), 0
    for number, line in itertools.chain(read_lines(path, source=source), [(0, "")]):
        fields = _split(line)
        if not fields or fields[0] == "-DOCSTART-":
            if found.words:
                yield found.places[0], found.row()
                found = _Sentence()
            continue
        where = f"{path}, line {number}"
        if not width:
            width = len(fields)
            columns = _within(where, columns, width, tagged)
        if len(fields) != width:
            raise InputError(
                f"{where}: should have {width} columns, as the lines before. Received: {line!r:.60}"
            )
        found.add(where, fields, columns)


class _Sentence:
    """The words of a sentence as far as it is read, with their tags and places."""

    def __init__(self) -> None:
        self.words, self.tags, self.places = [], [], []

    def add(self, where: str, fields: list[str], columns: dict[str, int]) -> None:
        self.words.append(_field(where, fields, "words", columns["words"]))
        if "tags" in columns:
            self.tags.append(_field(where, fields, "tags", columns["tags"]))
        self.places.append(where)

    def row(self) -> dict[str, Any]:
        return {"words": self.words, "tags": self.tags or None, "tag_places": self.places}


def _split(line: str) -> list[str]:
    if "\t" in line and line.strip(" \t"):
        return [field.strip(" ") for field in line.split("\t")]
    return [field for field in line.split(" ") if field.strip("\t")]


def _within(
    where: str, columns: dict[str, str | int], width: int, tagged: bool
) -> dict[str, str | int]:
    """The columns, counted from 0, of a file of so many; without tags where it has none."""
    within: dict[str, int] = {}
    for role, column in columns.items():
        fits = isinstance(column, int) and -width <= column < width
        if fits and column % width not in within.values():
            within[role] = column % width
        elif tagged or role != "tags":
            raise InputError(
                f"{where}: `{role}` should have a column of its own among {width}, by its number"
                f" from 0. Received: {column!r}"
            )
    return within


def _field(where: str, fields: list[str], role: str, column: int) -> str:
    # A no-break space may be all of a word, but is no part of a tag.
    field = fields[column].strip(" " if role == "words" else None)
    if not field:
        raise InputError(f"{where}: `{role}` should not be empty. Received: {fields[column]!r}")
    return field


def read_conllu(
    path: str, column: str | int, *, source: Iterable[bytes] | None = None
) -> Iterator[Row]:
    """Yields sentences {"id", "words", "tags", "tag_places"} of a CoNLL-U file.

    Multiword tokens (ids such as 1-2) and empty nodes (8.1) are passed over: their words and
    nothing else stand on lines of their own.

    Args:
        path: the file.
        column: of the tags: "upos", "xpos" or "deprel".
        source: see `read_lines`.

    Raises:
        InputError: a line without the format's ten columns.
    """
    found, identity = _Sentence(), {}
    for number, line in itertools.chain(read_lines(path, source=source), [(0, "")]):
        where = f"{path}, line {number}"
        if line.startswith("#"):
            name, _, value = line[1:].partition("=")
            if name.strip() == "sent_id":
                identity = {"id": value.strip()}
        elif not line.strip():
            if found.words:
                yield found.places[0], identity | found.row()
            found, identity = _Sentence(), {}
        else:
            fields = line.split("\t")
            if len(fields) != len(_CONLLU_COLUMNS):
                raise InputError(
                    f"{where}: should have the ten columns {', '.join(_CONLLU_COLUMNS)}, "
                    f"separated by tabs. Received: {len(fields)}"
                )
            if not _NOT_A_WORD.match(fields[0]):
                found.add(where, fields, {"words": 1, "tags": CONLLU_TAGS[column]})
