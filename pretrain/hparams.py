"""Every setting of pre-training, under ELECTRA's and ConvBERT's names where they have one."""

from __future__ import annotations

import dataclasses
from typing import Any

from errors import InputError
from model import EncoderConfig, named_size
from model.config import ACTIVATIONS
from training.hyperparameters import (
    check_setting,
    field_names,
    refuse_unknown,
    replace_checked,
)


@dataclasses.dataclass(frozen=True)
class PretrainingHParams:
    """Settings that change results. Defaults are the original ConvBERT code's.

    None means "as the model size says": see `SIZE_DEFAULTS` for training and `model.sizes` for the
    architecture. `resolve_hparams` replaces every None.
    """

    # Objective.
    electra_objective: bool = True  # replaced-token detection; False: masked language modelling
    gen_weight: float = 1.0  # weight of the generator's masked-LM loss
    disc_weight: float = 50.0  # weight of the discriminator's loss
    mask_prob: float = 0.15  # share of the tokens that is predicted
    mask_token_prob: float = 0.85  # of those, share shown as [MASK] (BERT, SCRIPT: 0.8)
    random_token_prob: float = 0.0  # of those, share shown as a random token (BERT, SCRIPT: 0.1)
    mask_with_replacement: bool = False  # the original's colliding draws; see docs/deviations.md

    # Optimization.
    optimizer: str = "adam"  # "adam" (ELECTRA's) or "lamb"
    learning_rate: float | None = None  # peak
    lr_decay_power: float = 1.0
    weight_decay_rate: float = 0.01
    num_warmup_steps: int = 10_000
    num_train_steps: int = 1_000_000
    schedule_from_step: int = 0  # where warm-up and decay begin; --additional_steps sets it
    train_batch_size: int | None = None  # over all devices
    max_seq_length: int = 128

    # Model.
    model_size: str = "medium-small"
    model_hparam_overrides: dict = dataclasses.field(default_factory=dict)  # EncoderConfig fields
    # By default that of the data's vocabulary. `model_hparam_overrides` may say a larger one:
    # the rows beyond are padding.
    vocab_size: int | None = None
    embedding_size: int | None = None
    conv_type: str | None = None  # "sdconv" (mixed), "noconv" (attention) or "convonly"
    conv_kernel_size: int | None = None
    linear_groups: int | None = None
    head_ratio: int | None = None
    do_lower_case: bool | None = None  # by default, as the data's vocabulary says

    # Generator.
    generator_layers: float = 1.0  # share of the discriminator's layers
    generator_hidden_size: float | None = None  # share of its width, inner width and heads
    generator_intermediate_size: int | None = None  # inner width; by default 4 times its width
    untied_generator: bool = True  # False: the discriminator is its own generator
    untied_generator_embeddings: bool = False
    uniform_generator: bool = False  # replacements drawn uniformly from the vocabulary
    disallow_correct: bool = False  # the generator may not sample the right token
    temperature: float = 1.0  # of the generator's sampling (ALE report: 0.8)
    masked_lm_act: str | None = None  # activation of the masked-LM head; by default `hidden_act`

    # Set from flags, kept here because they change results.
    seed: int = 0
    precision: str = "float32"


@dataclasses.dataclass(frozen=True)
class RunSettings:
    """Settings that must not change what is learned, only how fast and what is kept of it."""

    strategy: str = "one_device"
    xla: bool = False
    iterations_per_loop: int = 20  # steps between two looks at the metrics
    save_checkpoints_steps: int = 1000  # and between evaluations
    keep_checkpoint_max: int = 5
    num_eval_steps: int = 100  # -1: all held-out batches
    eval_batch_size: int | None = None  # by default, train_batch_size

    def __post_init__(self) -> None:
        for name in ("iterations_per_loop", "save_checkpoints_steps"):
            check_setting(self, getattr(self, name) >= 1, name, "at least 1")
        check_setting(
            self, self.keep_checkpoint_max >= 0, "keep_checkpoint_max", "at least 0 (keep all)"
        )
        steps = self.num_eval_steps
        check_setting(
            self, steps >= 1 or steps == -1, "num_eval_steps", "at least 1, or -1 for all"
        )
        batch = self.eval_batch_size
        check_setting(self, batch is None or batch >= 1, "eval_batch_size", "at least 1 or null")


# Settings that were added later, and what a run did before there were such.
ADDED_LATER = {"schedule_from_step": 0, "generator_intermediate_size": None, "masked_lm_act": None}

CONTINUE_FLAGS = ("continue_from", "continue_optimizer", "additional_steps", "new_networks")


@dataclasses.dataclass(frozen=True)
class CommandLine:
    """What the flags of run_pretraining.py say besides the settings above.

    Attributes:
        data_dir: the data folder.
        model_dir: the model directory.
        do_train: whether to train.
        do_eval: whether to evaluate.
        continue_from: model directory to take weights, optimizer and step from.
        continue_optimizer: "carried" or "fresh"; None: carried where there is a state.
        additional_steps: steps beyond those of `continue_from`.
        new_networks: whether networks that it lacks start from random weights.
    """

    data_dir: str
    model_dir: str
    do_train: bool = True
    do_eval: bool = False
    continue_from: str | None = None
    continue_optimizer: str | None = None
    additional_steps: int | None = None
    new_networks: bool = False


# Keys of the original's configuration that choose hardware or file locations. They are accepted,
# reported, and not used: the flags --strategy, --data_dir and --model_dir say this here.
IGNORED_NAMES = (
    "use_tpu",
    "num_tpu_cores",
    "tpu_job_name",
    "tpu_name",
    "tpu_zone",
    "gcp_project",
    "model_name",
    "pretrain_tfrecords",
    "vocab_file",
    "model_dir",
    "results_txt",
    "results_pkl",
)
FLAG_NAMES = ("do_train", "do_eval")  # flags here; the original's JSON may hold them
UNSUPPORTED_NAMES = ("two_tower_generator", "electric_objective", "debug")  # unless false

# Learning rate, batch and generator multiplier: Table 1 of the ConvBERT supplement; for ELECTRA,
# Table 6 of its paper; for BERT, Table 4 of SCRIPT. The ALE report's batches are in its recipes.
SIZE_DEFAULTS = {
    "small": {"learning_rate": 5e-4, "train_batch_size": 128, "generator_hidden_size": 1 / 4},
    "convbert-small": {"learning_rate": 3e-4},
    "base": {"learning_rate": 2e-4, "train_batch_size": 256, "generator_hidden_size": 1 / 3},
}


def split_hparams(values: dict[str, Any]) -> tuple[dict, dict, list[str]]:
    """Sorts a JSON object's keys into hyper-parameters, run settings, and ignored names.

    Raises:
        InputError: an unknown name (the nearest valid one is suggested), or one that asks for
            something that does not exist here.
    """
    hparam_names, run_names = field_names(PretrainingHParams), field_names(RunSettings)
    known = [*hparam_names, *run_names, *FLAG_NAMES, *IGNORED_NAMES, *UNSUPPORTED_NAMES]
    refuse_unknown(values, known)
    for name in UNSUPPORTED_NAMES:
        if values.get(name):
            raise InputError(f"`{name}` is not supported here. Received: {values[name]!r}")
    hparams = {name: values[name] for name in hparam_names if name in values}
    run = {name: values[name] for name in run_names if name in values}
    return hparams, run, [name for name in values if name in IGNORED_NAMES]


def resolve_hparams(values: dict[str, Any], vocab_size: int) -> PretrainingHParams:
    """Hyper-parameters with every None replaced by what the model size and the data say.

    Args:
        values: a JSON object of PretrainingHParams fields.
        vocab_size: of the data's vocabulary.

    Raises:
        InputError: a value that does not exist, or that contradicts the data.
    """
    hparams = replace_checked(PretrainingHParams(), values)
    encoder = encoder_config(hparams, vocab_size)
    name = hparams.model_size if "-" in hparams.model_size else f"convbert-{hparams.model_size}"
    defaults = dict(SIZE_DEFAULTS["base" if name.endswith("-base") else "small"])
    defaults.update(SIZE_DEFAULTS.get(name, {}))
    defaults.update(vocab_size=vocab_size)
    if isinstance(encoder, EncoderConfig):
        mixers = {"attention": "noconv", "mixed": "sdconv"}
        defaults.update(
            embedding_size=encoder.embedding_size,
            conv_type=mixers.get(encoder.token_mixer, "convonly"),
            conv_kernel_size=encoder.conv_kernel_size,
            linear_groups=encoder.linear_groups,
            head_ratio=encoder.head_ratio,
        )
    unset = {key: value for key, value in defaults.items() if getattr(hparams, key) is None}
    hparams = dataclasses.replace(hparams, **unset)
    _validate(hparams, encoder, vocab_size)
    return hparams


def _validate(hparams: PretrainingHParams, encoder: EncoderConfig, vocab_size: int) -> None:
    def check(condition: bool, name: str, expectation: str) -> None:
        check_setting(hparams, condition, name, expectation)

    check(hparams.vocab_size == vocab_size, "vocab_size", f"{vocab_size}, that of the vocabulary")
    check(
        hparams.max_seq_length <= encoder.max_position_embeddings,
        "max_seq_length",
        f"at most max_position_embeddings ({encoder.max_position_embeddings})",
    )
    check_ranges(hparams)
    if hparams.electra_objective and hparams.untied_generator and not hparams.uniform_generator:
        try:
            generator_config(hparams, encoder)
        except InputError as error:
            raise InputError(
                f"`generator_hidden_size` {hparams.generator_hidden_size:g} does not fit the"
                f" encoder: {error}"
            ) from error


def check_ranges(hparams: PretrainingHParams) -> None:
    """Raises InputError for a value that is right with no encoder and no data; None is any."""

    def check(condition: bool, name: str, expectation: str) -> None:
        check_setting(hparams, condition, name, expectation)

    def at_least(lowest: int, *names: str) -> None:
        for name in names:
            value = getattr(hparams, name)
            check(value is None or value >= lowest, name, f"at least {lowest}")

    check(hparams.optimizer in ("adam", "lamb"), "optimizer", "adam or lamb")
    check(hparams.precision in ("float32", "mixed_bfloat16"), "precision", "float32/mixed_bfloat16")
    check(0 < hparams.mask_prob < 1, "mask_prob", "in (0, 1)")
    check(hparams.mask_token_prob >= 0, "mask_token_prob", "at least 0")
    check(
        0 <= hparams.random_token_prob <= 1 - hparams.mask_token_prob + 1e-9,
        "random_token_prob",
        f"at least 0 and at most 1 - mask_token_prob ({1 - hparams.mask_token_prob:g})",
    )
    check(hparams.temperature > 0, "temperature", "greater than 0")
    at_least(1, "num_train_steps", "train_batch_size", "max_seq_length")
    at_least(0, "learning_rate", "weight_decay_rate", "num_warmup_steps", "lr_decay_power")
    at_least(0, "gen_weight", "disc_weight")
    check(
        0 <= hparams.schedule_from_step < hparams.num_train_steps,
        "schedule_from_step",
        f"at least 0 and less than num_train_steps ({hparams.num_train_steps})",
    )
    check(0 <= hparams.seed < 2**31, "seed", "at least 0 and below 2^31")
    act, known = hparams.masked_lm_act, ", ".join(ACTIVATIONS)
    check(act is None or act in ACTIVATIONS, "masked_lm_act", f"null or one of {known}")
    inner = hparams.generator_intermediate_size
    check(inner is None or inner >= 1, "generator_intermediate_size", "at least 1 or null")


def encoder_config(hparams: PretrainingHParams, vocab_size: int) -> EncoderConfig:
    """The encoder that is pre-trained: the named size, then the overrides.

    As in the original, overriding `hidden_size` alone also sets the number of heads and the inner
    width that go with it.
    """
    config = named_size(hparams.model_size)
    overrides = dict(hparams.model_hparam_overrides)
    hidden_size = overrides.get("hidden_size")
    if hidden_size is not None and hidden_size != config.hidden_size:
        head_size = config.hidden_size // config.num_attention_heads
        overrides.setdefault("num_attention_heads", max(1, hidden_size // head_size))
        overrides.setdefault("intermediate_size", 4 * hidden_size)
        if config.embedding_size == config.hidden_size:
            overrides.setdefault("embedding_size", hidden_size)
    for name in ("embedding_size", "conv_kernel_size", "linear_groups", "head_ratio"):
        value = getattr(hparams, name)
        if value is not None and overrides.setdefault(name, value) != value:
            raise InputError(
                f"`{name}` is {value} but {overrides[name]} in `model_hparam_overrides`"
            )
    mixers = {None: None, "sdconv": "mixed", "noconv": "attention", "convonly": "convolution"}
    if hparams.conv_type not in mixers:
        raise InputError(
            f"`conv_type` should be sdconv, noconv or convonly. Received: {hparams.conv_type!r}"
        )
    mixer = mixers[hparams.conv_type]
    if mixer is not None and overrides.setdefault("token_mixer", mixer) != mixer:
        raise InputError(
            f"`conv_type` {hparams.conv_type} is `token_mixer` {mixer}, but it is"
            f" {overrides['token_mixer']} in `model_hparam_overrides`"
        )
    pieces = hparams.vocab_size or vocab_size
    overrides.setdefault("vocab_size", pieces)
    config = replace_checked(config, overrides)
    if config.vocab_size < pieces:
        raise InputError(
            f"`vocab_size` in `model_hparam_overrides` should be at least {pieces}, that of the"
            f" vocabulary. Received: {config.vocab_size}"
        )
    return config


def generator_config(hparams: PretrainingHParams, config: EncoderConfig) -> EncoderConfig:
    """The generator: the discriminator scaled by `generator_hidden_size` and `generator_layers`.

    Source: util/training_utils.py of ELECTRA and ConvBERT. Its embeddings keep their width when
    they are shared, and are as wide as its layers when `untied_generator_embeddings`. Its inner
    width is four times its width unless `generator_intermediate_size` says otherwise.
    """
    multiplier = hparams.generator_hidden_size
    hidden_size = round(config.hidden_size * multiplier)
    # Rounded where the original truncates: 12 heads times 0.33333 are 4 heads, not 3.
    heads = max(1, round(config.num_attention_heads * multiplier))
    untied = hparams.untied_generator_embeddings
    return config.replace(
        hidden_size=hidden_size,
        embedding_size=hidden_size if untied else config.embedding_size,
        num_hidden_layers=max(1, round(config.num_hidden_layers * hparams.generator_layers)),
        num_attention_heads=heads,
        intermediate_size=hparams.generator_intermediate_size or 4 * hidden_size,
    )


def max_predictions(hparams: PretrainingHParams) -> int:
    """P, masked slots per example."""
    return max(1, int((hparams.mask_prob + 0.005) * hparams.max_seq_length))
