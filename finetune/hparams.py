"""All settings of fine-tuning, with ELECTRA's names where those exist."""

from __future__ import annotations

import dataclasses
from dataclasses import field
from typing import TYPE_CHECKING, Any

from convbert.common.settings import (
    above,
    at_least,
    check_fields,
    check_setting,
    one_of,
    replace_checked,
    within,
)
from convbert.model import BackboneConfig

if TYPE_CHECKING:
    from convbert.finetune.declaration import Task

_FRACTION = {"check": (lambda value: 0 <= value <= 1, "in [0, 1]")}
_LENGTHS = {
    "check": (
        lambda value: isinstance(value, bool) or (value and min(value) > 0),
        "true, false or a list of lengths",
    )
}
BASE_WIDTH = 768
DROPOUT = ("hidden_dropout_prob", "attention_probs_dropout_prob")  # a run's, not its encoder's


@dataclasses.dataclass(frozen=True)
class FinetuningHParams:
    """Settings that change results; kinds of tasks add theirs in subclasses, see `Kind.hparams`.

    Defaults are the original's (ELECTRA, ConvBERT). `resolve_hparams` replaces every None by the
    default of the task or the model.
    """

    # Optimization (Table 2 of the ConvBERT supplement). "lamb" has no layer-wise decay.
    optimizer: str = field(default="adam", metadata=one_of("adam", "lamb"))
    # The peak; ELECTRA's "warmup_times_decay" never reaches it, see `training.optimizer`.
    # Default: 3e-4; 1e-4 for encoders of width 768 or more.
    learning_rate: float | None = field(default=None, metadata=at_least(0))
    lr_schedule: str = field(
        default="warmup_times_decay", metadata=one_of("warmup_times_decay", "warmup_then_decay")
    )
    weight_decay_rate: float = field(default=0.01, metadata=at_least(0))
    layerwise_lr_decay: float = field(default=0.8, metadata=_FRACTION)  # 0: one rate for all layers
    corrected_layerwise_lr_decay: bool = False  # the original gives even the top layer decay^2
    warmup_proportion: float = field(default=0.1, metadata=_FRACTION)
    lr_decay_power: float = field(default=1.0, metadata=at_least(0))
    # Reduction of a batch's losses, before clipping.
    loss_reduction: str = field(default="sum", metadata=one_of("sum", "mean"))
    # Default: 3; 10 for RTE and STS-B; 2 for question answering.
    num_train_epochs: float | None = field(default=None, metadata=above(0))
    max_steps: int | None = field(default=None, metadata=at_least(1))  # instead of epochs
    # Number of examples, drawn at random with a fixed seed; null: all.
    max_train_examples: int | None = field(default=None, metadata=at_least(1))
    train_batch_size: int = field(default=32, metadata=at_least(1))  # over all devices

    # Evaluation during training, on the first development split. The papers have none.
    # Steps between evaluations; null: only at the end, and with "keep": "best" after each epoch.
    eval_steps: int | None = field(default=None, metadata=at_least(1))
    # "best": keeps the weights with the highest headline score instead of the last ones.
    keep: str = field(default="last", metadata=one_of("last", "best"))

    # Text.
    # Default: 128; for question answering 512, for multiple choice 384, or the model's maximum.
    max_seq_length: int | None = field(default=None, metadata=at_least(8))
    # True: pads batches to their own length. A list: to one of these lengths. False: to
    # max_seq_length, the default if padding changes outputs (`mask_padding` false).
    length_buckets: bool | tuple[int, ...] | None = field(default=None, metadata=_LENGTHS)

    # Network. Default: as in the model's config.json.
    hidden_dropout_prob: float | None = field(default=None, metadata=within(0, 1))
    attention_probs_dropout_prob: float | None = field(default=None, metadata=within(0, 1))

    # Set from flags, kept here because they change results.
    init: str = field(default="pretrained", metadata=one_of("pretrained", "random"))
    seed: int = field(default=0, metadata=within(0, 2**31 - 1000))  # the first trial's
    precision: str = field(default="float32", metadata=one_of("float32", "mixed_bfloat16"))

    def __post_init__(self) -> None:
        check_fields(self)


@dataclasses.dataclass(frozen=True)
class FinetuningRunSettings:
    """Settings that affect speed and what is kept, but not the learned weights."""

    strategy: str = "one_device"
    tpu: str | None = None  # see `training.distribution.create_strategy`
    xla: bool = False
    micro_batch_size: int | None = field(default=None, metadata=at_least(1))  # null: all at once
    rematerialize: bool = False
    num_trials: int = field(default=1, metadata=at_least(1))
    eval_batch_size: int = field(default=32, metadata=at_least(1))  # rounded up to whole examples
    iterations_per_loop: int = field(default=20, metadata=at_least(1))  # logging interval, steps
    # During a run; its final weights are always kept.
    save_checkpoints_steps: int = field(default=1000, metadata=at_least(1))
    write_test_outputs: bool = True  # predict existing test splits

    def __post_init__(self) -> None:
        check_fields(self)


def resolve_hparams(
    values: dict[str, Any], task: Task, config: BackboneConfig
) -> FinetuningHParams:
    """Replaces every None in the hyper-parameters of a task.

    InputError for an unknown name or a value that does not fit the model.
    """
    hparams = replace_checked(task.plugin.hparams(), values)
    defaults = {
        "learning_rate": 1e-4 if config.hidden_size >= BASE_WIDTH else 3e-4,
        "length_buckets": not config.visible_padding,
        **{name: getattr(config, name) for name in DROPOUT},
        **task.plugin.defaults,
    }
    if task.num_train_epochs is not None:
        defaults["num_train_epochs"] = task.num_train_epochs
    positions = config.max_position_embeddings
    defaults["max_seq_length"] = min(defaults["max_seq_length"], positions)
    unset = {key: value for key, value in defaults.items() if getattr(hparams, key) is None}
    hparams = dataclasses.replace(hparams, **unset)
    padded = not (config.visible_padding and hparams.length_buckets)
    check_setting(hparams, padded, "length_buckets", "false: `mask_padding` is false there")
    plain = hparams.optimizer != "lamb" or not hparams.layerwise_lr_decay
    check_setting(hparams, plain, "layerwise_lr_decay", "0 with the lamb optimizer")
    fits = hparams.max_seq_length <= positions
    check_setting(hparams, fits, "max_seq_length", f"at most {positions}, as the model's")
    task.plugin.check_hparams(task, hparams, config)
    return hparams
