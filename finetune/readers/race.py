"""The files of RACE: {train,dev,test}/{middle,high}/N.txt, a JSON object for each article.

Source: G. Lai et al., "RACE: Large-scale ReAding Comprehension Dataset From Examinations",
arXiv 1704.04683; the layout of its official archive.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from typing import Any

import storage
from errors import InputError, warn
from finetune.readers.lines import read_object
from finetune.readers.tables import Row

_EXTENSION = ".txt"
_TEXTS = ("article", "id")
_LISTS = ("questions", "options")


def read_race(path: str) -> Iterator[Row]:
    """Yields the questions of a folder of articles, or of its subfolders: `middle`, `high`.

    A row has `id`, `context`, `question`, `options`, `level` (the name of the folder) and, where
    the article has answers, `label`. Articles come in the order of their numbers.

    Raises:
        InputError: a file that is not as it should be; names it and the question.
    """
    names = storage.listdir(path)
    if any(name.endswith(_EXTENSION) for name in names):
        folders = [path]
    else:
        folders = [os.path.join(path, name) for name in sorted(names)]
        folders = [folder for folder in folders if storage.isdir(folder)]
        if len(folders) == 1:
            _say_once(folders[0])
    for folder in folders:
        level = os.path.basename(os.path.normpath(folder))
        found = [name for name in storage.listdir(folder) if name.endswith(_EXTENSION)]
        for name in sorted(found, key=lambda name: (len(name), name)):
            yield from _questions(os.path.join(folder, name), level)


@functools.cache
def _say_once(folder: str) -> None:
    """A split is looked at before it is read."""
    warn(f"{os.path.dirname(folder)}: only one level is there, {os.path.basename(folder)}")


def _questions(path: str, level: str) -> Iterator[Row]:
    article = read_object(path)
    for key, kind in (*dict.fromkeys(_TEXTS, str).items(), *dict.fromkeys(_LISTS, list).items()):
        if not isinstance(article.get(key), kind):
            wanted = "a text" if kind is str else "a list"
            received = f"{article[key]!r:.60}" if key in article else ", ".join(article)
            raise InputError(f"{path}: `{key}` should be {wanted}. Received: {received}")
    columns: dict[str, list[Any]] = {name: article[name] for name in _LISTS}
    if "answers" in article:
        columns["answers"] = article["answers"]
    counts = {name: len(x) if isinstance(x, list) else None for name, x in columns.items()}
    if len({*counts.values()}) > 1:
        told = ", ".join(f"{count} {name}" for name, count in counts.items())
        raise InputError(f"{path}: lists should be of one length. Received: {told}")
    for number, values in enumerate(zip(*columns.values())):
        row = dict(zip(("question", "options", "label"), values))
        row |= {"context": article["article"], "level": level}
        yield f"{path}, questions[{number}]", {"id": f"{article['id']}-{number}", **row}
