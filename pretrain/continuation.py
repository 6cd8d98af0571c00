"""Continuing from another model directory: hyper-parameters, weights and step."""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow as tf

from convbert.common.errors import InputError, located, reason
from convbert.common.settings import check_setting, differences, field_names, present, typed
from convbert.data.vocabulary import Vocabulary
from convbert.model import BackboneConfig, load_config
from convbert.pretrain import objectives
from convbert.pretrain.hparams import (
    ENCODER_NAMES,
    CommandLine,
    PretrainingHParams,
    with_length_of_data,
)
from convbert.pretrain.load import is_fine_tuned, load_hparams, recorded_offset, stored_parts
from convbert.training import workers
from convbert.training.checkpointing import has_checkpoint, latest_checkpoint, step_of
from convbert.training.objective import Objective
from convbert.training.run_record import trained_length

# Share of the additional steps that is warm-up, unless `num_warmup_steps` is given.
_WARMUP = 0.1


def continued_values(values: dict[str, Any], command: CommandLine) -> dict[str, Any]:
    """Returns the given hyper-parameters and, with --continue_from, those of the source.

    The architecture is the source's unless `values` name one; without a size, overrides of `values`
    are added to the source's. The objective's fields and the sequence length, if known, are taken
    from the source one by one; for another objective, only the fields that define its networks. A
    run that has begun uses its own record, even if the source has changed since.

    Warm-up (by default a tenth of --additional_steps) and decay cover only these steps.
    """
    source, model_dir = command.continue_from, command.model_dir
    if source is None:
        return values
    begun = has_checkpoint(model_dir)
    folder = model_dir if begun else source
    there, _ = _settings(folder)
    inherited = inherited_values(values, there)
    if "max_seq_length" in inherited and trained_length(folder) is None:
        inherited |= with_length_of_data({}, command.data_dir)
    if command.additional_steps is not None:
        first = there.schedule_from_step if begun else step_of(latest_checkpoint(source))
        last = first + command.additional_steps
        inherited |= {"schedule_from_step": first, "num_train_steps": last}
        if values.get("num_warmup_steps") is None:
            inherited["num_warmup_steps"] = int(_WARMUP * command.additional_steps)
    return {**values, **inherited}


def inherited_values(values: dict[str, Any], there: PretrainingHParams) -> dict[str, Any]:
    """Returns what `values` leave to the hyper-parameters of the source; see above."""
    said = {name for name, value in values.items() if value not in (None, {})}
    before = there.objective
    now = objectives.get(values.get("objective", before.name))
    if now.name == before.name:
        names = ["objective", *field_names(now)]
    else:
        names = [name for name in before.network_fields if name in field_names(now)]
    names = [name for name in (*names, "max_seq_length") if name not in said]
    recorded, key = there.as_json(), "model_hparam_overrides"
    if said.isdisjoint(("model_size", *ENCODER_NAMES)):
        names += ["model_size", key]
        recorded[key] = {**recorded[key], **typed(key, values.get(key) or {}, dict)}
    return {name: recorded[name] for name in names}


def data_offset(command: CommandLine, hparams: PretrainingHParams) -> int:
    """Returns the examples that earlier runs read beyond their steps times this run's batch.

    So a run with another batch goes on in the data where the run that it continues stopped.
    """
    if has_checkpoint(command.model_dir):
        return recorded_offset(command.model_dir)
    if (source := command.continue_from) is None:
        return 0
    there, batch = _settings(source)[0].train_batch_size, present(hparams.train_batch_size)
    more = (there or batch) - batch
    return recorded_offset(source) + step_of(latest_checkpoint(source)) * more


@dataclasses.dataclass(frozen=True)
class Start:
    """The source of a run's first weights."""

    path: str  # its checkpoint
    step: int  # its step, from which the run's steps count on
    networks: tuple[str, ...]  # names of the objective's networks that are read
    new_networks: tuple[str, ...]  # those that the source lacks, which keep their random weights
    # Whether the optimizer's state is read, if the checkpoint has it; else it starts afresh.
    carries_optimizer: bool

    def restore(self, objective: Objective, optimizer) -> None:
        """Restores the networks and reports it; InputError if the checkpoint lacks variables."""
        networks = {name: getattr(objective, name) for name in self.networks}
        parts = {"objective": tf.train.Checkpoint(**networks)}
        if self.carries_optimizer:
            parts["optimizer"] = optimizer
        try:
            status = tf.train.Checkpoint(**parts).restore(self.path)
            if self.carries_optimizer:
                status.assert_consumed()
            else:
                status.assert_existing_objects_matched().expect_partial()
                optimizer.iterations.assign(self.step)
        except (AssertionError, ValueError) as error:
            raise InputError(
                f"--continue_from: {self.path} holds other variables ({reason(error)})"
            ) from error
        new_networks = [getattr(objective, name) for name in self.new_networks]
        random = {v.ref() for network in new_networks for v in network.trainable_variables}
        for variable, leader in objective.followers:
            if leader.ref() in random:
                leader.assign(variable)
        state = "carried" if self.carries_optimizer else "fresh"
        new = f"; from random weights: {', '.join(self.new_networks)}" if self.new_networks else ""
        workers.say(f"from {self.path}: {', '.join(self.networks)}{new}; optimizer {state}")


def plan_start(
    command: CommandLine,
    hparams: PretrainingHParams,
    config: BackboneConfig,
    vocabulary: Vocabulary,
) -> Start:
    """Returns the plan for --continue_from, after all checks and before anything is built.

    InputError, with the difference, if source and run do not fit together.
    """
    source = present(command.continue_from)
    there, there_config = _settings(source)
    path = latest_checkpoint(source)
    where = f"--continue_from {source}"
    may_change = ("hidden_dropout_prob", "attention_probs_dropout_prob")
    there_config = there_config.replace(**{name: getattr(config, name) for name in may_change})
    if changed := differences(there_config.to_json(), config.to_json()):
        raise InputError(f"{where}: another encoder:\n  " + "\n  ".join(changed))
    if Vocabulary.load(source).digest != vocabulary.digest:
        raise InputError(
            f"{where}: its vocabulary is not that of the data; build the data with --vocab {source}"
        )
    stored = stored_parts(path)
    with located(where):
        carried = hparams.objective.carried_networks(there.objective, config, stored)
    missing = tuple(name for name in hparams.objective.own_networks() if name not in carried)
    same = there.optimizer == hparams.optimizer and not missing
    carries = same and stored == {*carried, "optimizer"}
    step = step_of(path)
    expected = f"more than {step}, the step of {source} (or --additional_steps)"
    check_setting(hparams, hparams.num_train_steps > step, "num_train_steps", expected)
    expected = f"at most {step}, the step of {source}"
    check_setting(hparams, hparams.schedule_from_step <= step, "schedule_from_step", expected)
    return Start(path, step, carried, missing, carries)


def _settings(folder: str) -> tuple[PretrainingHParams, BackboneConfig]:
    if is_fine_tuned(folder):
        raise InputError(
            f"{folder}: a fine-tuned model; --continue_from should be one of pre-training"
        )
    return load_hparams(folder)[0], load_config(folder)
