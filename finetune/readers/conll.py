"""Readers of tagged sentences: columns of the CoNLL shared tasks, and CoNLL-U."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping

from convbert.common.errors import InputError
from convbert.finetune.readers.lines import Place, read_lines
from convbert.finetune.readers.tables import Row

_CONLLU_WIDTH = 10  # https://universaldependencies.org/format.html
CONLLU_TAGS = {"upos": 3, "xpos": 4, "deprel": 7}
_NOT_A_WORD = re.compile(r"\d+[-.]\d+\t")
_Word = tuple[Place, str, str | None]  # place, word, tag


def read_conll(
    path: str, columns: Mapping[str, str | int], *, tagged: bool = True
) -> Iterator[Row]:
    """Yields sentences {"words", "tags"} of a file with one word per line.

    Columns are separated by tabs or, in lines without tabs, spaces; other whitespace, such as a
    no-break space, is part of a word. A sentence ends at a blank line, or at a line whose first
    column is "-DOCSTART-". Tags are not changed. Unless `tagged`, "tags" may be missing from
    `columns` or the file.
    """
    words: list[_Word] = []
    own: dict[str, int] = {}
    width = 0
    for where, line in itertools.chain(read_lines(path), [(Place(path, 0), "")]):
        fields = _split(line)
        if not fields or fields[0] == "-DOCSTART-":
            if words:
                yield sentence(words)
            words = []
            continue
        if not width:
            width = len(fields)
            own = _within(where, columns, width, tagged)
        words.append(_word(where, fields, own, width))


def sentence(words: Iterable[_Word]) -> Row:
    """Makes a sentence's row from (place, word, tag or None) of its words."""
    places, texts, tags = (list(column) for column in zip(*words))
    return places[0], {"words": texts, "tags": None if tags[0] is None else tags}


def _word(where: Place, fields: list[str], columns: dict[str, int], width: int) -> _Word:
    if len(fields) != width:
        raise InputError(
            f"{where}: should have {width} columns, as in the format or the lines before."
            f" Received: {fields!r:.60}"
        )
    # A no-break space may be a word, but is not part of a tag.
    word = fields[columns["words"]].strip(" ")
    tag = fields[columns["tags"]].strip() if "tags" in columns else None
    if word == "" or tag == "":
        role = "tags" if word else "words"
        raise InputError(f"{where}: `{role}` should not be empty. Received: {fields!r:.60}")
    return where, word, tag


def _split(line: str) -> list[str]:
    if "\t" in line and line.strip(" \t"):
        return [field.strip(" ") for field in line.split("\t")]
    return [field for field in line.split(" ") if field.strip("\t")]


def _within(
    where: Place, columns: Mapping[str, str | int], width: int, tagged: bool
) -> dict[str, int]:
    """Returns the columns, from 0, of a file with `width` of them; without missing tags."""
    within: dict[str, int] = {}
    for role, column in sorted(columns.items(), reverse=True):  # words first
        place = column % width if isinstance(column, int) and -width <= column < width else None
        if place is not None and place not in within.values():
            within[role] = place
        elif tagged or role != "tags":
            raise InputError(
                f"{where}: `{role}` should have its own column among {width}, given by its number"
                f" from 0. Received: {column!r}"
            )
    return within


def read_conllu(path: str, column: str) -> Iterator[Row]:
    """Yields sentences {"id", "words", "tags"} of a CoNLL-U file.

    Skips multiword tokens (ids such as 1-2), whose words have their own lines, and empty nodes
    (8.1).
    """
    words: list[_Word] = []
    identity, columns = {}, {"words": 1, "tags": CONLLU_TAGS[column]}
    for where, line in itertools.chain(read_lines(path), [(Place(path, 0), "")]):
        if line.startswith("#"):
            name, _, value = line[1:].partition("=")
            if name.strip() == "sent_id":
                identity = {"id": value.strip()}
        elif not line.strip():
            if words:
                place, row = sentence(words)
                yield place, identity | row
            words, identity = [], {}
        else:
            word = _word(where, line.split("\t"), columns, _CONLLU_WIDTH)
            if not _NOT_A_WORD.match(line):
                words.append(word)
