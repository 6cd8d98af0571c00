"""The networks of an original TensorFlow 1 checkpoint: which there are, and their configuration."""

from __future__ import annotations

import dataclasses
from typing import Any

from checkpoints import tf1
from checkpoints.tf1_config import OriginalConfig
from checkpoints.tf1_file import TensorFile
from errors import InputError, located
from model import EncoderConfig, named_size
from pretrain.objectives.replaced_token_detection import ReplacedTokenDetectionSettings


@dataclasses.dataclass(frozen=True)
class Architecture:
    """The networks of a checkpoint."""

    config: EncoderConfig
    objective: dict[str, Any]  # fields of PretrainingHParams: which objective, its generator
    networks: list[str]  # those of the objective that are there
    scope: str  # of the encoder's names: "generator" where there is no discriminator
    embeddings_scope: str
    notes: list[str]


def read_architecture(
    file: TensorFile, said: OriginalConfig, model_size: str | None = None
) -> Architecture:
    """The networks that the tensors' names show, of the size that `config.json` or the user says.

    Shapes are compared with the networks when the tensors are read.

    Args:
        said: the fields of `config.json`, which need not be there if there is a `model_size`.
        model_size: a named size, for the fields that `said` lacks; by default the small one.

    Raises:
        InputError: another kind of model, a size that is not known, or a contradiction between the
            tensors and `said`.
    """
    _reject_other_models(file)
    if model_size is None and not said.path:
        raise InputError(
            f"{file.prefix}: tensors alone do not show the number of heads; --model_size should"
            " name the size, as convbert-small, or --config a config.json"
        )
    scope, embeddings_scope = _scopes(file)
    tables = f"{embeddings_scope}/embeddings"
    shown = {
        "vocab_size": file.shape(f"{tables}/word_embeddings", 2)[0],
        "max_position_embeddings": file.shape(f"{tables}/position_embeddings", 2)[0],
    }
    with located(said.path or file.prefix):
        convolves = any("/conv_attn_" in name for name in file.shapes)
        size = named_size(model_size or ("convbert-small" if convolves else "electra-small"))
        if type(size) is not EncoderConfig:
            raise InputError(f"no original checkpoint of ConvBERT or ELECTRA is {model_size}")
        config = size.replace(**{"mask_padding": False, **shown, **said.encoder})
    objective, networks = _objective(file, scope)
    if scope == tf1.GENERATOR:
        note = "a generator without a discriminator: the encoder of a masked language model here"
        config = _generator(file, config, said, untied=embeddings_scope == scope)
        return Architecture(config, objective, networks, scope, embeddings_scope, [note])
    said.check({**shown, **objective}, file.prefix)
    objective = {**said.objective(config.hidden_size), **objective}
    return Architecture(config, objective, networks, scope, embeddings_scope, [])


def _generator(
    file: TensorFile, config: EncoderConfig, said: OriginalConfig, untied: bool
) -> EncoderConfig:
    """A generator that is alone: `config` itself, or the generator of that discriminator."""
    query = f"{tf1.GENERATOR}/encoder/layer_0/attention/self/query/kernel"
    share = file.shape(query, 2)[0] / config.hidden_size
    if share == 1:
        return config
    return ReplacedTokenDetectionSettings(
        generator_hidden_size=share,
        generator_layers=said.fields.get("generator_layers", 1.0),
        untied_generator_embeddings=untied,
    ).generator_config(config)


def _scopes(file: TensorFile) -> tuple[str, str]:
    """Returns the scopes of the encoder and of its embeddings."""
    if _has_layers(file, tf1.ENCODER) or not _has_layers(file, tf1.GENERATOR):
        return tf1.ENCODER, tf1.ENCODER
    return tf1.GENERATOR, tf1.GENERATOR if _has_untied_embeddings(file) else tf1.ENCODER


def _has_layers(file: TensorFile, scope: str) -> bool:
    return any(name.startswith(f"{scope}/encoder/") for name in file.shapes)


def _has_untied_embeddings(file: TensorFile) -> bool:
    return f"{tf1.GENERATOR}/embeddings/word_embeddings" in file.shapes


def _objective(file: TensorFile, scope: str) -> tuple[dict[str, Any], list[str]]:
    """Fields of PretrainingHParams that the names show, and which of the networks there are."""
    scopes = {name.split("/")[0] for name in file.shapes}
    generator = _has_layers(file, tf1.GENERATOR)
    discriminates, predicts = (s in scopes for s in (tf1.DISCRIMINATOR_HEAD, tf1.MASKED_LM_HEAD))
    if scope == tf1.GENERATOR or (predicts and not generator and not discriminates):
        return {"objective": "masked_lm"}, ["encoder", "head"] if predicts else ["encoder"]
    objective = {}
    if discriminates or generator:
        objective["objective"] = "replaced_token_detection"
    if generator or predicts:
        objective |= {"untied_generator": generator, "uniform_generator": False}
    if generator:
        objective["untied_generator_embeddings"] = _has_untied_embeddings(file)
    there = {"encoder": True, "head": discriminates}
    there |= {"generator": generator or predicts, "generator_head": predicts}
    return objective, [name for name, held in there.items() if held]


def _reject_other_models(file: TensorFile) -> None:
    """Raises InputError, naming a tensor, unless the names are ConvBERT's or ELECTRA's."""
    names = list(file.shapes)
    if any(name.startswith((f"{tf1.ENCODER}/", f"{tf1.GENERATOR}/encoder/")) for name in names):
        return
    raise InputError(
        f"{file.prefix}: should be ConvBERT's or ELECTRA's, whose tensors begin with"
        f" {tf1.ENCODER}/, or XLNet's with its xlnet_config.json beside it or as --config."
        f" Received: {names[0] if names else 'no tensor'}"
    )
