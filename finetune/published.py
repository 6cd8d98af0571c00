"""Figures that the papers print: development sets' scores, parameters, training FLOPs.

`published.csv` holds one row per published model, with the document and table it is from. Only
printed figures are in it, none read off a plot; of SCRIPT's Table 2 only the columns in which all
three rows are legible. The models are pre-trained on far more text than the quickstart's:
`pretraining` says how much. `published_tasks.csv` holds figures of single tasks outside of GLUE, of
models of any kind.
"""

from __future__ import annotations

import csv
import dataclasses
import json
import pathlib
from collections.abc import Mapping
from typing import Any

from model.sizes import ANY_VALUE, named_size

_TASKS = ("mnli", "qnli", "qqp", "rte", "sst", "mrpc", "cola", "sts", "race_middle")
_SETTINGS = ("num_train_steps", "max_seq_length", "train_batch_size", "vocab_size")
_SETTINGS += ("generator_hidden_size",)
_OBJECTIVES = {
    "RTD": "replaced_token_detection",
    "MLM": "masked_lm",
    "SCRIPT": "self_critic",
    "PLM": "permutation_lm",
}
# Table II of the ALE report; MRPC and QQP are by accuracy, as everywhere here.
_METRICS = {"ALE report, Table IV": {"sts": "pearson"}}


@dataclasses.dataclass(frozen=True)
class Published:
    """One row of a published table.

    Attributes:
        name: model, objective and data as the table prints them, where it prints FLOPs.
        size: the model's name in `model.sizes.SIZES`.
        changes: fields of the architecture in which the model differs from that size.
        source: document and table.
        pretraining: objective, amount of text or of FLOPs, updates, as far as the source tells.
        settings: hyper-parameters (see `pretrain.hparams`) that count the row's FLOPs.
        params: number of parameters; None where the source does not print it, as the next one.
        flops: training FLOPs.
        scores: task (as in `finetune.glue`), or "average" of the eight GLUE tasks -> headline
            score, times 100.
        errors: the same -> standard error, where the source prints it.
        statistic: "median", "mean" or "best" of how many runs a score is; "" where not printed.
        metrics: task -> metric, where the source uses another one than `finetune.glue`'s main one.
    """

    name: str
    size: str
    changes: dict[str, Any]
    source: str
    pretraining: str
    settings: dict[str, Any]
    scores: dict[str, float]
    errors: dict[str, float]
    statistic: str
    metrics: dict[str, str]
    params: float | None = None
    flops: float | None = None

    def is_of(self, encoder: Mapping[str, Any], objective: str | None) -> bool:
        """Returns True for a model of this architecture (as `config.json`) and objective."""
        own = named_size(self.size).replace(**self.changes).to_json()
        same = objective == self.settings["objective"]
        same = same and encoder.get("architecture") == own.get("architecture")
        return same and all(encoder.get(k, own[k]) == own[k] for k in own if k not in ANY_VALUE)


def _published(cells: dict[str, str]) -> Published:
    """The row of a line of `published.csv`."""

    def numbers(*names: str) -> dict[str, float]:
        return {name: json.loads(cells[name]) for name in names if cells[name]}

    settings = {"model_size": cells["size"], **numbers(*_SETTINGS)}
    settings["objective"] = _OBJECTIVES[cells["objective"]]
    parts = {name: cells[name].split("±") for name in ("average", *_TASKS) if cells[name]}
    return Published(
        name=cells["name"],
        size=cells["size"],
        changes=json.loads(cells["changes"] or "{}"),
        source=cells["source"],
        pretraining=f"{cells['objective']}, {cells['amount']}",
        settings=settings,
        scores={name: float(part[0]) for name, part in parts.items()},
        errors={name: float(part[1]) for name, part in parts.items() if len(part) > 1},
        statistic=cells["statistic"],
        metrics=_METRICS.get(cells["source"], {}),
        **numbers("params", "flops"),
    )


def _lines(name: str) -> list[dict[str, str]]:
    with open(pathlib.Path(__file__).with_name(name), encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


PUBLISHED = tuple(map(_published, _lines("published.csv")))
# task, model, score (times 100), metric, split, statistic, source, note: how the data differ.
PUBLISHED_TASKS = _lines("published_tasks.csv")


def published_rows(run: Mapping[str, Any]) -> list[Published]:
    """The rows of the architecture and the objective of a run, the content of a `result.json`.

    None for random weights, or where the objective of the pre-training is not known.
    """
    if run["init"] != "pretrained" or not run.get("objective"):
        return []
    encoder = run["hparams"]["encoder"]
    return [row for row in PUBLISHED if row.is_of(encoder, run["objective"])]
