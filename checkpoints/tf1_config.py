"""The original's `config.json`: its field names, in both directions."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection
from typing import Any

from errors import InputError
from model import EncoderConfig
from model.config import ACTIVATIONS, CONFIG_FILE, read_fields
from pretrain.hparams import PretrainingHParams, parse_hparams
from pretrain.original_names import translate
from training.hyperparameters import field_names

_CONV_TYPES = {"sdconv": "mixed", "noconv": "attention"}  # `conv_type` -> `token_mixer`
_REQUIRED_FIELDS = (
    *("vocab_size", "embedding_size", "hidden_size", "num_hidden_layers"),
    *("num_attention_heads", "intermediate_size", "conv_type"),
)
_ACTIVATIONS = ("gelu", "relu", "tanh", "linear")
_OWN_ACTIVATIONS = tuple(name for name in ACTIVATIONS if name not in _ACTIVATIONS)  # ours alone
# Fields of EncoderConfig that the original has no name for, as it knows one value only.
_FIXED_FIELDS = {"layer_norm_eps": EncoderConfig.layer_norm_eps}
# What stands for the generator. `generator_hidden_size` is a width, or, up to 1, a share of the
# encoder's as in `--hparams`.
_GENERATOR_FIELDS = {
    "generator_hidden_size": "hidden_size",
    "generator_intermediate_size": "intermediate_size",
    "generator_num_attention_heads": "num_attention_heads",
}
_SHARE = "generator_hidden_size_multiplier"
_OBJECTIVE_FIELDS = (
    *("objective", "untied_generator", "untied_generator_embeddings"),
    *("uniform_generator", "generator_layers"),
)
# Settings of training that a checkpoint's tensors do not show.
_TRAINING_FIELDS = (
    *("gen_weight", "disc_weight", "mask_prob", "temperature", "disallow_correct"),
    *("learning_rate", "lr_decay_power", "weight_decay_rate", "num_warmup_steps"),
    *("num_train_steps", "train_batch_size", "max_seq_length"),
)
# Those that the original has no name for.
_OWN_FIELDS = (
    *("mask_token_prob", "random_token_prob", "mask_with_replacement"),
    *("optimizer", "schedule_from_step", "uniform_generator"),
)
_ALWAYS_WRITTEN = ("disc_weight", "gen_weight")


@dataclasses.dataclass(frozen=True)
class OriginalConfig:
    """What a `config.json` beside an original checkpoint says, under our names.

    Attributes:
        path: the file; "" when there is none.
        encoder: fields of EncoderConfig.
        generator: fields of the generator's EncoderConfig.
        objective: fields of PretrainingHParams that tensors show, too.
        training: fields of PretrainingHParams that they do not.
        unknown: names that mean nothing here.
    """

    path: str = ""
    encoder: dict[str, Any] = dataclasses.field(default_factory=dict)
    generator: dict[str, Any] = dataclasses.field(default_factory=dict)
    objective: dict[str, Any] = dataclasses.field(default_factory=dict)
    training: dict[str, Any] = dataclasses.field(default_factory=dict)
    unknown: tuple[str, ...] = ()

    @classmethod
    def load(cls, path: str) -> OriginalConfig:
        """Reads the file; raises InputError when it cannot be read or has no such `conv_type`."""
        fields = translate(read_fields(path))
        names = set(field_names(EncoderConfig)) - set(_FIXED_FIELDS)
        encoder = {k: v for k, v in fields.items() if k in names}
        if encoder.get("hidden_act") in _OWN_ACTIVATIONS:
            raise InputError(
                f"{path}: `hidden_act` should be one of {', '.join(_ACTIVATIONS)}."
                f" Received: {encoder['hidden_act']!r}"
            )
        if "conv_type" in fields:
            if fields["conv_type"] not in _CONV_TYPES:
                raise InputError(
                    f"{path}: `conv_type` should be one of {', '.join(_CONV_TYPES)}."
                    f" Received: {fields['conv_type']!r}"
                )
            encoder["token_mixer"] = _CONV_TYPES[fields["conv_type"]]
        given = {name: value for name, value in fields.items() if value is not None}
        generator = {ours: given[k] for k, ours in _GENERATOR_FIELDS.items() if k in given}
        objective = {k: given[k] for k in _OBJECTIVE_FIELDS if k in given}
        width = given.get("generator_hidden_size")
        if isinstance(width, (int, float)) and width <= 1:
            objective["generator_hidden_size"] = generator.pop("hidden_size")
        if _SHARE in given:
            objective["generator_hidden_size"] = given[_SHARE]
        training = {k: given[k] for k in _TRAINING_FIELDS if k in given}
        known = {*encoder, *objective, *training, *_GENERATOR_FIELDS, _SHARE, "conv_type"}
        unknown = tuple(name for name in fields if name not in known)
        return cls(path, encoder, generator, objective, training, unknown)


def read_config(folder: str) -> EncoderConfig:
    """The encoder that the `config.json` of a folder describes by itself.

    `mask_padding` is False, as padding enters the original's convolution.

    Raises:
        InputError: the file is missing, is not JSON, lacks a field, or one does not fit.
    """
    path = os.path.join(folder, CONFIG_FILE)
    fields = read_fields(path)
    missing = [name for name in _REQUIRED_FIELDS if name not in fields]
    if missing:
        raise InputError(f"{path}: the fields {', '.join(missing)} are missing")
    try:
        return EncoderConfig(**{**OriginalConfig.load(path).encoder, "mask_padding": False})
    except InputError as error:
        raise error if str(error).startswith(path) else InputError(f"{path}: {error}") from error


def config_fields(
    config: EncoderConfig, generator: EncoderConfig | None, hparams: PretrainingHParams
) -> dict[str, Any]:
    """The fields of `config.json` as the original names them; the inverse of reading one.

    Raises:
        InputError: the original has no such network; names the field.
    """
    _check_known(config, generator, hparams)
    ours = dataclasses.asdict(config)
    without = ("token_mixer", "convolution", "share_layers", *_FIXED_FIELDS)
    names = [name for name in ours if name not in without]
    names.remove("mask_padding")
    fields = {name: ours[name] for name in names}
    mixers = {ours: theirs for theirs, ours in _CONV_TYPES.items()}
    fields["conv_type"] = mixers[config.token_mixer]
    if generator is not None:
        fields |= {theirs: getattr(generator, ours) for theirs, ours in _GENERATOR_FIELDS.items()}
        fields[_SHARE] = generator.hidden_size / config.hidden_size
    names = set(_TRAINING_FIELDS) - {"max_seq_length"}
    return fields | _values(hparams, _ALWAYS_WRITTEN) | _changed(hparams, names)


def _check_known(
    config: EncoderConfig, generator: EncoderConfig | None, hparams: PretrainingHParams
) -> None:
    expected = {"hidden_act": (config.hidden_act, _ACTIVATIONS)}
    for name, value in _FIXED_FIELDS.items():
        expected[name] = (getattr(config, name), (value,))
    expected["masked_lm_act"] = (hparams.objective.masked_lm_act, (None, config.hidden_act))
    # Its generator would draw the rows that are padding.
    expected["vocab_size"] = (config.vocab_size, (hparams.vocab_size or config.vocab_size,))
    if generator is not None:
        inner = (generator.intermediate_size, (4 * generator.hidden_size,))
        expected["generator_intermediate_size"] = inner
    for name, (received, allowed) in expected.items():
        if received not in allowed:
            raise InputError(
                f"the original has no such network: `{name}` should be"
                f" {' or '.join(map(str, allowed))}. Received: {received}"
            )


def unwritten_settings(hparams: PretrainingHParams) -> dict[str, Any]:
    """The settings of training, other than by default, that no `config.json` can say."""
    return _changed(hparams, _OWN_FIELDS)


def _changed(hparams: PretrainingHParams, names: Collection[str]) -> dict[str, Any]:
    default = parse_hparams({"objective": hparams.objective.name}).as_json()
    values = _values(hparams, names).items()
    return {name: value for name, value in values if value != default[name]}


def _values(hparams: PretrainingHParams, names: Collection[str]) -> dict[str, Any]:
    """The settings of these names that its objective has."""
    return {name: value for name, value in hparams.as_json().items() if name in names}
