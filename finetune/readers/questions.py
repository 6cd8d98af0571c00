"""Readers of questions in RACE and SQuAD files.

RACE has {train,dev,test}/{middle,high}/N.txt, a JSON object for each article.
Source: G. Lai et al., "RACE: Large-scale ReAding Comprehension Dataset From Examinations",
arXiv 1704.04683; the layout of its official archive.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from convbert.common import storage
from convbert.common.errors import InputError, located
from convbert.common.settings import typed
from convbert.finetune.readers.lines import read_object
from convbert.finetune.readers.tables import Row

_EXTENSION = ".txt"
_LISTS = ("questions", "options")


def read_race(path: str) -> Iterator[Row]:
    """Yields the questions of a folder of articles, or of its subfolders `middle` and `high`.

    A row has `id`, `context`, `question`, `options` and, if the article has answers, `label`.
    Articles are sorted by number.
    """
    folders = [path]
    if not storage.matching(path, f"*{_EXTENSION}"):
        folders = [os.path.join(path, name) for name in sorted(storage.listdir(path))]
        folders = [folder for folder in folders if storage.isdir(folder)]
    for folder in folders:
        files = storage.matching(folder, f"*{_EXTENSION}")
        for file in sorted(files, key=lambda name: (len(name), name)):
            yield from _questions(file)


def _questions(path: str) -> Iterator[Row]:
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
        row |= {"context": texts["article"], "id": f"{texts['id']}-{number}"}
        yield f"{path}, questions[{number}]", row


def read_squad(path: str) -> Iterator[Row]:
    """Yields the questions of a JSON file of SQuAD 1.1 or 2.0, or of your own in that format.

        {"data": [{"paragraphs": [{"context": "...", "qas": [{"id": "...", "question": "...",
          "is_impossible": false, "answers": [{"text": "...", "answer_start": 0}]}]}]}]}

    A row has the keys of the question and `context`. Errors name the question by its id.
    """
    for at_article, article in _items(path, read_object(path), "data"):
        for place, paragraph in _items(at_article, article, "paragraphs"):
            for at_question, question in _items(place, paragraph, "qas"):
                with located(at_question):
                    identity = typed("id", question.get("id"), str)
                row = {**question, "context": paragraph.get("context")}
                yield f"{path}, question {identity}", row


def _items(where: str, item: dict[str, Any], key: str) -> list[tuple[str, dict[str, Any]]]:
    """Returns the objects of the list `item[key]` with their places."""
    with located(where):
        found = typed(key, item.get(key), tuple[dict[str, Any], ...])
    return [(f"{where}, {key}[{index}]", each) for index, each in enumerate(found)]
