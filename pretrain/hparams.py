"""All settings of pre-training, with ELECTRA's and ConvBERT's names where those exist."""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import field
from typing import Any

import tf_keras

from convbert.common import storage
from convbert.common.errors import InputError
from convbert.common.settings import (
    at_least,
    check_fields,
    check_setting,
    field_names,
    one_of,
    present,
    reject_unknown,
    replace_checked,
    typed,
    within,
)
from convbert.data.build_options import PACKING_GAP
from convbert.data.manifest import build_settings
from convbert.model import BackboneConfig, named_size
from convbert.pretrain import objectives
from convbert.pretrain.objectives import ObjectiveSettings
from convbert.training.objective import Objective
from convbert.training.optimizer import WarmupTimesDecay, create_optimizer

_DEFAULT = "replaced_token_detection"
# Encoder fields at the top level of the original's JSON; here they are overrides.
ENCODER_NAMES = ("embedding_size", "conv_type", "conv_kernel_size", "linear_groups", "head_ratio")
_MIXERS = {"sdconv": "mixed", "noconv": "attention", "convonly": "convolution"}  # `conv_type`


@dataclasses.dataclass(frozen=True)
class PretrainingHParams:
    """Settings that change results. Defaults are the original ConvBERT code's.

    In JSON, `objective` is a name, and the objective's fields are at the top level.

    `resolve_hparams` replaces None by the default of the model size (`SIZE_DEFAULTS`) or of the
    data.
    """

    objective: ObjectiveSettings = field(default_factory=objectives.get(_DEFAULT))

    # Optimization.
    # "adam" is ELECTRA's, "stable_adamw" ModernBERT's.
    optimizer: str = field(default="adam", metadata=one_of("adam", "lamb", "stable_adamw"))
    # The peak; ELECTRA's "warmup_times_decay" never reaches it, see `training.optimizer`.
    learning_rate: float | None = field(default=None, metadata=at_least(0))
    lr_schedule: str = field(
        default="warmup_times_decay",
        metadata=one_of("warmup_times_decay", "warmup_then_decay", "trapezoidal"),
    )
    lr_decay_power: float = field(default=1.0, metadata=at_least(0))
    num_decay_steps: int = field(default=0, metadata=at_least(0))  # of "trapezoidal", the last ones
    weight_decay_rate: float = field(default=0.01, metadata=at_least(0))
    num_warmup_steps: int = field(default=10_000, metadata=at_least(0))
    num_train_steps: int = field(default=1_000_000, metadata=at_least(1))
    schedule_from_step: int = 0  # where warm-up and decay begin; --additional_steps sets it
    train_batch_size: int | None = field(default=None, metadata=at_least(1))  # over all devices
    max_seq_length: int = field(default=128, metadata=at_least(1))

    # Model.
    model_size: str = "medium-small"
    model_hparam_overrides: dict = field(default_factory=dict)  # fields of the encoder
    # The vocabulary's size. `model_hparam_overrides` may set a larger one: additional rows are
    # padding.
    vocab_size: int | None = None
    do_lower_case: bool | None = None  # default: as in the data's vocabulary

    # Set from flags, kept here because they change results.
    seed: int = field(default=0, metadata=within(0, 2**31))
    precision: str = field(default="float32", metadata=one_of("float32", "mixed_bfloat16"))

    def __post_init__(self) -> None:
        check_fields(self)
        steps = self.num_train_steps
        expected = f"at least 0 and less than num_train_steps ({steps})"
        check_setting(self, 0 <= self.schedule_from_step < steps, "schedule_from_step", expected)
        decay = self.num_decay_steps
        if self.lr_schedule != "trapezoidal":
            check_setting(self, decay == 0, "num_decay_steps", "0, but for lr_schedule trapezoidal")
            return
        power = self.lr_decay_power
        check_setting(self, power == 1.0, "lr_decay_power", "1 for lr_schedule trapezoidal")
        longest = max(1, steps - self.schedule_from_step - self.num_warmup_steps)
        expected = f"from 1 to {longest}, the steps after warm-up"
        check_setting(self, 1 <= decay <= longest, "num_decay_steps", expected)

    def as_json(self) -> dict[str, Any]:
        """Returns all settings as one object, which `parse_hparams` reads."""
        values = dataclasses.asdict(self)
        return values | {"objective": self.objective.name} | dataclasses.asdict(self.objective)

    def build_objective(self, config: BackboneConfig, special_ids: dict[str, int]) -> Objective:
        """Returns the objective with its networks; see `ObjectiveSettings.build`."""
        return self.objective.build(self, config, special_ids)

    def build_optimizer(self, objective: Objective) -> tf_keras.optimizers.Optimizer:
        """Returns the optimizer of an objective, with its slots."""
        schedule = WarmupTimesDecay(
            present(self.learning_rate),
            self.num_train_steps,
            self.num_warmup_steps,
            self.lr_decay_power,
            self.schedule_from_step,
            self.lr_schedule,
            self.num_decay_steps,
        )
        variables = objective.trainable_variables
        followers = [variable for variable, _ in objective.followers]
        return create_optimizer(
            self.optimizer, schedule, self.weight_decay_rate, variables, followers=followers
        )


@dataclasses.dataclass(frozen=True)
class RunSettings:
    """Settings that affect speed and what is kept, but not the learned weights."""

    strategy: str = "one_device"
    tpu: str | None = None  # see `training.distribution.create_strategy`
    xla: bool = False
    micro_batch_size: int | None = field(default=None, metadata=at_least(1))  # null: all at once
    rematerialize: bool = False
    iterations_per_loop: int = field(default=20, metadata=at_least(1))  # the logging interval
    save_checkpoints_steps: int = field(default=1000, metadata=at_least(1))  # and evaluate
    keep_checkpoint_max: int = field(default=5, metadata=at_least(0))  # 0: all
    max_skipped_steps: int = field(default=3, metadata=at_least(0))  # whose loss is not finite
    num_eval_steps: int = 100  # -1: all held-out batches
    eval_batch_size: int | None = field(default=None, metadata=at_least(1))  # train_batch_size

    def __post_init__(self) -> None:
        check_fields(self)
        valid = self.num_eval_steps >= 1 or self.num_eval_steps == -1
        check_setting(self, valid, "num_eval_steps", "at least 1, or -1 for all")


CONTINUE_FLAGS = ("continue_from", "additional_steps")


@dataclasses.dataclass(frozen=True)
class CommandLine:
    """The flags of run_pretraining.py, merged with the recipe and --hparams; see their help."""

    data_dir: str
    model_dir: str
    do_train: bool = True
    do_eval: bool = False
    continue_from: str | None = None
    additional_steps: int | None = None
    hparam_values: dict[str, Any] = field(default_factory=dict)  # the given fields
    run_values: dict[str, Any] = field(default_factory=dict)

    @property
    def run_settings(self) -> RunSettings:
        """Returns the given run settings, with defaults for others."""
        return replace_checked(RunSettings(), self.run_values)

    @property
    def recorded(self) -> dict[str, Any]:
        """Returns the flags that `hparams.json` records among the run settings."""
        found = {name: getattr(self, name) for name in ("data_dir", *CONTINUE_FLAGS)}
        return {k: storage.abspath(v) if isinstance(v, str) else v for k, v in found.items()}


# Keys of the original's configuration for hardware or file locations. They are accepted, reported
# and ignored: use the flags --strategy, --data_dir and --model_dir.
IGNORED_NAMES: tuple[str, ...] = ("use_tpu", "num_tpu_cores", "tpu_job_name", "tpu_name")
IGNORED_NAMES += ("tpu_zone", "gcp_project", "model_name", "pretrain_tfrecords", "vocab_file")
IGNORED_NAMES += ("model_dir", "results_txt", "results_pkl")
FLAG_NAMES = ("do_train", "do_eval")  # flags; the original's JSON may hold them
# Unless false.
UNSUPPORTED_NAMES = ("two_tower_generator", "electric_objective", "disallow_correct", "debug")

# Learning rate and batch: Table 1 of the ConvBERT supplement; for ELECTRA, Table 6 of its paper;
# for BERT, Table 4 of SCRIPT, the large one Devlin et al. 2019. The ALE report's batches are in its
# recipes.
SIZE_DEFAULTS = {
    "small": {"learning_rate": 5e-4, "train_batch_size": 128},
    "convbert-small": {"learning_rate": 3e-4},
    "base": {"learning_rate": 2e-4, "train_batch_size": 256},
    "large": {"learning_rate": 1e-4, "train_batch_size": 256},
    "ettin-150m": {"learning_rate": 2e-4, "train_batch_size": 256},  # as wide as a base model
}


def translate(values: dict[str, Any]) -> dict[str, Any]:
    """Replaces the original's `electra_objective` in hyper-parameters by `objective`.

    Applied to every JSON object that is read: `--hparams`, recipes, the original's `config.json`.
    InputError if it is neither true nor false, or contradicts `objective`.
    """
    if "electra_objective" not in values:
        return values
    values = dict(values)
    detects = typed("electra_objective", values.pop("electra_objective"), bool)
    name = "replaced_token_detection" if detects else "masked_lm"
    if values.get("objective", name) != name:
        raise InputError(
            f"`objective` should be {name}, as `electra_objective` says."
            f" Received: {values['objective']!r}"
        )
    return {**values, "objective": name}


def split_hparams(values: dict[str, Any]) -> tuple[dict, dict, list[str]]:
    """Sorts a JSON object's keys into hyper-parameters, run settings, and ignored names.

    Fields of all objectives count as hyper-parameters; see `report_unused`. InputError for an
    unknown name, with the nearest valid one, or one of an unsupported feature.
    """
    values = translate(values)
    hparam_names = dict.fromkeys(
        [*field_names(PretrainingHParams), *ENCODER_NAMES, *_objective_fields()]
    )
    run_names = field_names(RunSettings)
    known = [*hparam_names, *run_names, *FLAG_NAMES, *IGNORED_NAMES, *UNSUPPORTED_NAMES]
    reject_unknown(values, known)
    for name in UNSUPPORTED_NAMES:
        if values.get(name):
            raise InputError(f"`{name}` is not supported here. Received: {values[name]!r}")
    hparams = {name: values[name] for name in hparam_names if name in values}
    run = {name: values[name] for name in run_names if name in values}
    return hparams, run, [name for name in values if name in IGNORED_NAMES]


def _objective_fields() -> list[str]:
    return field_names(*map(objectives.get, objectives.names()))


def _unused_fields(values: dict[str, Any], settings: type[ObjectiveSettings]) -> list[str]:
    of_others = {*_objective_fields()} - {*field_names(PretrainingHParams, settings)}
    return [name for name in values if name in of_others]


def report_unused(values: dict[str, Any], objective: ObjectiveSettings) -> None:
    """Prints the names of given fields that belong to other objectives, or have no effect."""
    if unused := [
        *_unused_fields(values, type(objective)),
        *(name for name in objective.unread if name in values),
    ]:
        print(f"not used by objective {objective.name}: {', '.join(unused)}", file=sys.stderr)


def parse_hparams(values: dict[str, Any]) -> PretrainingHParams:
    """Returns the hyper-parameters of a JSON object, without fields of other objectives.

    InputError for an unknown objective or name, or a value that is invalid for any data.
    """
    settings = objectives.get(values.get("objective", _DEFAULT))
    for name in field_names(settings):
        if name in (*field_names(PretrainingHParams, RunSettings), *ENCODER_NAMES):
            raise InputError(f"objective {settings.name}: `{name}` is a setting of every run")
    unused = {"objective", *ENCODER_NAMES, *_unused_fields(values, settings)}
    overrides = _overrides(values)
    values = {name: value for name, value in values.items() if name not in unused}
    own = {name: values.pop(name) for name in field_names(settings) if name in values}
    objective = replace_checked(settings(), own)
    objective.check()
    values["model_hparam_overrides"] = overrides
    return replace_checked(PretrainingHParams(objective=objective), values)


def _overrides(values: dict[str, Any]) -> dict[str, Any]:
    """Returns `model_hparam_overrides` of a JSON object, with encoder fields at its top level.

    Omits values equal to the named size's, unless they could depend on `hidden_size`.
    """
    size = typed("model_size", values.get("model_size", PretrainingHParams.model_size), str)
    given = values.get("model_hparam_overrides", {})
    overrides = dict(typed("model_hparam_overrides", given, dict))
    beside = {name: values[name] for name in ENCODER_NAMES if values.get(name) is not None}
    if (conv_type := beside.pop("conv_type", None)) is not None:
        if conv_type not in (*_MIXERS,):
            expected = " or ".join(_MIXERS)
            raise InputError(f"`conv_type` should be {expected}. Received: {conv_type!r}")
        beside["token_mixer"] = _MIXERS[conv_type]
    for name, value in beside.items():
        if overrides.setdefault(name, value) != value:
            raise InputError(
                f"`{name}` is {value} but {overrides[name]} in `model_hparam_overrides`"
            )
    if "hidden_size" in overrides:
        return overrides
    of_size = {**dataclasses.asdict(named_size(size)), "vocab_size": None}
    return {name: value for name, value in overrides.items() if value != of_size.get(name)}


def resolve_hparams(values: dict[str, Any], vocab_size: int) -> PretrainingHParams:
    """Replaces every None in hyper-parameters by the default of the model size or data."""
    hparams = parse_hparams(values)
    encoder = encoder_config(hparams, vocab_size)
    name = hparams.model_size if "-" in hparams.model_size else f"convbert-{hparams.model_size}"
    ending = name.rpartition("-")[2]
    defaults = SIZE_DEFAULTS[ending if ending in ("base", "large") else "small"]
    defaults = {**defaults, **SIZE_DEFAULTS.get(name, {}), "vocab_size": vocab_size}
    unset: dict[str, Any] = {k: v for k, v in defaults.items() if getattr(hparams, k) is None}
    objective, length = hparams.objective.resolve(hparams.model_size), hparams.max_seq_length
    hparams = dataclasses.replace(hparams, objective=objective, **unset)
    same = hparams.vocab_size == vocab_size
    check_setting(hparams, same, "vocab_size", f"{vocab_size}, that of the vocabulary")
    longest = encoder.max_position_embeddings
    expected = f"at most max_position_embeddings ({longest})"
    check_setting(hparams, length <= longest, "max_seq_length", expected)
    objective.check(encoder)
    return hparams


def with_length_of_data(values: dict[str, Any], data_dir: str) -> dict[str, Any]:
    """Returns `values` with the data's `max_seq_length` if they have none."""
    built = build_settings(data_dir).get("max_seq_length")
    if built is None or values.get("max_seq_length") is not None:
        return values
    return {**values, "max_seq_length": built}


def check_data(data_dir: str, hparams: PretrainingHParams) -> bool:
    """Returns whether rows of a data folder are packed.

    InputError if by its manifest they have another length, or are packed and may not be.
    """
    settings = build_settings(data_dir)
    built = settings.get("max_seq_length", hparams.max_seq_length)
    expected = f"{built}, as {data_dir} was built"
    check_setting(hparams, built == hparams.max_seq_length, "max_seq_length", expected)
    if settings.get("example_layout") != "packed":
        return False
    gap = encoder_config(hparams, present(hparams.vocab_size)).packing_gap
    if not hparams.objective.packs or gap is None or gap > PACKING_GAP:
        reads = "cannot keep sequences apart" if gap is None else f"reads {gap} tokens on each side"
        raise InputError(
            f"{data_dir} should be built with another --example_layout: packed rows are for masked"
            " language models, self-critics and replaced-token detection, by encoders that are not"
            f" causal, have `mask_padding` and read at most {PACKING_GAP} tokens on each side in a"
            f" convolution. Received: objective {hparams.objective.name}, an encoder that {reads}"
        )
    return True


def encoder_config(hparams: PretrainingHParams, vocab_size: int) -> BackboneConfig:
    """Returns the encoder's configuration: the named size with the overrides."""
    pieces = hparams.vocab_size or vocab_size
    overrides = {"vocab_size": pieces, **hparams.model_hparam_overrides}
    config = named_size(hparams.model_size).overridden(overrides)
    if config.vocab_size < pieces:
        raise InputError(
            f"`vocab_size` in `model_hparam_overrides` should be at least {pieces}, the size of the"
            f" vocabulary. Received: {config.vocab_size}"
        )
    return config
