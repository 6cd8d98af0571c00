"""Files in the format of SQuAD, and the questions in them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from common.errors import located
from common.settings import typed
from finetune.readers.lines import read_object
from finetune.readers.tables import Row


def read_squad(path: str) -> Iterator[Row]:
    """Yields the questions of a JSON file of SQuAD 1.1 or 2.0, or of your own in that format.

        {"data": [{"paragraphs": [{"context": "...", "qas": [{"id": "...", "question": "...",
          "is_impossible": false, "answers": [{"text": "...", "answer_start": 0}]}]}]}]}

    A row has the keys of the question and `context`. Errors name the question, by its place
    ("data[0]") where it has no id.
    """
    for at_article, article in _items(path, read_object(path), "data"):
        for place, paragraph in _items(at_article, article, "paragraphs"):
            for at_question, question in _items(place, paragraph, "qas"):
                with located(at_question):
                    identity = typed("id", question.get("id"), str)
                row = {**question, "context": paragraph.get("context")}
                yield f"{path}, question {identity}", row


def _items(where: str, item: dict[str, Any], key: str) -> list[tuple[str, dict[str, Any]]]:
    """The objects of the list `item[key]`, each with its place."""
    with located(where):
        found = typed(key, item.get(key), tuple[dict[str, Any], ...])
    return [(f"{where}, {key}[{index}]", each) for index, each in enumerate(found)]
