"""The settings of a sweep: a grid of hyper-parameters, and names of its points."""

from __future__ import annotations

import itertools
from typing import Any

from finetune import kinds
from finetune.hparams import FinetuningHParams
from settings import reject_unknown, typed

# What the ConvBERT authors searched, in the text above Table 2 of the supplement.
PAPER_GRID = {
    "learning_rate": [5e-5, 1e-4, 2e-4, 3e-4],
    "weight_decay_rate": [0.01, 0.1],
    "num_train_epochs": [10, 3],
}
_SHORT = {"learning_rate": "lr", "weight_decay_rate": "wd", "num_train_epochs": "epochs"}
NOT_SWEPT = ("seed", "precision", "init")


def grid_points(grid: dict[str, Any]) -> list[dict[str, Any]]:
    """All combinations of a grid, {hyper-parameter: list of values}; of an empty one, itself.

    Raises:
        InputError: an unknown name, or no list of values.
    """
    reject_unknown(grid, [name for name in kinds.hparam_names() if name not in NOT_SWEPT])
    grid = {name: typed(name, values, tuple[Any, ...]) for name, values in grid.items()}
    return [dict(zip(grid, values)) for values in itertools.product(*grid.values())]


def setting_of(hparams: FinetuningHParams, swept: dict[str, Any]) -> dict[str, Any]:
    """What tells settings apart in reports: what the papers vary, and what this sweep does."""
    return {
        name: getattr(hparams, name) for name in [*_SHORT, *(n for n in swept if n not in _SHORT)]
    }


def folder_name(setting: dict[str, Any], init: str) -> str:
    """A folder name for a setting, such as `lr3e-04_wd0.01_epochs3`."""
    parts = []
    for name, value in setting.items():
        text = f"{value:.6g}" if isinstance(value, float) else str(value)
        parts.append(f"{_SHORT.get(name, name + '-')}{text}")
    return "_".join([*parts, *([] if init == "pretrained" else [init])])
