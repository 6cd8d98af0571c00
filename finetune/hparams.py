"""Every setting of fine-tuning, under ELECTRA's names where it has one."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from model import BackboneConfig
from settings import check_setting, replace_checked

if TYPE_CHECKING:
    from finetune.task import Task


@dataclasses.dataclass(frozen=True)
class FinetuningHParams:
    """Settings that change results. Defaults are the original's (ELECTRA, ConvBERT).

    A kind of task adds its own in a subclass, see `Kind.hparams`. None means "as the task or the
    model says"; `resolve_hparams` replaces every None.
    """

    # Optimization (Table 2 of the ConvBERT supplement).
    optimizer: str = "adam"  # "adam" (ELECTRA's) or "lamb" (without layer-wise decay)
    learning_rate: float | None = None  # 3e-4; 1e-4 for encoders at least 768 wide
    weight_decay_rate: float = 0.01
    layerwise_lr_decay: float = 0.8  # 0: the same rate for all layers
    corrected_layerwise_lr_decay: bool = False  # the original gives even the top layer decay^2
    warmup_proportion: float = 0.1
    lr_decay_power: float = 1.0
    loss_reduction: str = "sum"  # of a batch's losses, before clipping; or "mean"
    num_train_epochs: float | None = None  # 3; 10 for RTE and STS-B; 2 for question answering
    train_batch_size: int = 32  # over all devices

    # Text.
    max_seq_length: int | None = None  # 128; for question answering 512, or all the model has
    length_buckets: bool | None = None  # False: every batch is padded to max_seq_length; by
    # default where padding changes nothing, which is not so with the original's `mask_padding`

    # Network.
    hidden_dropout_prob: float | None = None  # as the model's config.json says
    attention_probs_dropout_prob: float | None = None

    # Set from flags, kept here because they change results.
    init: str = "pretrained"  # or "random", for comparison
    seed: int = 0  # of the first trial; the next has the next
    precision: str = "float32"


@dataclasses.dataclass(frozen=True)
class RunSettings:
    """Settings that change how fast a run is and what is kept of it, not what is learned.

    (But for dropout, of which every device of a strategy draws its own.)
    """

    strategy: str = "one_device"
    xla: bool = False
    num_trials: int = 1
    eval_batch_size: int = 32
    iterations_per_loop: int = 20  # logging interval, steps
    save_checkpoints_steps: int = 1000  # during a run; its end is always kept
    keep_all_models: bool = True  # False: of a task's runs only the best keeps its weights
    write_test_outputs: bool = True  # predict the test splits that are there
    n_writes_test: int = 5  # for the first so many trials of a setting
    use_tfrecords_if_existing: bool = True  # the tokenised cache; False: tokenise anew

    def __post_init__(self) -> None:
        positive = "num_trials", "eval_batch_size", "iterations_per_loop", "save_checkpoints_steps"
        for name in positive:
            check_setting(self, getattr(self, name) >= 1, name, "at least 1")
        check_setting(self, self.n_writes_test >= 0, "n_writes_test", "at least 0")


BASE_WIDTH = 768


def resolve_hparams(
    values: dict[str, Any], task: Task, config: BackboneConfig
) -> FinetuningHParams:
    """Hyper-parameters of a task with every None replaced.

    Args:
        values: a JSON object of hyper-parameters of the task's kind.
        task: what is learned.
        config: of the model directory.

    Returns:
        Of the class that the kind declares, `Kind.hparams`.

    Raises:
        InputError: a value that does not exist or does not fit the model.
    """
    hparams = replace_checked(task.plugin.hparams(), values)
    defaults = {
        "learning_rate": 1e-4 if config.hidden_size >= BASE_WIDTH else 3e-4,
        "length_buckets": not config.visible_padding,
        "hidden_dropout_prob": config.hidden_dropout_prob,
        "attention_probs_dropout_prob": config.attention_probs_dropout_prob,
        **task.plugin.defaults(task),
    }
    positions = config.max_position_embeddings
    defaults["max_seq_length"] = min(defaults["max_seq_length"], positions)
    unset = {key: value for key, value in defaults.items() if getattr(hparams, key) is None}
    hparams = dataclasses.replace(hparams, **unset)
    _validate(hparams, config)
    task.plugin.check_hparams(hparams)
    return hparams


def _validate(hparams: FinetuningHParams, config: BackboneConfig) -> None:
    def check(condition: bool, name: str, expectation: str) -> None:
        check_setting(hparams, condition, name, expectation)

    check(hparams.optimizer in ("adam", "lamb"), "optimizer", "adam or lamb")
    check(hparams.precision in ("float32", "mixed_bfloat16"), "precision", "float32/mixed_bfloat16")
    check(hparams.init in ("pretrained", "random"), "init", "pretrained or random")
    check(hparams.loss_reduction in ("sum", "mean"), "loss_reduction", "sum or mean")
    if config.visible_padding:
        check(not hparams.length_buckets, "length_buckets", "false: `mask_padding` is false there")
    if hparams.optimizer == "lamb":
        check(not hparams.layerwise_lr_decay, "layerwise_lr_decay", "0 with the lamb optimizer")
    for name in ("learning_rate", "weight_decay_rate", "lr_decay_power"):
        check(getattr(hparams, name) >= 0, name, "at least 0")
    for name in ("warmup_proportion", "layerwise_lr_decay"):
        check(0 <= getattr(hparams, name) <= 1, name, "in [0, 1]")
    check(hparams.num_train_epochs > 0, "num_train_epochs", "greater than 0")
    check(hparams.train_batch_size >= 1, "train_batch_size", "at least 1")
    longest = config.max_position_embeddings
    check(hparams.max_seq_length >= 8, "max_seq_length", "at least 8")
    check(hparams.max_seq_length <= longest, "max_seq_length", f"at most {longest}, as the model's")
    check(0 <= hparams.seed < 2**31 - 1000, "seed", "at least 0 and below 2^31 - 1000")
