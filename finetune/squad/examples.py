"""Questions with their contexts and answers, from files in the format of SQuAD."""

from __future__ import annotations

import dataclasses
from typing import Any

from errors import InputError
from finetune.readers.lines import read_object

_KINDS = {str: "a text", int: "a whole number", list: "a list"}


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
            occurs twice, no question at all. Names the question, by its place ("data[0]") where it
            has no id.
    """
    examples: dict[str, QuestionExample] = {}
    for article, at_article in _members(read_object(path), "data", path, f"{path}, "):
        for paragraph, place in _members(article, "paragraphs", at_article, f"{at_article}."):
            context = _text(paragraph, "context", place)
            for question, at_question in _members(paragraph, "qas", place, f"{place}."):
                example = _example(question, context, path, at_question, training)
                if example.id in examples:
                    raise InputError(f"{path}, question {example.id}: the id occurs twice")
                examples[example.id] = example
    if not examples:
        raise InputError(f"{path}: there is no question in it")
    return list(examples.values())


def check_answer_start(text: str, start: int, context: str, where: str) -> None:
    """Raises InputError where an answer does not stand at `start` in its context.

    The error begins with `where`, and says what stands there and where the answer is nearest to it.
    """
    there = context[max(start, 0) : max(start, 0) + len(text)]
    if start >= 0 and there == text:
        return
    before = context.rfind(text, 0, max(start, 0) + len(text))
    found = [place for place in (before, context.find(text, max(start, 0))) if place >= 0]
    nearest = min(found, key=lambda place: abs(place - start), default=None)
    hint = "it occurs nowhere there" if nearest is None else f"it stands at {nearest}"
    raise InputError(
        f"{where}: the answer {text!r} should stand at character {start} of its context, counted "
        f"from 0 ({hint}). Received: {there!r}"
    )


def question_of_row(row: dict[str, Any], where: str) -> QuestionExample:
    """The question of a row of tensorflow-datasets; an InputError begins with `where`."""
    answers = row["answers"]
    if not isinstance(answers, dict) or not {"text", "answer_start"} <= set(answers):
        raise InputError(
            f"{where}: `answers` should hold lists `text` and `answer_start`. "
            f"Received: {answers!r:.60}"
        )
    texts, starts = answers["text"], answers["answer_start"]
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


def _example(question: Any, context: str, path: str, place: str, training: bool) -> QuestionExample:
    identifier = _text(question, "id", place)
    where = f"{path}, question {identifier}"
    text = _text(question, "question", where)
    is_impossible = question.get("is_impossible", False)
    if not isinstance(is_impossible, bool):
        raise InputError(
            f"{where}: `is_impossible` should be true or false. Received: {is_impossible!r:.60}"
        )
    answers, answer_start = (), None
    if not is_impossible:
        given = _member(question, "answers", list, where, default=None if training else [])
        places = [_answer_start(answer, context, where, training) for answer in given]
        answers, answer_start = tuple(answer["text"] for answer in given), next(iter(places), None)
    return QuestionExample(identifier, text, context, answers, answer_start, is_impossible)


def _answer_start(answer: Any, context: str, where: str, training: bool) -> int | None:
    """The place of one answer, which is checked."""
    text = _text(answer, "text", where)
    if not text.strip():
        raise InputError(f"{where}: an answer should be more than whitespace. Received: {text!r}")
    if not training and answer.get("answer_start") is None:
        return None
    start = _member(answer, "answer_start", int, where)
    check_answer_start(text, start, context, where)
    return start


def _members(item: Any, key: str, where: str, begin: str) -> list[tuple[Any, str]]:
    """The members of the list `item[key]`, each with its place: `begin` and "data[0]"."""
    members = _member(item, key, list, where)
    return [(member, f"{begin}{key}[{index}]") for index, member in enumerate(members)]


def _member(item: Any, key: str, kind: type, where: str, default: Any = None) -> Any:
    """`item[key]`, which should be there and of a kind."""
    if not isinstance(item, dict):
        raise InputError(f"{where}: `{key}` should be in a JSON object. Received: {item!r:.60}")
    value = item.get(key, default)
    if not isinstance(value, kind) or isinstance(value, bool):
        received = f"{value!r:.60}" if key in item else f"only {', '.join(item) or 'nothing'}"
        raise InputError(f"{where}: `{key}` should be {_KINDS[kind]}. Received: {received}")
    return value


def _text(item: Any, key: str, where: str) -> str:
    value = _member(item, key, str, where)
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{where}: `{key}` holds half a surrogate pair: {error}") from error
    return value
