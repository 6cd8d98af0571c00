"""A made-up task of each kind, whose sequences have no padding. Imports no TensorFlow."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable
from typing import Any

from benchmarks.texts import texts
from errors import InputError
from finetune.declaration import read
from finetune.task import Task

_LABELS = ("no", "yes")
_TAGS = 45  # of the Penn Treebank


def made_up_task(kind: str, count: int, length: int, folder: str) -> tuple[Task, dict[str, Any]]:
    """Writes a task of `count` sequences of `length` pieces.

    Returns:
        The task, and the hyper-parameters that make sequences of this length of it.

    Raises:
        InputError: there is no made-up task of this kind.
    """
    if kind not in _MADE_UP:
        raise InputError(
            f"benchmarks/made_up_tasks.py has no task of the kind {kind!r}, only of"
            f" {', '.join(_MADE_UP)}"
        )
    declaration, rows, hparams = _MADE_UP[kind](texts(count, length))
    name = f"examples.{declaration.pop('format')}"
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        file.writelines(f"{json.dumps(row)}\n" for row in rows)
    path = os.path.join(folder, f"{kind}.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"kind": kind, "files": {"train": name, "dev": name}, **declaration}, file)
    return read(path), {"max_seq_length": length, **hparams}


def _classification(lines: list[str]):
    rows = [{"text": t, "label": label} for t, label in zip(lines, itertools.cycle(_LABELS))]
    return {"format": "jsonl", "columns": {"text_a": "text", "label": "label"}}, rows, {}


def _multi_label(lines: list[str]):
    declaration, rows, hparams = _classification(lines)
    return declaration, [{**row, "label": [row["label"]]} for row in rows], hparams


def _regression(lines: list[str]):
    rows = [{"text": text, "label": i % 3 / 2} for i, text in enumerate(lines)]
    return {"format": "jsonl", "columns": {"text_a": "text", "label": "label"}}, rows, {}


def _tagging(lines: list[str]):
    rows = [{"words": text.split(), "tags": _tags(text)} for text in lines]
    return {"format": "jsonl", "columns": {"words": "words", "tags": "tags"}}, rows, {}


def _tags(text: str) -> list[str]:
    return [f"t{i % _TAGS}" for i, _ in enumerate(text.split())]


def _span(lines: list[str]):
    """The first quarter of a text, less a [SEP], is the question about the rest."""
    asked = len(lines[0].split()) // 4
    paragraphs = []
    for i, text in enumerate(lines):
        words = text.split()
        question, context = words[:asked], words[asked + 1 :]
        answer = {"text": context[0], "answer_start": 0}
        asks = {"id": str(i), "question": " ".join(question), "answers": [answer]}
        paragraphs.append({"context": " ".join(context), "qas": [asks | {"is_impossible": False}]})
    squad = {"version": "v2.0", "data": [{"title": "made up", "paragraphs": paragraphs}]}
    hparams = {"max_query_length": asked, "doc_stride": asked}
    return {"format": "json", "version_2": True}, [squad], hparams


def _multiple_choice(lines: list[str]):
    """Two texts are an example: the first half of the one, less a [SEP], and both second halves."""
    half, rows = len(lines[0].split()) // 2, []
    for i, pair in enumerate(zip(lines[::2], lines[1::2])):
        options = [" ".join(text.split()[half + 1 :]) for text in pair]
        context = " ".join(pair[0].split()[:half])
        rows.append({"context": context, "options": options, "label": i % 2})
    columns = {name: name for name in ("context", "options", "label")}
    declaration = {"format": "jsonl", "columns": columns, "labels": ["0", "1"]}
    return declaration, rows, {"max_qa_length": half}


_MADE_UP: dict[str, Callable] = {
    "classification": _classification,
    "multi_label": _multi_label,
    "regression": _regression,
    "tagging": _tagging,
    "span": _span,
    "multiple_choice": _multiple_choice,
}
