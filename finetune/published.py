"""Published figures: scores on development sets, parameters, training FLOPs.

`published.csv` holds one row per published model, with printed figures only, none read off a plot;
from SCRIPT's Table 2 only the columns in which all three rows are legible. `published_tasks.csv`
holds figures of single tasks outside of GLUE, for models of any kind.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Mapping
from typing import Any

import pandas as pd

from convbert.model.architectures import ANY_VALUE, named_size

_TASKS = ("mnli", "qnli", "qqp", "rte", "sst", "mrpc", "cola", "sts", "race_middle")
_SETTINGS: tuple[str, ...] = ("num_train_steps", "max_seq_length", "train_batch_size")
_SETTINGS += ("vocab_size", "generator_hidden_size")
_OBJECTIVES = {"RTD": "replaced_token_detection", "MLM": "masked_lm"}
_OBJECTIVES |= {"SCRIPT": "self_critic", "PLM": "permutation_lm"}
# Table II of the ALE report; MRPC and QQP use accuracy, as everywhere here.
_METRICS = {"ALE report, Table IV": {"sts": "pearson"}}


@dataclasses.dataclass(frozen=True)
class Published:
    """One row of a published table."""

    name: str  # model, objective and data as printed with the FLOPs
    size: str  # a name in `model.SIZES`
    changes: dict[str, Any]  # fields in which the architecture differs from the size
    source: str  # document and table
    pretraining: str  # objective, amount of text or FLOPs, updates, if known
    settings: dict[str, Any]  # hyper-parameters (`pretrain.hparams`) for counting FLOPs
    scores: dict[str, float]  # task, or "average" of the eight -> headline score, times 100
    errors: dict[str, float]  # standard errors, if printed
    statistic: str  # "median", "mean" or "best" and number of runs; "" if unknown
    metrics: dict[str, str]  # task -> metric, if not the task's main one
    params: float | None = None  # number of parameters, if printed
    flops: float | None = None  # of training, if printed


def _published(cells: dict[str, Any]) -> Published:
    """Converts a line of `published.csv`."""

    def numbers(*names: str) -> dict[str, Any]:
        return {name: json.loads(cells[name]) for name in names if cells[name]}

    objective = _OBJECTIVES[cells["objective"]]
    parts = {name: cells[name].split("±") for name in ("average", *_TASKS) if cells[name]}
    return Published(
        **{name: cells[name] for name in ("name", "size", "source", "statistic")},
        changes=json.loads(cells["changes"] or "{}"),
        pretraining=f"{cells['objective']}, {cells['amount']}",
        settings={"model_size": cells["size"], "objective": objective, **numbers(*_SETTINGS)},
        scores={name: float(part[0]) for name, part in parts.items()},
        errors={name: float(part[1]) for name, part in parts.items() if len(part) > 1},
        metrics=_METRICS.get(cells["source"], {}),
        **numbers("params", "flops"),
    )


def _lines(name: str) -> list[dict[str, str]]:
    path = pathlib.Path(__file__).with_name(name)
    return pd.read_csv(path, dtype=str, keep_default_na=False).to_dict("records")


PUBLISHED = tuple(map(_published, _lines("published.csv")))
# task, model, score (times 100), metric, split, statistic, source, note (differences in data).
PUBLISHED_TASKS = _lines("published_tasks.csv")


def published_rows(run: Mapping[str, Any]) -> list[Published]:
    """Returns the published rows with the architecture and objective of a run (`result.json`).

    There are none for random weights, or if the pre-training objective is not known.
    """

    def same(row: Published) -> bool:
        size = named_size(row.size).replace(**row.changes)
        theirs = {"architecture": None, **size.to_json()}
        ours = {**theirs, "architecture": None, **run["hparams"]["encoder"]}
        return all(ours[name] == theirs[name] for name in theirs if name not in ANY_VALUE)

    rows = PUBLISHED if run["init"] == "pretrained" else ()
    return [r for r in rows if r.settings["objective"] == run.get("objective") and same(r)]
