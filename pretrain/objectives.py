"""The objectives by name, and which one some hyper-parameters ask for."""

from __future__ import annotations

from model import EncoderConfig
from pretrain.hparams import PretrainingHParams
from pretrain.masked_lm import MaskedLM
from pretrain.replaced_token_detection import ReplacedTokenDetection
from training.objective import Objective

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
