"""What benchmarks.tpu_compile compiles: which programs there are. Needs no TensorFlow."""

from __future__ import annotations

import dataclasses
from typing import Any

from finetune import kinds
from pretrain import objectives

PRETRAINING = "pretraining"  # beside the kinds of tasks
PHASES = {PRETRAINING: ("train", "eval")}  # of kinds: FINETUNING
FINETUNING = ("train", "infer")

_ATTENTION = {"conv_type": "noconv", "head_ratio": 1}
_MASKED_LM = {"objective": "masked_lm"}
_ALE = {"share_layers": True}  # as in configs/ale_small.json
SYSTEMS: dict[str, dict[str, Any]] = {
    "ConvBERT": {},
    "ELECTRA": _ATTENTION,
    "BERT": {**_ATTENTION, **_MASKED_LM},
    "ALE": {**_ATTENTION, "optimizer": "lamb", "model_hparam_overrides": _ALE},
    "ConvBERT masked_lm": _MASKED_LM,
    "ConvBERT causal_lm": {
        "objective": "causal_lm",
        "model_hparam_overrides": {"causal": True},
    },
    "XLNet": {"objective": "permutation_lm", "model_size": "xlnet-{size}"},
}


@dataclasses.dataclass(frozen=True)
class Program:
    """A program of one device, or of several that sum their gradients.

    Attributes:
        system: one of `systems()`.
        size: of ConvBERT (`model.sizes`), which says depth, width and the rest.
        kind: `PRETRAINING`, or the kind of a task.
        phase: "train", a whole step; "eval", metrics of a batch; "infer", predictions for a batch.
        batch: sequences of a device.
        length: S.
        form: "accelerator" or "cpu": which forms of the kernels are taken.
        replicas: devices that train together.
        overrides: further hyper-parameters of pre-training.
        task_hparams: further hyper-parameters of fine-tuning.
        platform: "tpu" or "gpu": of which accelerator the forms are.
    """

    system: str
    size: str
    kind: str
    phase: str
    batch: int = 32
    length: int = 128
    precision: str = "mixed_bfloat16"
    form: str = "accelerator"
    replicas: int = 1
    overrides: dict[str, Any] = dataclasses.field(default_factory=dict)
    task_hparams: dict[str, Any] = dataclasses.field(default_factory=dict)
    platform: str = "tpu"


def systems() -> dict[str, dict[str, Any]]:
    """Hyper-parameters by system: those above, and a ConvBERT for each further objective."""
    named = {values.get("objective", "replaced_token_detection") for values in SYSTEMS.values()}
    others = [name for name in objectives.names() if name not in named]
    return {**SYSTEMS, **{f"ConvBERT {name}": {"objective": name} for name in others}}


def phases(kind: str) -> tuple[str, ...]:
    """The phases of pre-training, or of a kind of task."""
    return PHASES.get(kind, FINETUNING)


def all_kinds() -> tuple[str, ...]:
    """Pre-training, and the kinds of tasks that are registered."""
    return (PRETRAINING, *kinds.names())
