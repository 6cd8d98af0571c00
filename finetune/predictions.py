"""Predictions of a split in files that people and other programs can read, and the worst of them.

One JSON object per line and example, in the order of the split's file:

    classification  {"id", "prediction": label name, "probabilities": {label name: p}}
    regression      {"id", "prediction": number in the unit of the labels}
    tagging         {"id", "words": [...], "prediction": [tag names]}
    span            {"id", "prediction": text, "score": log probability, "null_score"}

and "label" in the same form as "prediction", where the split is labelled (span: all gold answers).
The number of a regression is not clipped and may lie outside `label_range`; so it is scored, and so
an exported model answers.
"""

from __future__ import annotations

import functools
import json
import math
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from errors import InputError
from files import write_text
from finetune.squad.score import QA_NA_THRESHOLD
from finetune.task import Example, Task

Outputs = dict[str, np.ndarray]


def write_split(
    folder: str,
    split: str,
    task: Task,
    examples: Sequence[Example],
    answers: Sequence,
    outputs: Outputs,
    *,
    threshold: float = QA_NA_THRESHOLD,
) -> str:
    """Writes `FOLDER/SPLIT.jsonl`; for span tasks also the files that the official scripts read.

    Args:
        folder: an existing folder.
        split: the split's name.
        task: what was predicted.
        examples: of the split.
        answers: one per example, as `finetune.metrics.answers` gives.
        outputs: what the network predicted, see `write`.
        threshold: of the null score, see `write`.

    Returns:
        The path of the file.

    Raises:
        InputError: a file that cannot be written.
    """
    path = os.path.join(folder, f"{split}.jsonl")
    write(path, task, examples, answers, outputs, threshold=threshold)
    if task.kind == "span":
        from finetune.squad.score import write_predictions

        settings = {"version_2": task.version_2, "threshold": threshold}
        write_predictions(folder, split, examples, answers, **settings)
    return path


def write(
    path: str,
    task: Task,
    examples: Sequence[Example],
    answers: Sequence,
    outputs: Outputs | None = None,
    *,
    threshold: float = QA_NA_THRESHOLD,
) -> None:
    """Writes predictions, one JSON object per line; the file appears whole or not at all.

    Args:
        path: the file.
        task: what was predicted.
        examples: of the split.
        answers: one per example, as `finetune.metrics.answers` gives.
        outputs: classification: with `logits` float [n, L], a row per example; else not used.
        threshold: questions count as unanswerable where their `null_score` is above it.

    Raises:
        InputError: the file cannot be written.
    """
    rows = _rows(task, examples, answers, outputs or {}, threshold)
    write_text(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def read(path: str) -> list[dict[str, Any]]:
    """The objects that `write` wrote.

    Raises:
        InputError: the file cannot be read, or a line is not an object with "prediction".
    """
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().split("\n")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    rows = []
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise InputError(f"{path}, line {number}: should be JSON: {error}") from error
        if not isinstance(row, dict) or "prediction" not in row:
            raise InputError(
                f'{path}, line {number}: should be an object with "prediction". Received: '
                f"{line[:80]}"
            )
        rows.append(row)
    return rows


def _rows(
    task: Task,
    examples: Sequence[Example],
    answers: Sequence,
    outputs: Outputs,
    threshold: float,
):
    """Yields the object of each example."""
    shares = probabilities(outputs["logits"]) if "logits" in outputs else [None] * len(examples)
    for index, (example, answer) in enumerate(zip(examples, answers, strict=True)):
        row: dict[str, Any] = {"id": example.id}
        if task.kind == "classification":
            row["prediction"] = task.labels[answer]
            if shares[index] is not None:
                values = (round(float(share), 6) for share in shares[index])
                row["probabilities"] = dict(zip(task.labels, values))
        elif task.kind == "regression":
            # JSON has no word for what is not a number.
            row["prediction"] = float(answer) if math.isfinite(answer) else None
        elif task.kind == "tagging":
            row["words"] = list(example.words)
            row["prediction"] = [task.labels[tag] for tag in answer]
        else:
            row["prediction"] = _decided(task, answer, threshold)
            row |= {"score": float(answer.score), "null_score": float(answer.null_score)}
        gold = _gold(task, example)
        yield row if gold is None else row | {"label": gold}


def probabilities(logits: np.ndarray) -> np.ndarray:
    """The probabilities that logits stand for, [n, L]."""
    from scipy.special import softmax

    return softmax(np.asarray(logits, np.float64), axis=-1)


def _decided(task: Task, answer, threshold: float) -> str:
    """The answer's text, or "" where the question counts as unanswerable."""
    return "" if task.version_2 and answer.null_score > threshold else answer.text


def _gold(task: Task, example: Example) -> Any:
    """The gold label as it stands in the files; None where there is none."""
    if task.kind == "span":
        return list(example.answers) if example.answers or example.is_impossible else None
    if task.kind == "tagging":
        return None if example.tags is None else [task.labels[tag] for tag in example.tags]
    if task.kind == "classification":
        return None if example.label is None else task.labels[example.label]
    return example.label


# ---------------------------------------------------------------- largest errors


def largest_errors(
    task: Task,
    examples: Sequence[Example],
    answers: Sequence,
    outputs: Outputs | None,
    n: int,
    *,
    threshold: float = QA_NA_THRESHOLD,
) -> str:
    """The n errors that speak most against the model, as Markdown.

    Classification: the wrong labels of highest probability. Regression: the largest differences.
    Tagging: the sentences with most wrong tags. Span: the answers without a word in common with a
    gold one (F1 of 0) of highest probability, "no answer" among them.

    Args:
        task: what was predicted.
        examples: labelled; those without a label are passed over.
        answers: one per example, as `finetune.metrics.answers` gives.
        outputs: as for `write`.
        n: how many.
        threshold: of the null score, as for `write`.
    """
    found = []
    describe = _DESCRIBE[task.kind]
    if task.kind == "span":
        describe = functools.partial(describe, threshold=threshold)
    shares = probabilities(outputs["logits"]) if outputs and "logits" in outputs else None
    for index, (example, answer) in enumerate(zip(examples, answers, strict=True)):
        if _gold(task, example) is None:
            continue
        share = None if shares is None else float(shares[index][answer])
        error = describe(task, example, answer, share)
        if error is not None:
            found.append((error[0], index, error[1]))
    found.sort(key=lambda error: (-error[0], error[1]))
    lines = [f"# Largest errors: {task.name}", ""]
    lines.append(f"{min(n, len(found))} of {len(found):,} among {len(examples):,} examples.")
    for number, (_, index, description) in enumerate(found[:n], 1):
        lines += ["", f"## {number}. {examples[index].id}", "", description]
    return "\n".join(lines) + "\n"


# Each gives how bad an error is and what it says, or None where the answer is right.
_Error = tuple[float, str] | None


def _classification_error(task: Task, example, answer: int, share: float | None) -> _Error:
    if answer == example.label:
        return None
    how_sure = "" if share is None else f" with probability {share:.3f}"
    said = f"Predicted **{task.labels[answer]}**{how_sure}; it is **{task.labels[example.label]}**."
    return share or 0.0, said + _quoted(example.text_a, example.text_b)


def _regression_error(task: Task, example, answer: float, share: float | None) -> _Error:
    if answer == example.label:
        return None
    difference = abs(answer - example.label)
    said = f"Predicted **{answer:.2f}**; it is **{example.label:.2f}**."
    text = said + _quoted(example.text_a, example.text_b)
    return (difference if math.isfinite(difference) else math.inf), text


def _tagging_error(task: Task, example, answer: tuple[int, ...], share: float | None) -> _Error:
    words, wrong = [], 0
    for word, predicted, gold in zip(example.words, answer, example.tags):
        if predicted != gold:
            wrong += 1
            word = f"**{word}** [{task.labels[predicted]}, not {task.labels[gold]}]"
        words.append(word)
    if not wrong:
        return None
    return float(wrong), f"{wrong} of {len(words)} tags wrong." + _quoted(" ".join(words))


def _span_error(task: Task, example, answer, share: float | None, threshold: float) -> _Error:
    from finetune.squad.score import official_scores

    settings = {"version_2": task.version_2, "threshold": threshold}
    if official_scores([example], [answer], **settings)["f1"] > 0:
        return None
    predicted = _decided(task, answer, threshold)
    # The null score is a logit; its log probability compares with that of a span.
    sure = answer.score if predicted else -float(np.logaddexp(0.0, -answer.null_score))
    gold = ", ".join(dict.fromkeys(example.answers)) or "no answer"
    said = f"Predicted **{predicted or 'no answer'}**, {sure:.2f}; it is **{gold}**."
    return sure, said + _quoted(example.question, example.context)


_DESCRIBE: dict[str, Callable[..., _Error]] = {
    "classification": _classification_error,
    "regression": _regression_error,
    "tagging": _tagging_error,
    "span": _span_error,
}


def _quoted(*texts: str | None) -> str:
    """Texts as Markdown quotations, a paragraph each."""
    return "".join("\n\n> " + " ".join(text.split()) for text in texts if text)
