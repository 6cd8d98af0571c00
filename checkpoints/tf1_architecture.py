"""What the tensors of an original TensorFlow 1 checkpoint say about the networks in it."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from checkpoints import tf1
from checkpoints.model_directory import generator_shares
from checkpoints.tf1_config import OriginalConfig
from checkpoints.tf1_file import TensorFile
from errors import InputError
from model import EncoderConfig

# Fields of EncoderConfig that a generator has otherwise than its discriminator.
_SIZES = ("embedding_size", "hidden_size", "num_hidden_layers", "num_attention_heads")
_SIZES += ("intermediate_size",)
_HEAD_SIZE = 64  # of every published BERT, ELECTRA and ConvBERT, but ConvBERT-medium-small's 48


@dataclasses.dataclass(frozen=True)
class Architecture:
    """The networks of a checkpoint.

    Attributes:
        config: the encoder.
        objective: fields of PretrainingHParams that say which objective it is, and its generator.
        networks: which of the objective's networks are there, by attribute name.
        generator: None where there is no network of its own.
        scope: what the names of the encoder's tensors begin with: "generator" where there is a
            generator and no discriminator.
        embeddings_scope: the same of its embeddings.
        notes: what was inferred, and from what.
    """

    config: EncoderConfig
    objective: dict[str, Any]
    networks: list[str]
    generator: EncoderConfig | None
    scope: str
    embeddings_scope: str
    notes: list[str]


def infer_architecture(
    file: TensorFile, said: OriginalConfig, num_attention_heads: int | None = None
) -> Architecture:
    """The networks that the tensors' names and shapes describe.

    Args:
        file: the checkpoint.
        said: its `config.json`; fills in what tensors do not show.
        num_attention_heads: N, for the encoder, where neither shows it.

    Raises:
        InputError: another kind of model; a tensor that is missing or does not fit the others; a
            contradiction between tensors and `said`; or the number of heads is open.
    """
    _refuse_other_models(file)
    scope, embeddings_scope = _scopes(file)
    inferred = _Fields(file, scope, embeddings_scope)
    if scope == tf1.GENERATOR:
        said = _said_of_generator(said, inferred)
    heads, notes = _choose_heads(inferred, said, num_attention_heads)
    config = inferred.complete({**said.encoder, **heads}, said.path)
    notes = [f"inferred from the tensors: {inferred}", *notes]
    assumed = ("hidden_act", "hidden_dropout_prob", "attention_probs_dropout_prob")
    assumed = [f"{name} {getattr(config, name)}" for name in assumed if name not in said.encoder]
    if assumed:
        notes.append(f"not visible in tensors, so as published: {', '.join(assumed)}")
    objective, networks = _objective(file, scope)
    generator = None
    if scope == tf1.GENERATOR:
        notes.append(
            "a generator without a discriminator: it is the encoder of a masked language model here"
        )
    elif _has_layers(file, tf1.GENERATOR):
        generator, shares = _infer_generator(file, config, said)
        objective |= shares
        notes.append(
            "generator, from the tensors: hidden_size"
            f" {generator.hidden_size}, {generator.num_hidden_layers} layers,"
            f" {generator.num_attention_heads} heads, embeddings"
            f" {'its own' if shares['untied_generator_embeddings'] else 'shared'}"
        )
    for name, value in said.objective.items():
        if not _agree(value, objective.setdefault(name, value)):
            raise InputError(
                f"{said.path}: `{name}` should be {objective[name]}, as the tensors of"
                f" {file.prefix} show. Received: {value!r}"
            )
    return Architecture(config, objective, networks, generator, scope, embeddings_scope, notes)


class _Fields:
    """Fields of EncoderConfig that the tensors of a scope show, each with the tensor it is from."""

    def __init__(self, file: TensorFile, scope: str, embeddings_scope: str):
        self.file, self.scope = file, scope
        layer, embeddings = f"{scope}/encoder/layer_0", f"{embeddings_scope}/embeddings"
        self.query = f"{layer}/attention/self/query/kernel"
        self.convolution = f"{layer}/attention/self/conv_attn_kernel/kernel"
        self.values: dict[str, Any] = {}
        self.origins: dict[str, str] = {}

        def note(tensor: str, **fields):
            self.values |= fields
            self.origins |= dict.fromkeys(fields, tensor)

        words = f"{embeddings}/word_embeddings"
        V, E = file.shape(words, 2)
        note(words, vocab_size=V, embedding_size=E)
        for name, field in (
            ("position_embeddings", "max_position_embeddings"),
            ("token_type_embeddings", "type_vocab_size"),
        ):
            rows, _ = file.shape(f"{embeddings}/{name}", 2)
            note(f"{embeddings}/{name}", **{field: rows})
        D, self.mixer_size = file.shape(self.query, 2)
        if not self.mixer_size or D % self.mixer_size:
            raise InputError(
                f"{file.prefix}: {self.query} should have a width that divides {D}."
                f" Received: {[D, self.mixer_size]}"
            )
        note(self.query, hidden_size=D, head_ratio=D // self.mixer_size)
        note(f"{scope}/encoder/layer_*", num_hidden_layers=self._count_layers())
        grouped, dense = (f"{layer}/intermediate/{name}/kernel" for name in ("g_dense", "dense"))
        if grouped in file.shapes:
            G, _, width = file.shape(grouped, 3)
            note(grouped, intermediate_size=G * width, linear_groups=G)
        else:
            note(dense, intermediate_size=file.shape(dense, 2)[1], linear_groups=1)
        self._infer_convolution(note, f"{layer}/attention/self/conv_attn_key/depthwise_kernel")

    def _infer_convolution(self, note, depthwise: str) -> None:
        """With a convolution, the number of kernels says how many heads there are."""
        self.heads = None
        if depthwise not in self.file.shapes:
            note(self.query, token_mixer="attention")
            return
        K = self.file.shape(depthwise, 3)[0]
        note(depthwise, token_mixer="mixed", convolution="span", conv_kernel_size=K)
        width = self.file.shape(self.convolution, 2)[1]
        self.heads = width // K  # N', after the bottleneck
        if not self.heads or width % K or self.mixer_size % self.heads:
            raise InputError(
                f"{self.file.prefix}: {self.convolution} should have as many columns as the heads"
                f" of width {self.mixer_size} have taps, {K} each. Received: {width}"
            )
        heads = self.values["hidden_size"] // (self.mixer_size // self.heads)
        note(self.convolution, num_attention_heads=heads)

    def _count_layers(self) -> int:
        pattern = re.compile(rf"{self.scope}/encoder/layer_(\d+)/")
        found = {int(match.group(1)) for match in map(pattern.match, self.file.shapes) if match}
        return max(found) + 1

    def complete(self, said: dict[str, Any], path: str) -> EncoderConfig:
        """The configuration, with `said` (from the file `path`) for what tensors do not show.

        Of heads and ratio only the widths they make are shown, so they may be said otherwise.

        Raises:
            InputError: something said contradicts a tensor.
        """
        for name, value in said.items():
            free = name in ("num_attention_heads", "head_ratio")
            if name in self.values and not free and value != self.values[name]:
                raise InputError(
                    f"{path}: `{name}` should be {self.values[name]}, as {self.origins[name]} in"
                    f" {self.file.prefix} is. Received: {value!r}"
                )
        try:
            config = EncoderConfig(**{"mask_padding": False, **self.values, **said})
        except InputError as error:
            raise InputError(f"{path or self.file.prefix}: {error}") from error
        heads, ratio = config.num_attention_heads, config.head_ratio
        reason = f"as `num_attention_heads` {heads} and `head_ratio` {ratio} make it"
        expected = [config.hidden_size, config.mixer_size]
        self.file.check_shape(self.query, expected, reason)
        if self.heads is not None:
            expected = [config.mixer_size, config.num_heads * config.conv_kernel_size]
            self.file.check_shape(self.convolution, expected, reason)
        return config

    def __str__(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in self.values.items())


def _choose_heads(
    inferred: _Fields, said: OriginalConfig, asked: int | None
) -> tuple[dict[str, int], list[str]]:
    """N where tensors do not show it: what the user or config.json says, or heads of width 64."""
    name = "num_attention_heads"
    written = said.encoder.get(name)
    if asked is not None and written is not None and asked != written:
        raise InputError(f"--{name} should be {written}, as {said.path} says. Received: {asked}")
    if asked is not None:
        return {name: asked}, [f"{name} {asked}, as told"]
    if written is not None:
        return {}, [f"{name} {written}, as {said.path} says"]
    if name in inferred.values:
        return {}, []
    hidden_size, ratio = inferred.values["hidden_size"], inferred.values["head_ratio"]
    heads, rest = divmod(hidden_size, _HEAD_SIZE)
    if rest or heads % ratio:
        raise InputError(
            f"{inferred.file.prefix}: how many heads {inferred.query} of shape"
            f" {[hidden_size, inferred.mixer_size]} is for cannot be seen; say"
            f" --{name}"
        )
    return {name: heads}, [
        f"{name} {heads}: heads of width {_HEAD_SIZE}, as published; say --{name} if it is another"
    ]


def _infer_generator(
    file: TensorFile, config: EncoderConfig, said: OriginalConfig
) -> tuple[EncoderConfig, dict[str, Any]]:
    """The generator, and the fields of PretrainingHParams that make it."""
    untied = f"{tf1.GENERATOR}/embeddings/word_embeddings" in file.shapes
    inferred = _Fields(file, tf1.GENERATOR, tf1.GENERATOR if untied else tf1.ENCODER)
    share = inferred.values["hidden_size"] / config.hidden_size
    scaled = max(1, round(config.num_attention_heads * share))
    same = dataclasses.asdict(config)  # what tensors do not show, as in the encoder
    filled = {name: value for name, value in same.items() if name not in inferred.values}
    filled |= {"head_ratio": config.head_ratio, "num_attention_heads": scaled}
    generator = inferred.complete({**filled, **said.generator}, said.path or file.prefix)
    try:
        return generator, generator_shares(
            config, generator, untied_embeddings=untied, inner_width=False
        )
    except InputError as error:
        raise InputError(f"{file.prefix}: {error}") from error


def _scopes(file: TensorFile) -> tuple[str, str]:
    """What the names of the encoder begin with, and those of its embeddings.

    Raises:
        InputError: there are layers of a generator, but what else is there does not belong to it.
    """
    if _has_layers(file, tf1.ENCODER) or not _has_layers(file, tf1.GENERATOR):
        return tf1.ENCODER, tf1.ENCODER
    there = f"{file.prefix}: there are the layers of a generator ({tf1.GENERATOR}/encoder/)"
    if heads := [name for name in file.shapes if name.startswith(f"{tf1.DISCRIMINATOR_HEAD}/")]:
        raise InputError(
            f"{there} and a discriminator's head ({heads[0]}), but not the discriminator's layers"
            f" ({tf1.ENCODER}/encoder/)"
        )
    for scope in (tf1.GENERATOR, tf1.ENCODER):
        if f"{scope}/embeddings/word_embeddings" in file.shapes:
            return tf1.GENERATOR, scope
    raise InputError(
        f"{there}, but no embeddings, neither its own ({tf1.GENERATOR}/embeddings/word_embeddings)"
        f" nor shared ones ({tf1.ENCODER}/embeddings/word_embeddings)"
    )


def _has_layers(file: TensorFile, scope: str) -> bool:
    return any(name.startswith(f"{scope}/encoder/") for name in file.shapes)


def _said_of_generator(said: OriginalConfig, inferred: _Fields) -> OriginalConfig:
    """What a `config.json` says of a generator that is alone.

    It is either that of the generator itself, or that of the discriminator with what is said there
    of its generator; then sizes are as tensors show them.
    """
    if not said.generator and "generator_hidden_size" not in said.objective:
        return dataclasses.replace(said, objective={})
    encoder = {name: value for name, value in said.encoder.items() if name not in _SIZES}
    heads, width = (said.encoder.get(name) for name in ("num_attention_heads", "hidden_size"))
    if heads and width:
        scaled = max(1, round(heads * inferred.values["hidden_size"] / width))
        encoder["num_attention_heads"] = scaled
    return dataclasses.replace(
        said, encoder={**encoder, **said.generator}, generator={}, objective={}
    )


def _objective(file: TensorFile, scope: str) -> tuple[dict[str, Any], list[str]]:
    """Fields of PretrainingHParams that the names show, and which of the networks there are."""
    scopes = {name.split("/")[0] for name in file.shapes}
    generator = _has_layers(file, tf1.GENERATOR)
    discriminates, predicts = (s in scopes for s in (tf1.DISCRIMINATOR_HEAD, tf1.MASKED_LM_HEAD))
    if scope == tf1.GENERATOR:
        return {"objective": "masked_lm"}, ["encoder", *["head"] * predicts]
    if predicts and not generator and not discriminates:
        return {"objective": "masked_lm"}, ["encoder", "head"]
    objective, networks = {}, ["encoder"]
    if discriminates or generator:
        objective["objective"] = "replaced_token_detection"
    if discriminates:
        networks.append("head")
    if generator or predicts:
        objective |= {"untied_generator": generator, "uniform_generator": False}
        networks.append("generator")
    if predicts:
        networks.append("generator_head")
    return objective, networks


def _agree(said: Any, shown: Any) -> bool:
    """Whether two values are the same, or shares of a width with few decimals, as 0.33333."""
    if isinstance(shown, float) and isinstance(said, (int, float)):
        return abs(said - shown) < 1e-3
    return said == shown


def _refuse_other_models(file: TensorFile) -> None:
    """Raises InputError, naming a tensor, unless the names are ConvBERT's or ELECTRA's."""
    names = list(file.shapes)
    if any(name.startswith((f"{tf1.ENCODER}/", f"{tf1.GENERATOR}/encoder/")) for name in names):
        return
    kind = "another model"
    if "_CHECKPOINTABLE_OBJECT_GRAPH" in names:
        kind = "TensorFlow 2, as in our model directories"
        names = [name for name in names if not name.startswith("_")]
    elif any(name.startswith("bert/encoder/transformer/group_") for name in names):
        kind = "ALBERT"
    elif any(name.startswith("bert/") for name in names):
        kind = "BERT"
        names = [name for name in names if name.startswith("bert/")]
    raise InputError(
        f"{file.prefix}: a checkpoint of {kind}; it should be ConvBERT's or ELECTRA's, whose"
        f" tensors begin with {tf1.ENCODER}/. Received: {names[0] if names else 'no tensor'}"
    )
