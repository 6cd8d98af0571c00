"""Questions with their contexts and answers, from files in the format of SQuAD."""

from __future__ import annotations

import dataclasses
from typing import Any

from errors import InputError, located
from finetune.readers.lines import read_object
from settings import typed


@dataclasses.dataclass(frozen=True)
class QuestionExample:
    """A question whose answer is a span of its context."""

    id: str
    question: str
    context: str
    answers: tuple[str, ...]  # gold ones, of which a development set has several
    answer_start: int | None  # offset of the first in `context`; None: unlabelled, unanswerable
    is_impossible: bool  # whether the context holds no answer (SQuAD 2.0)


def read_squad(path: str, *, training: bool) -> list[QuestionExample]:
    """Reads a file of SQuAD 1.1 or 2.0, or one of your own in that format.

        {"data": [{"paragraphs": [{"context": "...", "qas": [{"id": "...", "question": "...",
          "is_impossible": false, "answers": [{"text": "...", "answer_start": 0}]}]}]}]}

    Args:
        path: a JSON file in UTF-8. `is_impossible` may be missing: then the question has an answer.
        training: whether every question needs `answers` with their places in the context, or else
            `is_impossible`. Otherwise both may be missing.

    Raises:
        InputError: not JSON, a missing key, an answer that is not where it should be, an id that
            occurs twice. Names the question, by its place ("data[0]") where it has no id.
    """
    examples: dict[str, QuestionExample] = {}
    for at_article, article in _items(path, read_object(path), "data"):
        for place, paragraph in _items(at_article, article, "paragraphs"):
            context = _get(place, paragraph, "context", str)
            for at_question, question in _items(place, paragraph, "qas"):
                where = f"{path}, question {_get(at_question, question, 'id', str)}"
                example = _example(where, question, context, training)
                if example.id in examples:
                    raise InputError(f"{where}: the id occurs twice")
                examples[example.id] = example
    return list(examples.values())


def check_answer_start(text: str, start: int, context: str, where: str) -> None:
    """Raises InputError, which begins with `where`, if an answer is not at `start` in `context`."""
    there = context[max(start, 0) : max(start, 0) + len(text)]
    if start < 0 or there != text:
        found = context.find(text)
        hint = "occurs nowhere there" if found < 0 else f"stands at {found}"
        raise InputError(
            f"{where}: the answer {text!r} should stand at character {start} of its context,"
            f" counted from 0 (it {hint}). Received: {there!r}"
        )


def question_of_row(row: dict[str, Any], where: str) -> QuestionExample:
    """The question of a row of tensorflow-datasets; an InputError begins with `where`."""
    texts, starts = (row["answers"][name] for name in ("text", "answer_start"))
    impossible = bool(row.get("is_impossible", False))
    for text, start in [] if impossible else zip(texts, starts):
        check_answer_start(text, start, row["context"], where)
    return QuestionExample(
        row["id"],
        row["question"],
        row["context"],
        () if impossible else tuple(texts),
        None if impossible or not starts else starts[0],
        impossible,
    )


def _example(where: str, question: dict[str, Any], context: str, training: bool) -> QuestionExample:
    text = _get(where, question, "question", str)
    impossible = _get(where, {"is_impossible": False, **question}, "is_impossible", bool)
    answers, starts = [], []
    if not impossible:
        optional = {} if training else {"answers": []}
        for place, answer in _items(where, {**optional, **question}, "answers"):
            answers.append(_get(place, answer, "text", str))
            if not answers[-1].strip():
                raise InputError(f"{place}: `text` should be more than whitespace")
            if training or answer.get("answer_start") is not None:
                start = _get(place, answer, "answer_start", int)
                check_answer_start(answers[-1], start, context, place)
                starts.append(start)
    start = next(iter(starts), None)
    return QuestionExample(question["id"], text, context, tuple(answers), start, impossible)


def _items(where: str, item: dict[str, Any], key: str) -> list[tuple[str, dict[str, Any]]]:
    """The objects of the list `item[key]`, each with its place."""
    found = _get(where, item, key, tuple[dict[str, Any], ...])
    return [(f"{where}, {key}[{index}]", each) for index, each in enumerate(found)]


def _get(where: str, item: dict[str, Any], key: str, annotation: Any) -> Any:
    with located(where):
        return typed(key, item.get(key), annotation)
