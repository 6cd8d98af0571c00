"""Reader of tagged sentences of the Penn Treebank (.pos files).

A split is a file, a list of files (`NAME.files`: a path or a pattern per line, from the folder of
the list), or sections of the Wall Street Journal: `FOLDER@00-18` is FOLDER/00/wsj_00*, ... or
FOLDER/wsj_00*, ...
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator

from convbert.common import storage
from convbert.common.errors import InputError
from convbert.finetune.readers.conll import sentence
from convbert.finetune.readers.lines import Place, read_lines
from convbert.finetune.readers.tables import Row

LIST_EXTENSION = ".files"
_SECTIONS = re.compile(r"(.*)@(\d\d)-(\d\d)$", re.DOTALL)
_CHUNK = ("[", "]")  # the brackets of .pos files
_AFTER_END = ("''", ")")  # tags that may follow a sentence's full stop
_COPYRIGHT = "*x*"  # beginning of copyright lines in the LDC's files


def has_sections(path: str) -> bool:
    """Returns True if `path` names sections and at least one exists."""
    return any(_sections(path).values())


def files_of(path: str) -> list[str]:
    """Returns the files of a split, in order."""
    sections = _sections(path)
    if missing := [number for number, files in sections.items() if not files]:
        raise InputError(
            f"{path}: there should be files wsj_NN* for all sections; lists of files declare "
            f"other splits. Received: none for {', '.join(missing)}"
        )
    if path.endswith(LIST_EXTENSION):
        return list(_listed(path))
    return [file for own in sections.values() for file in own] or [path]


def _sections(path: str) -> dict[str, list[str]]:
    """Returns number -> files of each section that a path names; {} if it names none."""
    found = _SECTIONS.match(path)
    if found is None:
        return {}
    folder, first, last = found.groups()
    sections = {}
    for number in (f"{number:02}" for number in range(int(first), int(last) + 1)):
        below = storage.matching(os.path.join(folder, number), f"wsj_{number}*")
        sections[number] = below or storage.matching(folder or ".", f"wsj_{number}*")
    return sections


def _listed(path: str) -> Iterator[str]:
    for where, line in read_lines(path):
        name = line.strip()
        if name and not name.startswith("#"):
            pattern = os.path.join(os.path.dirname(path), name)
            files = list(filter(storage.isfile, storage.matching(*os.path.split(pattern))))
            files = [pattern] if storage.isfile(pattern) else files
            if not files:
                raise InputError(f"{where}: there is no such file: {name}")
            yield from files


def read_treebank(path: str) -> Iterator[Row]:
    """Yields sentences {"words", "tags"} of .pos files; see `files_of`.

    Words are unescaped: `3\\/4` is 3/4. Tags are not changed; alternatives such as VBG|NN are
    reduced to the first.
    """
    for file in files_of(path):
        yield from _read_pos(file)


def _read_pos(file: str) -> Iterator[Row]:
    """Yields sentences, which end at a line of ====, or a blank line after the full stop.

    There are blank lines within sentences, and before a closing quotation mark, too.
    """
    words: list[tuple[Place, str, str]] = []
    complete = False
    for where, line in itertools.chain(read_lines(file), [(Place(file, 0), "==")]):
        text = line.strip()
        if line.startswith(_COPYRIGHT):
            continue
        if not text:
            tags = [tag for _, _, tag in words if tag not in _AFTER_END]
            complete = tags[-1:] == ["."]  # the full stop
            continue
        if set(text) == {"="}:
            if words:
                yield sentence(words)
            words, complete = [], False
            continue
        for field in text.split():
            if field in _CHUNK:
                continue
            word, _, tag = field.rpartition("/")
            if not word or not tag:
                raise InputError(f"{where}: should be words as word/TAG. Received: {field!r:.60}")
            if complete and tag not in _AFTER_END:
                yield sentence(words)
                words, complete = [], False
            word = word.replace("\\/", "/").replace("\\*", "*")
            words.append((where, word, tag.partition("|")[0]))
