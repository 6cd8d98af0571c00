"""The objectives by name; the objective and the optimizer some hyper-parameters ask for."""

from __future__ import annotations

from model import EncoderConfig
from pretrain.hparams import PretrainingHParams
from pretrain.masked_lm import MaskedLM
from pretrain.replaced_token_detection import ReplacedTokenDetection
from training.objective import Objective
from training.optimizer import WarmupTimesDecay, create_optimizer

OBJECTIVES: dict[str, type[Objective]] = {
    "masked_lm": MaskedLM,
    "replaced_token_detection": ReplacedTokenDetection,
}


def build_objective(
    hparams: PretrainingHParams, config: EncoderConfig, special_ids: dict[str, int]
) -> Objective:
    """The objective that `electra_objective` asks for, with its networks."""
    name = "replaced_token_detection" if hparams.electra_objective else "masked_lm"
    return OBJECTIVES[name](hparams, config, special_ids)


def build_optimizer(hparams: PretrainingHParams, objective: Objective):
    """The optimizer of the hyper-parameters, with its slots."""
    schedule = WarmupTimesDecay(
        hparams.learning_rate,
        hparams.num_train_steps,
        hparams.num_warmup_steps,
        hparams.lr_decay_power,
        hparams.schedule_from_step,
    )
    return create_optimizer(
        hparams.optimizer, schedule, hparams.weight_decay_rate, objective.trainable_variables
    )
