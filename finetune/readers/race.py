"""The files of RACE: {train,dev,test}/{middle,high}/N.txt, a JSON object for each article.

Source: G. Lai et al., "RACE: Large-scale ReAding Comprehension Dataset From Examinations",
arXiv 1704.04683; the layout of its official archive.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from common import storage
from common.errors import InputError, located, warn
from common.settings import typed
from finetune.readers.lines import read_object
from finetune.readers.tables import Row

_EXTENSION = ".txt"
_LISTS = ("questions", "options")


def read_race(path: str) -> Iterator[Row]:
    """Yields the questions of a folder of articles, or of its subfolders: `middle`, `high`.

    A row has `id`, `context`, `question`, `options`, `level` (the name of the folder) and, where
    the article has answers, `label`. Articles come in the order of their numbers.
    """
    folders = [path]
    if not storage.matching(path, f"*{_EXTENSION}"):
        folders = [os.path.join(path, name) for name in sorted(storage.listdir(path))]
        folders = [folder for folder in folders if storage.isdir(folder)]
        if len(folders) == 1:
            warn(f"{path}: only one level is there, {os.path.basename(folders[0])}")
    for folder in folders:
        level = os.path.basename(os.path.normpath(folder))
        files = storage.matching(folder, f"*{_EXTENSION}")
        for file in sorted(files, key=lambda name: (len(name), name)):
            yield from _questions(file, level)


def _questions(path: str, level: str) -> Iterator[Row]:
    article = read_object(path)
    with located(path):
        texts = {key: typed(key, article.get(key), str) for key in ("article", "id")}
        lists = {key: typed(key, article.get(key), tuple[Any, ...]) for key in _LISTS}
        if "answers" in article:
            lists["answers"] = typed("answers", article["answers"], tuple[Any, ...])
        if len({*map(len, lists.values())}) > 1:
            counts = ", ".join(f"{len(own)} {name}" for name, own in lists.items())
            raise InputError(f"lists should be of one length. Received: {counts}")
    for number, values in enumerate(zip(*lists.values())):
        row = dict(zip(("question", "options", "label"), values))
        row |= {"context": texts["article"], "level": level, "id": f"{texts['id']}-{number}"}
        yield f"{path}, questions[{number}]", row
