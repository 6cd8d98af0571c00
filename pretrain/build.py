"""The objective and the optimizer that some hyper-parameters ask for."""

from __future__ import annotations

from model import BackboneConfig
from pretrain.hparams import PretrainingHParams
from training.objective import Objective
from training.optimizer import WarmupTimesDecay, create_optimizer


def build_objective(
    hparams: PretrainingHParams, config: BackboneConfig, special_ids: dict[str, int]
) -> Objective:
    """The objective with its networks, at random weights."""
    return hparams.objective.build(hparams, config, special_ids)


def build_optimizer(hparams: PretrainingHParams, objective: Objective):
    """The optimizer of the hyper-parameters, with its slots."""
    schedule = WarmupTimesDecay(
        hparams.learning_rate,
        hparams.num_train_steps,
        hparams.num_warmup_steps,
        hparams.lr_decay_power,
        hparams.schedule_from_step,
        hparams.lr_schedule,
    )
    return create_optimizer(
        hparams.optimizer, schedule, hparams.weight_decay_rate, objective.trainable_variables
    )
