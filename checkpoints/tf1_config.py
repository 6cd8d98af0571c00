"""The networks of an original checkpoint: `config.json`, in both directions, and tensors' names."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection
from typing import Any

import storage
from checkpoints import tf1
from checkpoints.model_directory import check_expressible
from checkpoints.tf1_file import TensorFile
from errors import InputError, located
from model import EncoderConfig, named_size
from model.config import CONFIG_FILE, read_fields
from pretrain.hparams import PretrainingHParams, parse_hparams, translate
from pretrain.objectives.replaced_token_detection import ReplacedTokenDetectionSettings

_CONV_TYPES = {"sdconv": "mixed", "noconv": "attention"}  # `conv_type` -> `token_mixer`
_MIXERS = {mixer: conv_type for conv_type, mixer in _CONV_TYPES.items()}
_ACTIVATIONS = ("gelu", "relu", "tanh", "linear")
_ENCODER_FIELDS = (
    *("vocab_size", "embedding_size", "hidden_size", "num_hidden_layers", "num_attention_heads"),
    *("intermediate_size", "hidden_act", "hidden_dropout_prob", "attention_probs_dropout_prob"),
    *("max_position_embeddings", "type_vocab_size", "initializer_range"),
    *("conv_kernel_size", "head_ratio", "linear_groups"),
)
# Fields of EncoderConfig that the original has no name for, with their only value in it.
_FIXED = {"layer_norm_eps": 1e-12, "share_layers": False, "causal": False, "summary_last": False}
# The original's names of the generator's fields. `generator_hidden_size` is a width, or, up to 1, a
# share of the encoder's as in `--hparams`.
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
    """The fields that a `config.json` beside an original checkpoint gives, under its names."""

    path: str = ""  # of the file, if there is one
    fields: dict[str, Any] = dataclasses.field(default_factory=dict)  # those that are not null

    @classmethod
    def load(cls, path: str) -> OriginalConfig:
        """Reads the file."""
        given = translate(read_fields(path))
        fields = {name: value for name, value in given.items() if value is not None}
        for name, allowed in (("conv_type", tuple(_CONV_TYPES)), ("hidden_act", _ACTIVATIONS)):
            if name in fields and fields[name] not in allowed:
                raise InputError(
                    f"{path}: `{name}` should be one of {', '.join(allowed)}."
                    f" Received: {fields[name]!r}"
                )
        return cls(path, fields)

    @classmethod
    def find(cls, folder: str, path: str | None) -> OriginalConfig:
        """The file or folder that the user names, or the one in a checkpoint's folder, if any."""
        if path is None:
            path = os.path.join(folder, CONFIG_FILE)
            return cls.load(path) if storage.exists(path) else cls()
        return cls.load(os.path.join(path, CONFIG_FILE) if storage.isdir(path) else path)

    @property
    def encoder(self) -> dict[str, Any]:
        """Fields of EncoderConfig."""
        mixer = {"token_mixer": _CONV_TYPES.get(self.fields.get("conv_type"))}
        return self._given(_ENCODER_FIELDS) | (mixer if "conv_type" in self.fields else {})

    def objective(self, hidden_size: int) -> dict[str, Any]:
        """Fields of PretrainingHParams that describe the objective and its generator."""
        objective = self._given(_OBJECTIVE_FIELDS)
        share = self.fields.get("generator_hidden_size", self.fields.get(_SHARE))
        if isinstance(share, (int, float)):
            objective["generator_hidden_size"] = share / hidden_size if share > 1 else share
        return objective

    @property
    def training(self) -> dict[str, Any]:
        """Fields of PretrainingHParams that tensors do not show."""
        return self._given(_TRAINING_FIELDS)

    @property
    def unknown(self) -> tuple[str, ...]:
        """Names that mean nothing here."""
        known = {*_ENCODER_FIELDS, *_OBJECTIVE_FIELDS, *_TRAINING_FIELDS, *_GENERATOR_FIELDS}
        return tuple(name for name in self.fields if name not in {*known, _SHARE, "conv_type"})

    def check(self, shown: dict[str, Any], beside: str) -> None:
        """Raises InputError where a field is other than what the files beside it show."""
        for name, value in shown.items():
            if (received := self.fields.get(name, value)) != value:
                raise InputError(
                    f"{self.path}: `{name}` should be {value}, as {beside} shows."
                    f" Received: {received!r}"
                )

    def _given(self, names: Collection[str]) -> dict[str, Any]:
        return {name: self.fields[name] for name in names if name in self.fields}


@dataclasses.dataclass(frozen=True)
class Architecture:
    """The networks of a checkpoint."""

    config: EncoderConfig
    objective: dict[str, Any]  # fields of PretrainingHParams: which objective, its generator
    networks: list[str]  # those of the objective that are there
    scope: str  # of the encoder's names: "generator" where there is no discriminator
    embeddings_scope: str


def read_architecture(
    file: TensorFile, said: OriginalConfig, vocab_size: int, model_size: str | None = None
) -> Architecture:
    """The networks that the tensors' names show, of the size that `config.json` or the user says.

    Shapes are compared with the networks when the tensors are read.

    Args:
        said: the fields of `config.json`, which need not be there if there is a `model_size`.
        vocab_size: of the vocabulary.
        model_size: a named size, for other fields that `said` lacks; by default the small one.
    """
    heads = {name.split("/")[0] for name in file.shapes}
    discriminator, generator = (
        any(name.startswith(f"{scope}/encoder/") for name in file.shapes)
        for scope in (tf1.ENCODER, tf1.GENERATOR)
    )
    if tf1.ENCODER not in heads and not generator:
        raise InputError(
            f"{file.where}: should be ConvBERT's or ELECTRA's, whose tensors begin with"
            f" {tf1.ENCODER}/, or XLNet's with its xlnet_config.json beside it or as --config."
            f" Received: {next(iter(file.shapes), 'no tensor')}"
        )
    if model_size is None and not said.path:
        raise InputError(
            f"{file.where}: tensors alone do not show the number of heads; --model_size should"
            " name the size, as convbert-small, or --config a config.json"
        )
    untied = f"{tf1.GENERATOR}/embeddings/word_embeddings" in file.shapes
    predicts, discriminates = tf1.MASKED_LM_HEAD in heads, tf1.DISCRIMINATOR_HEAD in heads
    said.check({"vocab_size": vocab_size}, "the vocabulary")
    config = _encoder(file, said, vocab_size, model_size)
    if generator and not discriminator:
        scopes = tf1.GENERATOR, tf1.GENERATOR if untied else tf1.ENCODER
        objective, networks = {"objective": "masked_lm"}, {"encoder": True, "head": predicts}
        config = _generator(file, config, said, untied)
    elif predicts and not generator and not discriminates:
        scopes = tf1.ENCODER, tf1.ENCODER
        objective, networks = {"objective": "masked_lm"}, {"encoder": True, "head": True}
    else:
        scopes, objective = (tf1.ENCODER, tf1.ENCODER), {}
        if discriminates or generator:
            objective["objective"] = "replaced_token_detection"
        if generator or predicts:
            objective |= {"untied_generator": generator, "uniform_generator": False}
        if generator:
            objective["untied_generator_embeddings"] = untied
        networks = {"encoder": True, "head": discriminates}
        networks |= {"generator": generator or predicts, "generator_head": predicts}
    if scopes[0] == tf1.ENCODER:
        said.check(objective, file.where)
        objective = {**said.objective(config.hidden_size), **objective}
    there = [name for name, is_there in networks.items() if is_there]
    return Architecture(config, objective, there, *scopes)


def _encoder(
    file: TensorFile, said: OriginalConfig, vocab_size: int, model_size: str | None
) -> EncoderConfig:
    convolves = any("/conv_attn_" in name for name in file.shapes)
    with located(said.path or file.where):
        size = named_size(model_size or ("convbert-small" if convolves else "electra-small"))
        if type(size) is not EncoderConfig:
            raise InputError(f"no original checkpoint of ConvBERT or ELECTRA is {model_size}")
        return size.replace(**{"mask_padding": False, "vocab_size": vocab_size, **said.encoder})


def _generator(
    file: TensorFile, config: EncoderConfig, said: OriginalConfig, untied: bool
) -> EncoderConfig:
    """A generator that is alone: `config` itself, or the generator of that discriminator."""
    query = file.shapes.get(f"{tf1.GENERATOR}/encoder/layer_0/attention/self/query/kernel")
    if not query or query[0] == config.hidden_size:
        return config
    return ReplacedTokenDetectionSettings(
        generator_hidden_size=query[0] / config.hidden_size,
        generator_layers=said.fields.get("generator_layers", 1.0),
        untied_generator_embeddings=untied,
    ).generator_config(config)


def config_fields(
    config: EncoderConfig, generator: EncoderConfig | None, hparams: PretrainingHParams
) -> dict[str, Any]:
    """The fields of `config.json` as the original names them; the inverse of reading one.

    `generator` is one of its own.
    """
    check_known(config, generator, hparams)
    fields = {name: getattr(config, name) for name in _ENCODER_FIELDS}
    fields["conv_type"] = _MIXERS[config.token_mixer]
    if generator is not None:
        fields |= {theirs: getattr(generator, ours) for theirs, ours in _GENERATOR_FIELDS.items()}
        fields[_SHARE] = generator.hidden_size / config.hidden_size
    fields |= {n: value for n, value in hparams.as_json().items() if n in _ALWAYS_WRITTEN}
    return fields | _changed(hparams, {*_TRAINING_FIELDS, "generator_layers"} - {"max_seq_length"})


def check_known(
    config: EncoderConfig, generator: EncoderConfig | None, hparams: PretrainingHParams
) -> None:
    """Raises InputError, naming a field, where the original has no such network."""
    named, fixed = {*_ENCODER_FIELDS, "mask_padding", "token_mixer"}, {**_FIXED}
    if config.token_mixer == "attention":
        named.add("convolution")
    else:
        fixed |= {"token_mixer": "mixed", "convolution": "span"}
        named.remove("token_mixer")
    check_expressible(config, named, fixed, "the original")
    expected = {
        "hidden_act": (config.hidden_act, _ACTIVATIONS),
        "masked_lm_act": (hparams.objective.masked_lm_act, (None, config.hidden_act)),
        # Its generator would draw tokens that are padding.
        "vocab_size": (config.vocab_size, (hparams.vocab_size or config.vocab_size,)),
    }
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
    """The settings of training, other than by default, that no `config.json` can give."""
    return _changed(hparams, _OWN_FIELDS)


def _changed(hparams: PretrainingHParams, names: Collection[str]) -> dict[str, Any]:
    default = parse_hparams({"objective": hparams.objective.name}).as_json()
    return {
        name: value
        for name, value in hparams.as_json().items()
        if name in names and value != default[name]
    }
