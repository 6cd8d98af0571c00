"""Every setting of fine-tuning, under ELECTRA's names where it has one."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Any

from errors import InputError
from model import BackboneConfig, EncoderConfig
from settings import (
    check_setting,
    field_names,
    reject_unknown,
    replace_checked,
)

if TYPE_CHECKING:
    from finetune.task import Task


@dataclasses.dataclass(frozen=True)
class FinetuningHParams:
    """Settings that change results. Defaults are the original's (ELECTRA, ConvBERT).

    None means "as the task or the model says"; `resolve_hparams` replaces every None.
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
    double_unordered: bool = True  # symmetric pairs are trained in both orders

    # Network.
    hidden_dropout_prob: float | None = None  # as the model's config.json says
    attention_probs_dropout_prob: float | None = None

    # Question answering.
    max_query_length: int = 64  # tokens of a question
    doc_stride: int = 128  # tokens between the windows of a long context
    n_best_size: int = 20  # answers kept per question
    max_answer_length: int = 30  # tokens
    answerable_classifier: bool = True  # whether a question has an answer (version 2)
    answerable_uses_start_logits: bool = True
    answerable_weight: float = 0.5  # of its loss
    joint_prediction: bool = True  # the end is predicted given the start, by beam search
    beam_size: int = 20
    qa_na_threshold: float = -2.75  # null odds above which predictions say "no answer"

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
    iterations_per_loop: int = 20  # steps between two looks at the loss
    save_checkpoints_steps: int = 1000  # during a run; its end is always kept
    keep_all_models: bool = True  # False: of a task's runs only the best keeps its weights
    write_test_outputs: bool = True  # predict the test splits that are there
    n_writes_test: int = 5  # for the first so many trials of a setting
    use_tfrecords_if_existing: bool = True  # the tokenised cache; False: tokenise anew

    def __post_init__(self) -> None:
        for name in ("num_trials", "eval_batch_size", "iterations_per_loop"):
            check_setting(self, getattr(self, name) >= 1, name, "at least 1")
        check_setting(
            self, self.save_checkpoints_steps >= 1, "save_checkpoints_steps", "at least 1"
        )
        check_setting(self, self.n_writes_test >= 0, "n_writes_test", "at least 0")


TASK_NAMES = "task_names"  # the original's key for what --task says here
# Keys of the original's configuration that choose hardware or file locations: not used, flags say
# them here.
IGNORED_NAMES = (
    "use_tpu",
    "num_tpu_cores",
    "tpu_job_name",
    "tpu_name",
    "tpu_zone",
    "gcp_project",
    "model_name",
    "data_dir",
    "log_examples",
    "predict_batch_size",
    "do_eval",
)
# Keys that say what the model directory knows: accepted where they agree with it.
MODEL_NAMES = ("model_size", "vocab_size", "embedding_size", "do_lower_case", "conv_type")
MODEL_NAMES += ("conv_kernel_size", "linear_groups", "head_ratio", "model_hparam_overrides")
_DROPOUT = ("hidden_dropout_prob", "attention_probs_dropout_prob")  # free among them
_FAMILIES = "convbert|electra|bert|ale"
FLAG_NAMES = ("do_train",)
UNSUPPORTED_NAMES = ("debug",)  # unless false

BASE_WIDTH = 768


def split_hparams(values: dict[str, Any]) -> tuple[dict, dict, dict, list[str]]:
    """Sorts a JSON object's keys: hyper-parameters, run settings, the model's, ignored ones.

    `task_names` and flags are left to the caller.

    Raises:
        InputError: an unknown name (the nearest valid one is suggested), or one that asks for
            something that does not exist here.
    """
    hparam_names, run_names = field_names(FinetuningHParams), field_names(RunSettings)
    other = (TASK_NAMES, *FLAG_NAMES, *IGNORED_NAMES, *MODEL_NAMES, *UNSUPPORTED_NAMES)
    reject_unknown(values, [*hparam_names, *run_names, *other])
    for name in UNSUPPORTED_NAMES:
        if values.get(name):
            raise InputError(f"`{name}` is not supported here. Received: {values[name]!r}")

    def pick(names) -> dict:
        return {name: values[name] for name in names if name in values}

    overrides = values.get("model_hparam_overrides", {})
    dropout = {name: overrides[name] for name in _DROPOUT if name in overrides}
    ignored = [name for name in values if name in IGNORED_NAMES]
    return {**dropout, **pick(hparam_names)}, pick(run_names), pick(MODEL_NAMES), ignored


def resolve_hparams(
    values: dict[str, Any], task: Task, config: BackboneConfig
) -> FinetuningHParams:
    """Hyper-parameters of a task with every None replaced.

    Args:
        values: a JSON object of FinetuningHParams fields.
        task: what is learned.
        config: of the model directory.

    Raises:
        InputError: a value that does not exist or does not fit the model.
    """
    hparams = replace_checked(FinetuningHParams(), values)
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
    for name in ("learning_rate", "weight_decay_rate", "lr_decay_power", "answerable_weight"):
        check(getattr(hparams, name) >= 0, name, "at least 0")
    for name in ("warmup_proportion", "layerwise_lr_decay"):
        check(0 <= getattr(hparams, name) <= 1, name, "in [0, 1]")
    check(hparams.num_train_epochs > 0, "num_train_epochs", "greater than 0")
    for name in ("train_batch_size", "n_best_size", "max_answer_length", "beam_size"):
        check(getattr(hparams, name) >= 1, name, "at least 1")
    check(hparams.doc_stride >= 1, "doc_stride", "at least 1")
    longest = config.max_position_embeddings
    check(hparams.max_seq_length >= 8, "max_seq_length", "at least 8")
    check(hparams.max_seq_length <= longest, "max_seq_length", f"at most {longest}, as the model's")
    check(0 <= hparams.seed < 2**31 - 1000, "seed", "at least 0 and below 2^31 - 1000")


def check_model_names(values: dict[str, Any], known: dict[str, Any], model_dir: str) -> None:
    """Refuses keys that describe another model than the model directory holds.

    Args:
        values: what was given of MODEL_NAMES.
        known: config.json and hparams.json of the model directory, as one object.
        model_dir: named in the error.
    """
    given = dict(values)
    overrides = given.pop("model_hparam_overrides", {})
    reject_unknown(overrides, field_names(EncoderConfig))
    given |= {name: value for name, value in overrides.items() if name not in _DROPOUT}
    for name, value in given.items():
        there = known.get(name)
        if name == "model_size":  # `small` there may be convbert-small or electra-small here
            there, value = (re.sub(f"^({_FAMILIES})-", "", str(v)) for v in (there, value))
        if there not in (None, "None", value):
            raise InputError(
                f"`{name}` is {there!r} in {model_dir}, which says the architecture."
                f" Received: {value!r}"
            )
