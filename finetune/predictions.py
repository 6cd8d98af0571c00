"""Predictions of a split in files that people and other programs can read, and the worst of them.

One JSON object per line and example, in the order of the split's file: {"id", "prediction", ...},
and "label" in the same form as "prediction", where the split is labelled. See `row` and `gold` of
each kind of task (finetune/kinds/).
"""

from __future__ import annotations

import json
import os
from typing import Any

from common.files import parse_json, write_text
from finetune.kinds.predicted import Predicted
from finetune.readers.lines import read_lines


def write(folder: str, split: str, predicted: Predicted) -> str:
    """Writes `FOLDER/SPLIT.jsonl`, whose path it returns, and what else the kind of task writes."""
    task, kind = predicted.task, predicted.task.plugin
    lines = []
    for number, example in enumerate(predicted.examples):
        row = {"id": example.id, **kind.row(predicted, number)}
        if (gold := kind.gold(task, example)) is not None:
            row["label"] = gold
        lines.append(json.dumps(row, ensure_ascii=False) + "\n")
    path = os.path.join(folder, f"{split}.jsonl")
    write_text(path, "".join(lines))
    kind.write_files(predicted, folder, split)
    return path


def read(path: str) -> list[dict[str, Any]]:
    """The objects that `write` wrote; InputError for a file that is damaged."""
    return [parse_json(line, where) for where, line in read_lines(path) if line]


def largest_errors(predicted: Predicted, n: int) -> str:
    """The n errors that are largest by `Kind.error`, as Markdown; unlabelled examples have none."""
    task, kind, found = predicted.task, predicted.task.plugin, []
    for number, example in enumerate(predicted.examples):
        labelled = kind.gold(task, example) is not None
        if labelled and (size := kind.error(predicted, number)) is not None:
            found.append((size, number))
    found.sort(key=lambda error: -error[0])  # stable: of equal ones in the order of the examples
    text = f"# Largest errors: {task.name}\n\n{min(n, len(found))} of {len(found):,} among"
    text += f" {len(predicted.examples):,} examples.\n"
    for place, (size, number) in enumerate(found[:n], 1):
        example, row = predicted.examples[number], kind.row(predicted, number)
        answer, gold = (_text(x) for x in (row["prediction"], kind.gold(task, example)))
        text += f"\n## {place}. {example.id}\n\nPredicted **{answer}**; it is **{gold}**."
        text += f" Error: {size:.3f}.\n"
        for value in kind.request(task, example).values():
            text += f"\n> {' '.join(_text(value).split())}\n"
    return text


def _text(value: Any) -> str:
    return (", ".join(value) or "none") if isinstance(value, list) else str(value)
