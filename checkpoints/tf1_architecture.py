"""The networks of an original TensorFlow 1 checkpoint, inferred from its tensors."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from checkpoints import tf1
from checkpoints.tf1_config import OriginalConfig, network_fields
from checkpoints.tf1_file import TensorFile
from errors import InputError, located
from model import EncoderConfig
from pretrain.objectives.replaced_token_detection import ReplacedTokenDetectionSettings

_HEAD_SIZE = 64  # of every published BERT, ELECTRA and ConvBERT, but ConvBERT-medium-small's 48
_NOT_SHOWN = ("hidden_act", "hidden_dropout_prob", "attention_probs_dropout_prob")


@dataclasses.dataclass(frozen=True)
class Architecture:
    """The networks of a checkpoint."""

    config: EncoderConfig
    objective: dict[str, Any]  # fields of PretrainingHParams: which objective, its generator
    networks: list[str]  # those of the objective that are there
    generator: EncoderConfig | None  # None where there is no network of its own
    scope: str  # of the encoder's names: "generator" where there is no discriminator
    embeddings_scope: str
    notes: list[str]  # what was inferred, and from what


def infer_architecture(
    file: TensorFile, said: OriginalConfig, num_attention_heads: int | None = None
) -> Architecture:
    """The networks that the tensors' names and shapes describe.

    Its `config.json`, and `num_attention_heads`, say what tensors do not show. Shapes are compared
    with the networks when the tensors are read.

    Raises:
        InputError: another kind of model; a tensor that is missing; a contradiction between tensors
            and `said`; or the number of heads is open.
    """
    _reject_other_models(file)
    scope, embeddings_scope = _scopes(file)
    config, shown, notes = _encoder(file, said, scope, embeddings_scope, num_attention_heads)
    objective, networks = _objective(file, scope)
    if scope == tf1.GENERATOR:
        notes.append(
            "a generator without a discriminator: it is the encoder of a masked language model here"
        )
        return Architecture(config, objective, networks, None, scope, embeddings_scope, notes)
    generator = None
    if objective.get("untied_generator"):
        shares = _generator_shares(file, config)
        objective |= shares
        generator = ReplacedTokenDetectionSettings(**shares).generator_config(config)
        notes.append(f"generator, from the tensors: {shares}")
    fields = network_fields(config, generator)
    # Only the widths that heads and their ratio make are shown.
    names = {*shown, "conv_type", *(n for n in fields if n.startswith("generator_"))}
    names -= {"num_attention_heads", "head_ratio"}
    said.check({**objective, **{name: fields[name] for name in names & set(fields)}}, file.prefix)
    objective = {**said.objective, **objective}
    return Architecture(config, objective, networks, generator, scope, embeddings_scope, notes)


def _encoder(
    file: TensorFile, said: OriginalConfig, scope: str, embeddings_scope: str, asked: int | None
) -> tuple[EncoderConfig, dict[str, Any], list[str]]:
    """The encoder; those of its fields that tensors show; what was inferred, and from what."""
    shown = _shown(file, scope, embeddings_scope)
    heads, notes = _heads(file, scope, shown, said, asked)
    where = said.path or file.prefix
    with located(where):
        config = EncoderConfig(**{"mask_padding": False, **said.encoder, **shown, **heads})
    if "num_attention_heads" in shown:
        _check_widths(config, shown, where)
    listed = ", ".join(f"{name} {value}" for name, value in shown.items())
    notes = [f"inferred from the tensors: {listed}", *notes]
    assumed = [f"{name} {getattr(config, name)}" for name in _NOT_SHOWN if name not in said.fields]
    if assumed:
        notes.append(f"not visible in tensors, so as published: {', '.join(assumed)}")
    return config, shown, notes


def _layer(scope: str, name: str) -> str:
    return f"{scope}/encoder/layer_0/{name}"


def _shown(file: TensorFile, scope: str, embeddings_scope: str) -> dict[str, Any]:
    """Fields of EncoderConfig that the shapes of an encoder's tensors show."""
    embeddings = f"{embeddings_scope}/embeddings"
    V, E = file.shape(f"{embeddings}/word_embeddings", 2)
    D, A = file.shape(_layer(scope, "attention/self/query/kernel"), 2)
    fields = {
        "vocab_size": V,
        "embedding_size": E,
        "max_position_embeddings": file.shape(f"{embeddings}/position_embeddings", 2)[0],
        "type_vocab_size": file.shape(f"{embeddings}/token_type_embeddings", 2)[0],
        "hidden_size": D,
        "head_ratio": D // max(A, 1),
        "num_hidden_layers": _count_layers(file, scope),
    }
    grouped = _layer(scope, "intermediate/g_dense/kernel")
    if grouped in file.shapes:
        G, _, width = file.shape(grouped, 3)
    else:
        G, width = 1, file.shape(_layer(scope, "intermediate/dense/kernel"), 2)[1]
    fields |= {"intermediate_size": G * width, "linear_groups": G}
    depthwise = _layer(scope, "attention/self/conv_attn_key/depthwise_kernel")
    if depthwise not in file.shapes:
        return {**fields, "token_mixer": "attention"}
    K = file.shape(depthwise, 3)[0]
    # N' K columns, where N' is the number of heads after the bottleneck.
    columns = file.shape(_layer(scope, "attention/self/conv_attn_kernel/kernel"), 2)[1]
    heads = D // max(1, A // max(1, columns // K))
    mixer = {"token_mixer": "mixed", "convolution": "span", "conv_kernel_size": K}
    return {**fields, **mixer, "num_attention_heads": heads}


def _count_layers(file: TensorFile, scope: str) -> int:
    pattern = re.compile(rf"{scope}/encoder/layer_(\d+)/")
    return 1 + max(int(match[1]) for match in map(pattern.match, file.shapes) if match)


def _heads(
    file: TensorFile, scope: str, shown: dict[str, Any], said: OriginalConfig, asked: int | None
) -> tuple[dict[str, int], list[str]]:
    """N and the ratio: those of the user, of config.json, of tensors, or heads of width 64.

    A generator that is alone may have the `config.json` of its discriminator, whose heads are
    scaled by the widths.
    """
    name, hidden_size = "num_attention_heads", shown["hidden_size"]
    written = said.fields.get(name)
    ratio = {"head_ratio": said.fields.get("head_ratio", shown["head_ratio"])}
    if scope == tf1.GENERATOR and written is not None:
        width = said.fields.get("hidden_size", hidden_size)
        written = max(1, round(written * hidden_size / width))
    if asked is not None and written not in (None, asked):
        raise InputError(f"--{name} should be {written}, as {said.path} says. Received: {asked}")
    if asked is not None:
        return {name: asked, **ratio}, [f"{name} {asked}, from --{name}"]
    if written is not None:
        return {name: written, **ratio}, [f"{name} {written}, as {said.path} says"]
    if name in shown:
        return ratio, []
    heads, rest = divmod(hidden_size, _HEAD_SIZE)
    if rest or heads % ratio["head_ratio"]:
        raise InputError(
            f"{file.prefix}: the number of heads of {_layer(scope, 'attention/self/query/kernel')}"
            f" cannot be seen; --{name} should say it"
        )
    note = f"{name} {heads}: heads of width {_HEAD_SIZE}, as published; otherwise give --{name}"
    return {name: heads}, [note]


def _check_widths(config: EncoderConfig, shown: dict[str, Any], where: str) -> None:
    """Raises InputError unless heads and ratio, which may vary, make the widths of the tensors."""
    names = ("num_attention_heads", "head_ratio")
    expected = config.replace(**{name: shown[name] for name in names})
    if (config.num_heads, config.mixer_size) != (expected.num_heads, expected.mixer_size):
        given, made = ([getattr(c, name) for name in names] for c in (config, expected))
        raise InputError(
            f"{where}: `num_attention_heads` and `head_ratio` should be {made}, as the tensors"
            f" show. Received: {given}"
        )


def _generator_shares(file: TensorFile, config: EncoderConfig) -> dict[str, Any]:
    """The fields of PretrainingHParams that make the generator of the encoder."""
    width = file.shape(_layer(tf1.GENERATOR, "attention/self/query/kernel"), 2)[0]
    layers = _count_layers(file, tf1.GENERATOR)
    return {
        "generator_hidden_size": width / config.hidden_size,
        "generator_layers": layers / config.num_hidden_layers,
        "untied_generator_embeddings": f"{tf1.GENERATOR}/embeddings/word_embeddings" in file.shapes,
    }


def _scopes(file: TensorFile) -> tuple[str, str]:
    """Returns the scopes of the encoder and of its embeddings."""
    if _has_layers(file, tf1.ENCODER) or not _has_layers(file, tf1.GENERATOR):
        return tf1.ENCODER, tf1.ENCODER
    own = f"{tf1.GENERATOR}/embeddings/word_embeddings" in file.shapes
    return tf1.GENERATOR, tf1.GENERATOR if own else tf1.ENCODER


def _has_layers(file: TensorFile, scope: str) -> bool:
    return any(name.startswith(f"{scope}/encoder/") for name in file.shapes)


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
