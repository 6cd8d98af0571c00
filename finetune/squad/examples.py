"""Questions with their contexts and answers, from files in the format of SQuAD."""

from __future__ import annotations

from typing import Any

import files
from errors import InputError
from finetune.task import QuestionExample


def read_squad(path: str, *, training: bool) -> list[QuestionExample]:
    """Reads a file of SQuAD 1.1 or 2.0, or one of your own in that format.

        {"data": [{"paragraphs": [{"context": "...", "qas": [{"id": "...", "question": "...",
          "is_impossible": false, "answers": [{"text": "...", "answer_start": 0}]}]}]}]}

    Args:
        path: a JSON file in UTF-8. `is_impossible` may be missing: then the question has an answer.
        training: whether every question needs an answer and its place in the context, or else
            `is_impossible`. Otherwise `answers` may be missing, and `answer_start` too.

    Returns:
        The questions in the order of the file.

    Raises:
        InputError: not JSON, a missing key, an answer that is not where it should be, an id that
            occurs twice, no question at all. Names the question.
    """
    examples: dict[str, QuestionExample] = {}
    for article in _member(_read(path), "data", list, path):
        for paragraph in _member(article, "paragraphs", list, path):
            context = _text(paragraph, "context", path)
            for question in _member(paragraph, "qas", list, path):
                example = _example(question, context, path, training)
                if example.id in examples:
                    raise InputError(f"{path}, question {example.id}: the id occurs twice")
                examples[example.id] = example
    if not examples:
        raise InputError(f"{path}: there is no question in it")
    return list(examples.values())


def _example(question: Any, context: str, path: str, training: bool) -> QuestionExample:
    identifier = _text(question, "id", path)
    where = f"{path}, question {identifier}"
    text = _text(question, "question", where)
    is_impossible = question.get("is_impossible", False)
    if not isinstance(is_impossible, bool):
        raise InputError(f"{where}: `is_impossible` should be a bool. Received: {is_impossible!r}")
    answers, answer_start = (), None
    if not is_impossible:
        given = _member(question, "answers", list, where, default=None if training else [])
        places = [_answer_start(answer, context, where, training) for answer in given]
        answers, answer_start = tuple(answer["text"] for answer in given), next(iter(places), None)
        if training and not answers:
            raise InputError(f"{where}: has no answer, and is not marked `is_impossible`")
    return QuestionExample(identifier, text, context, answers, answer_start, is_impossible)


def _answer_start(answer: Any, context: str, where: str, training: bool) -> int | None:
    """Checks one answer."""
    text = _text(answer, "text", where)
    if not text.strip():
        raise InputError(f"{where}: an answer should be more than blanks. Received: {text!r}")
    if not training and answer.get("answer_start") is None:
        return None
    start = _member(answer, "answer_start", int, where)
    there = context[max(start, 0) : max(start, 0) + len(text)]
    if start < 0 or there != text:
        raise InputError(
            f"{where}: the answer {text!r} should stand at character {start} of its context."
            f" Received: {there!r}"
        )
    return start


def _read(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8-sig") as file:  # a byte order mark is passed over
            text = file.read()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: should be UTF-8: {error}") from error
    return files.parse_json(text, path)


def _member(item: Any, key: str, kind: type, where: str, default: Any = None) -> Any:
    """`item[key]`, which should be there and of a kind."""
    if not isinstance(item, dict):
        raise InputError(f"{where}: `{key}` should be in a JSON object. Received: {item!r:.60}")
    value = item.get(key, default)
    if not isinstance(value, kind) or isinstance(value, bool):
        received = f"{value!r:.60}" if key in item else f"only {', '.join(item) or 'nothing'}"
        raise InputError(f"{where}: `{key}` should be a {kind.__name__}. Received: {received}")
    return value


def _text(item: Any, key: str, where: str) -> str:
    value = _member(item, key, str, where)
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{where}: `{key}` holds half a surrogate pair: {error}") from error
    return value
