"""Experiments as JSON files: systems, budget, seeds, tasks, claims. Read without TensorFlow.

    {"about": {"source": "Table 3 of the ConvBERT supplement"},
     "statistic": "median",
     "systems": {"BERT": {"recipe": "configs/bert_small.json", "published": {"average": 75.1}}},
     "claims": [{"better": "ConvBERT", "than": "BERT", "published": 0.8}],
     "scales": {"hour": {"systems": ["BERT", "ConvBERT"]}}}

A scale's fields come from experiments/scales.json; those of the file replace them, of `hparams`
each for itself. A system's hyper-parameters are its recipe's, then its own `hparams`, those of the
scale, and its `reduced` ones of that scale. Paths are relative to the current folder.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from convbert.common.errors import InputError, located
from convbert.common.settings import (
    above,
    at_least,
    check_setting,
    one_of,
    parsed,
    read_json_object,
    reject_unknown,
    typed,
)

FOLDER = pathlib.Path(__file__).parent
SCALES = ("paper", "day", "hour")
AVERAGE = "average"  # of an experiment's tasks
GRID = "grid"  # among a task's hyper-parameters: a list of changes; the best of them counts


@dataclasses.dataclass(frozen=True)
class System:
    """A system to compare: a recipe of pre-training, and the differences from it."""

    recipe: str
    hparams: dict[str, Any] = field(default_factory=dict)
    reduced: dict[str, dict[str, Any]] = field(default_factory=dict)  # by scale
    published: dict[str, float] = field(default_factory=dict)  # by score
    finetuning: dict[str, Any] = field(default_factory=dict)  # hyper-parameters for all its tasks
    steps_factor: float = field(default=1.0, metadata=above(0))  # times the budget's steps
    continue_from: str | None = None  # the system whose finished run is the start
    data: str = ""  # the name of its data folder, if there are several


@dataclasses.dataclass(frozen=True)
class Scale:
    """The size of an experiment."""

    data: str = ""  # how the data is built, for people
    systems: tuple[str, ...] = ()  # (): all
    hparams: dict[str, Any] = field(default_factory=dict)
    # The budget of every system: updates, those that have so many FLOPs, or those that fit in so
    # many hours here; none: the recipes' updates. With `flops_of`, `steps` are that system's, and
    # the others get as many as have its FLOPs.
    steps: int | None = field(default=None, metadata=at_least(1))
    flops: float | None = field(default=None, metadata=above(0))
    hours: float | None = field(default=None, metadata=above(0))
    flops_of: str | None = None
    seeds: int = field(default=1, metadata=at_least(1))  # of pre-training
    evaluations: int = field(default=10, metadata=at_least(1))  # on held-out text
    recipe: str = "configs/finetune_convbert.json"
    tasks: dict[str, dict[str, Any]] = field(default_factory=dict)  # see `GRID`
    num_trials: int = field(default=1, metadata=at_least(1))  # seeds of fine-tuning
    # Checkpoints, evenly spaced, that are fine-tuned; 1: the last one.
    checkpoints: int = field(default=1, metadata=at_least(1))
    measures: dict[str, dict[str, Any]] = field(default_factory=dict)  # see `parts.MEASURES`

    def __post_init__(self) -> None:
        fits = self.evaluations % self.checkpoints == 0
        check_setting(self, fits, "evaluations", f"a multiple of {self.checkpoints} checkpoints")
        given = [n for n in ("steps", "flops", "hours") if getattr(self, n) is not None]
        if len(given) > 1 or (self.flops_of and not self.steps):
            raise InputError(f"one of `steps`, `flops`, `hours` should be given. Received: {given}")


@dataclasses.dataclass(frozen=True)
class Claim:
    """A published difference: the score of `better` minus that of `than`."""

    better: str
    than: str
    score: str = AVERAGE  # a task, "average", or a metric such as "heldout disc_auc"
    than_score: str | None = None  # of `than`, if another one
    published: float | None = None
    lower_is_better: bool = False
    # The claim is that `better` is worse by less than this, if it is not that it is better.
    margin: float | None = field(default=None, metadata=above(0))
    scales: tuple[str, ...] = SCALES  # at which it can be judged


@dataclasses.dataclass(frozen=True)
class File:
    """The content of an experiment's file."""

    about: dict[str, Any]
    systems: dict[str, System]
    claims: tuple[Claim, ...] = ()
    statistic: str = field(default="median", metadata=one_of("median", "mean", "best"))
    scales: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Experiment(File):
    """One experiment at one scale; `claims` are those about the systems of the scale."""

    name: str
    scale_name: str
    scale: Scale
    chosen: tuple[str, ...]  # the systems of the scale
    output_dir: str = ""
    data_dirs: Mapping[str, str] = field(default_factory=dict)  # by name; "" is the main one
    tasks_dir: str = ""  # with the tasks' folders
    run_values: Mapping[str, Any] = field(default_factory=dict)  # settings of all pre-training

    @property
    def folder(self) -> str:
        """Returns the folder of its report."""
        return os.path.join(self.output_dir, f"{self.name}-{self.scale_name}")

    def values(self, system: str) -> dict[str, Any]:
        """Returns a system's hyper-parameters of pre-training, without seed and budget."""
        own, key = self.systems[system], "model_hparam_overrides"
        layers = [read_json_object(own.recipe, "recipe"), own.hparams, self.scale.hparams]
        merged: dict[str, Any] = {}
        for layer in [*layers, own.reduced.get(self.scale_name, {})]:
            overrides = {**merged.get(key, {}), **typed(key, layer.get(key, {}), dict)}
            merged |= {**layer, **({key: overrides} if overrides else {})}
        merged.pop("about", None)
        return merged


def grid(task: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the changes of a task's hyper-parameters that are tried; [{}]: none."""
    points = [typed(GRID, of, dict) for of in typed(GRID, task.get(GRID, [{}]), list)]
    if not points or any(points.count(of) > 1 for of in points):
        raise InputError(f"`{GRID}` should be different changes. Received: {points}")
    return points


def names() -> list[str]:
    """Returns the names of the experiments that come with the project."""
    return sorted(path.stem for path in FOLDER.glob("*.json") if path.stem != "scales")


def load(name_or_path: str, scale: str, **given: Any) -> Experiment:
    """Reads an experiment at a scale.

    `given` are the fields `output_dir`, `data_dirs`, `tasks_dir` and `run_values` of Experiment.

    InputError for unknown names, with the nearest valid one, and values of wrong types.
    """
    path = name_or_path
    if not path.endswith(".json"):
        with located("--experiment"):
            reject_unknown([path], names())
        path = str(FOLDER / f"{path}.json")
    shared = read_json_object(str(FOLDER / "scales.json"))[scale]
    with located(path):
        file = parsed(File, read_json_object(path, "--experiment"))
        systems, own = file.systems, file.scales.get(scale, {})
        named = [of.reduced for of in systems.values()] + [of.scales for of in file.claims]
        reject_unknown([*file.scales, *(s for of in named for s in of)], [*SCALES])
        if {"flops", "hours"} & {*own}:  # in place of the shared budget
            shared.pop("steps", None)
        hparams = {**shared.get("hparams", {}), **typed("hparams", own.get("hparams", {}), dict)}
        at = parsed(Scale, {**shared, **own, "hparams": hparams})
        starts = {n: of.continue_from for n, of in systems.items() if of.continue_from}
        said = [*at.systems, *starts.values(), *filter(None, [at.flops_of])]
        reject_unknown([*said, *(n for c in file.claims for n in (c.better, c.than))], [*systems])
        if chains := [n for n, of in starts.items() if of in starts]:
            raise InputError(f"{chains[0]}: `continue_from` should be a system without a start")
    chosen = [*(at.systems or systems)]
    chosen += [starts[n] for n in chosen if n in starts]
    claims = [c for c in file.claims if {c.better, c.than} <= {*chosen} and scale in c.scales]
    return Experiment(
        **vars(file) | {"claims": tuple(claims)},
        name=os.path.splitext(os.path.basename(path))[0],
        scale_name=scale,
        scale=at,
        chosen=tuple(n for n in systems if n in chosen),
        **given,
    )
