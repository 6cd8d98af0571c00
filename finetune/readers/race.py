"""The files of RACE: {train,dev,test}/{middle,high}/N.txt, a JSON object for each article.

Source: G. Lai et al., "RACE: Large-scale ReAding Comprehension Dataset From Examinations",
arXiv 1704.04683; the layout of its official archive.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import storage
from errors import InputError, located, warn
from finetune.readers.lines import read_object
from finetune.readers.tables import Row
from settings import typed

_EXTENSION = ".txt"
_TEXTS = ("article", "id")
_LISTS = ("questions", "options")


def read_race(path: str) -> Iterator[Row]:
    """Yields the questions of a folder of articles, or of its subfolders: `middle`, `high`.

    A row has `id`, `context`, `question`, `options`, `level` (the name of the folder) and, where
    the article has answers, `label`. Articles come in the order of their numbers.
    """
    names = storage.listdir(path)
    if any(name.endswith(_EXTENSION) for name in names):
        folders = [path]
    else:
        folders = [os.path.join(path, name) for name in sorted(names)]
        folders = [folder for folder in folders if storage.isdir(folder)]
        if len(folders) == 1:
            warn(f"{path}: only one level is there, {os.path.basename(folders[0])}")
    for folder in folders:
        level = os.path.basename(os.path.normpath(folder))
        found = [name for name in storage.listdir(folder) if name.endswith(_EXTENSION)]
        for name in sorted(found, key=lambda name: (len(name), name)):
            yield from _questions(os.path.join(folder, name), level)


def _questions(path: str, level: str) -> Iterator[Row]:
    article = read_object(path)
    with located(path):
        texts = {key: typed(key, article.get(key), str) for key in _TEXTS}
        lists = {key: typed(key, article.get(key), tuple[Any, ...]) for key in _LISTS}
        if "answers" in article:
            lists["answers"] = typed("answers", article["answers"], tuple[Any, ...])
        if len({*map(len, lists.values())}) > 1:
            counts = ", ".join(f"{len(own)} {name}" for name, own in lists.items())
            raise InputError(f"lists should be of one length. Received: {counts}")
    for number, values in enumerate(zip(*lists.values())):
        row = dict(zip(("question", "options", "label"), values))
        row |= {"context": texts["article"], "level": level}
        yield f"{path}, questions[{number}]", {"id": f"{texts['id']}-{number}", **row}
