"""Experiments as JSON files: systems, budget, seeds, tasks, claims. Read without TensorFlow.

    {"about": {"source": "Table 3 of the ConvBERT supplement"},
     "statistic": "median",
     "systems": {"BERT": {"recipe": "configs/bert_small.json", "published": {"average": 75.1}}},
     "claims": [{"better": "ConvBERT", "than": "BERT", "published": 0.8}],
     "scales": {"hour": {"systems": ["BERT", "ConvBERT"]}}}

A scale's fields come from experiments/scales.json; those of the file under `scales` replace them.
A system's hyper-parameters are its recipe's, then its own `hparams`, those of the scale, and its
`reduced` ones of that scale.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
from dataclasses import field
from typing import Any

from convbert.common.errors import InputError, located
from convbert.common.settings import (
    above,
    at_least,
    check_fields,
    check_setting,
    checked_values,
    did_you_mean,
    one_of,
    read_json_object,
    reject_unknown,
    typed,
)

FOLDER = pathlib.Path(__file__).parent
SCALES = ("paper", "day", "hour")
AVERAGE = "average"  # of an experiment's tasks


@dataclasses.dataclass(frozen=True)
class System:
    """What is compared: a recipe of pre-training, and what differs from it."""

    recipe: str
    hparams: dict[str, Any] = field(default_factory=dict)
    reduced: dict[str, dict[str, Any]] = field(default_factory=dict)  # by scale
    published: dict[str, float] = field(default_factory=dict)  # by score
    steps_factor: float = field(default=1.0, metadata=above(0))  # times the budget's steps
    # The system whose finished run is the start, weights, optimizer and step; and which of the data
    # folders is read, if there are several.
    continue_from: str | None = None
    data: str = ""

    def __post_init__(self) -> None:
        check_fields(self)
        reject_unknown(self.reduced, [*SCALES])


@dataclasses.dataclass(frozen=True)
class Budget:
    """Updates of every system: `steps`, those that have `flops`, or those that fit in `hours`.

    With `flops_of`, `steps` are that system's, and the others get as many as have its FLOPs.
    """

    steps: int | None = field(default=None, metadata=at_least(1))
    flops: float | None = field(default=None, metadata=above(0))
    hours: float | None = field(default=None, metadata=above(0))
    flops_of: str | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        given = [name for name in ("steps", "flops", "hours") if getattr(self, name) is not None]
        if len(given) != 1 or (self.flops_of and not self.steps):
            raise InputError(
                "`budget` should have one of steps, flops, hours; `flops_of` belongs to steps."
                f" Received: {given}"
            )


@dataclasses.dataclass(frozen=True)
class Scale:
    """The size of an experiment. The paper's own has no budget: recipes say the updates."""

    data: str = ""  # how the data is built, for people
    systems: tuple[str, ...] = ()  # (): all
    hparams: dict[str, Any] = field(default_factory=dict)
    budget: dict[str, Any] = field(default_factory=dict)  # {}: the recipes' steps
    seeds: int = field(default=1, metadata=at_least(1))  # of pre-training
    evaluations: int = field(default=10, metadata=at_least(1))  # on held-out text
    recipe: str = "configs/finetune_convbert.json"
    tasks: dict[str, dict[str, Any]] = field(default_factory=dict)  # name -> hyper-parameters
    num_trials: int = field(default=1, metadata=at_least(1))  # seeds of fine-tuning
    # Checkpoints, evenly spaced, that are fine-tuned; 1: the last one.
    checkpoints: int = field(default=1, metadata=at_least(1))
    measures: dict[str, dict[str, Any]] = field(default_factory=dict)  # see `runs.MEASURES`

    def __post_init__(self) -> None:
        check_fields(self)
        fits = self.evaluations % self.checkpoints == 0
        check_setting(self, fits, "evaluations", f"a multiple of {self.checkpoints} checkpoints")


@dataclasses.dataclass(frozen=True)
class Claim:
    """A published difference: the score of `better` minus that of `than`."""

    better: str
    than: str
    score: str = AVERAGE  # a task, "average", or a metric such as "heldout disc_auc"
    published: float | None = None
    lower_is_better: bool = False
    no_worse: bool = False  # the claim is that the two are level


@dataclasses.dataclass(frozen=True)
class Experiment:
    """One experiment at one scale."""

    name: str
    about: dict[str, Any]
    statistic: str  # of fine-tuning runs: the paper's own
    systems: dict[str, System]  # those of the scale
    claims: tuple[Claim, ...]  # those about these systems
    scale_name: str
    scale: Scale

    @property
    def budget(self) -> Budget | None:
        """Returns the budget; None if the recipes' steps are it."""
        return Budget(**checked_values(Budget, self.scale.budget)) if self.scale.budget else None

    def values(self, system: str) -> dict[str, Any]:
        """Returns a system's hyper-parameters of pre-training, without seed and steps."""
        own = self.systems[system]
        merged: dict[str, Any] = {}
        layers = [read_json_object(own.recipe, "recipe"), own.hparams, self.scale.hparams]
        for layer in [*layers, own.reduced.get(self.scale_name, {})]:
            key = "model_hparam_overrides"
            overrides = {**merged.get(key, {}), **typed(key, layer.get(key, {}), dict)}
            merged |= {**layer, **({key: overrides} if overrides else {})}
        merged.pop("about", None)
        return merged


@dataclasses.dataclass(frozen=True)
class _File:
    """The fields of an experiment's file."""

    about: dict[str, Any]
    systems: dict[str, dict[str, Any]]
    claims: tuple[dict[str, Any], ...] = ()
    statistic: str = field(default="median", metadata=one_of("median", "mean", "best"))
    scales: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_fields(self)
        reject_unknown(self.scales, [*SCALES])


def names() -> list[str]:
    """Returns the names of the experiments that come with the project."""
    return sorted(path.stem for path in FOLDER.glob("*.json") if path.stem != "scales")


def load(name_or_path: str, scale: str, only: tuple[str, ...] = ()) -> Experiment:
    """Reads an experiment at a scale, with the systems of `only` if given.

    InputError for unknown names, with the nearest valid one, and values of wrong types.
    """
    path = name_or_path
    if not path.endswith(".json"):
        if path not in names():
            known = ", ".join(names())
            near = did_you_mean(path, names())
            raise InputError(f"--experiment should be a file or one of {known}.{near}")
        path = str(FOLDER / f"{path}.json")
    shared = read_json_object(str(FOLDER / "scales.json"))[scale]
    with located(path):
        file = _File(**checked_values(_File, read_json_object(path, "--experiment")))
        at = Scale(**checked_values(Scale, {**shared, **file.scales.get(scale, {})}))
        systems = {
            name: System(**checked_values(System, values)) for name, values in file.systems.items()
        }
        claims = tuple(Claim(**checked_values(Claim, values)) for values in file.claims)
        needed = [*at.systems, *only, *(name for c in claims for name in (c.better, c.than))]
        needed += [of for system in systems.values() if (of := system.continue_from)]
        reject_unknown(needed, [*systems])
        chosen = [n for n in at.systems or systems if not only or n in only]
        chosen += [of for n in chosen if (of := systems[n].continue_from) and of not in chosen]
        experiment = Experiment(
            name=os.path.splitext(os.path.basename(path))[0],
            about=file.about,
            statistic=file.statistic,
            systems={name: systems[name] for name in systems if name in chosen},
            claims=tuple(c for c in claims if c.better in chosen and c.than in chosen),
            scale_name=scale,
            scale=at,
        )
        if experiment.budget and (of := experiment.budget.flops_of):
            reject_unknown([of], [*systems])
    return experiment
