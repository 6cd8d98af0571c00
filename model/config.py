"""An architecture as a frozen, validated dataclass, stored as `config.json`; and their registry."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple, TypeVar

from convbert.common import files, storage
from convbert.common.errors import InputError
from convbert.common.plugins import Registry, source
from convbert.common.settings import (
    at_least,
    check_fields,
    check_setting,
    checked_values,
    one_of,
    replace_checked,
    within,
)

TOKEN_MIXERS = ("attention", "mixed", "convolution")
CONVOLUTIONS = ("static", "dynamic", "span")
ACTIVATIONS = ("gelu", "gelu_new", "silu", "relu", "tanh", "linear")
CONFIG_FILE = "config.json"

DEFAULT_ARCHITECTURE = "convbert"  # where config.json names none
Config = TypeVar("Config", bound="BackboneConfig")


class BackboneConfig:
    """Base of the frozen dataclasses that describe architectures, with what all of them offer.

    A subclass names its `architecture` and has at least the fields that stand without a value here,
    which the commands read; a rate that has no use is 0. The class attributes with a value are what
    heads read and a subclass need not have as fields. Fields are checked by
    `settings.check_fields`.
    """

    architecture: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field]]
    vocab_size: int
    hidden_size: int
    max_position_embeddings: int
    type_vocab_size: int
    hidden_dropout_prob: float
    attention_probs_dropout_prob: float
    hidden_act = "gelu"
    initializer_range = 0.02
    layer_norm_eps = 1e-12
    summary_layer = False  # whether heads for whole texts begin with a dense layer and tanh

    def __post_init__(self) -> None:
        check_fields(self)
        layers = getattr(self, "num_hidden_layers", 1)
        check_setting(self, layers <= 1000, "num_hidden_layers", "at most 1000")

    @property
    def embedding_size(self) -> int:
        """E, width of the embeddings."""
        return self.hidden_size

    @property
    def summary_token(self) -> int:
        """Place of the token that stands for the whole text; -1: the last one."""
        return 0

    @property
    def visible_padding(self) -> int:
        """How many tokens of padding after a sequence change its outputs; usually none.

        With so many of them a sequence has the same outputs as with any more.
        """
        return 0

    def replace(self: Config, **changes: Any) -> Config:
        """A copy with some fields changed, validated again."""
        return dataclasses.replace(self, **changes)

    def overridden(self, changes: dict[str, Any]) -> BackboneConfig:
        """A copy of a named size with some fields changed, and those that go with them."""
        return replace_checked(self, changes)

    def with_summary_last(self) -> BackboneConfig:
        """The same for texts that end with a summary token, of segment 2, as XLNet's do.

        Raises:
            InputError: such texts do not fit.
        """
        expected = "at least 3 with a SentencePiece vocabulary, as <cls> is of segment 2"
        check_setting(self, self.type_vocab_size >= 3, "type_vocab_size", expected)
        return self

    def to_json(self) -> dict[str, Any]:
        """Returns the fields of `config.json`; `architecture` is left out for ConvBERT's."""
        fields = dataclasses.asdict(self)
        if self.architecture == DEFAULT_ARCHITECTURE:
            return fields
        return {"architecture": self.architecture, **fields}

    def save(self, folder: str) -> None:
        """Writes `config.json` into `folder`; raises InputError when that cannot be done."""
        files.write_json(os.path.join(folder, CONFIG_FILE), self.to_json())


class Architecture(NamedTuple):
    """A registered architecture; see `register_architecture`."""

    config_class: type[BackboneConfig]
    build: Callable | str


ARCHITECTURES: Registry[Architecture] = Registry("architecture")
SIZES: dict[str, BackboneConfig] = {}  # by name, of all architectures


def register_architecture(
    config_class: type[BackboneConfig],
    build: Callable | str,
    sizes: Mapping[str, BackboneConfig] | None = None,
) -> None:
    """Makes an architecture known to every command.

    Args:
        config_class: a frozen dataclass that names its `architecture`.
        build: makes a backbone whose variables exist, `build(config, embeddings=None,
            name="encoder")`; `embeddings` are those of another backbone to share. Or its name,
            "module:function", which is imported when it is called.
        sizes: configurations by name, for `model_size`.

    Raises:
        InputError: the name of the architecture, or of a size, is another's.
    """
    for name in sizes or {}:
        if name in SIZES and source(type(SIZES[name])) != source(config_class):
            raise InputError(f"{source(config_class)}: there is a size {name} already")
    ARCHITECTURES.add(config_class.architecture, Architecture(config_class, build), config_class)
    SIZES.update(sizes or {})


@dataclasses.dataclass(frozen=True)
class EncoderConfig(BackboneConfig):
    """ConvBERT and the encoders it is compared with.

    Names of fields are BERT's or ELECTRA's where they exist.

    Attributes:
        vocab_size: number of rows of the word embeddings. A vocabulary may hold fewer pieces: the
            rows after them are padding, which nothing predicts.
        embedding_size: E, width of the embeddings; projected to D when it differs.
        hidden_size: D, width of the hidden states.
        num_hidden_layers: number of layers.
        num_attention_heads: heads before the bottleneck, N γ of width H = D / (N γ). Table 1 of the
            ConvBERT supplement lists N, the number after it. With a larger γ, N is 1.
        intermediate_size: inner width of the feed-forward block.
        hidden_act: activation of the feed-forward block; "gelu" is the exact (erf) one, "gelu_new"
            its approximation by tanh, "silu" x times its logistic function.
        hidden_dropout_prob: dropout of embeddings, block outputs.
        attention_probs_dropout_prob: dropout of the attention probabilities.
        max_position_embeddings: longest sequence.
        type_vocab_size: number of segment ids.
        initializer_range: standard deviation of the truncated normal initialiser.
        layer_norm_eps: ε, added to the variance in every layer norm.
        token_mixer: "attention" alone (BERT and ELECTRA, with `head_ratio` 1), "mixed" (ConvBERT)
            or "convolution" alone.
        convolution: kernel of the mixing convolution: "span" (ConvBERT: from a span of tokens),
            "dynamic" (from the token alone) or "static" (one learned depthwise kernel).
        conv_kernel_size: K, odd.
        head_ratio: γ of the ConvBERT paper; attention and convolution get N heads each.
        linear_groups: G, groups of the feed-forward block (equation 1 of the authors' response).
        share_layers: one set of layer weights used by every layer (ALBERT, ALE).
        mask_padding: zero the convolution's inputs at padding, so that outputs do not depend on how
            far a batch was padded. The original code does not; its checkpoints are converted with
            False.
        causal: whether what a token becomes depends on itself and those before it alone, as a
            language model needs it. A text's vector is then the last token's.
        summary_last: whether the token that stands for the whole text is the last one, as in
            XLNet's layout of texts, and not the first.
    """

    architecture: ClassVar[str] = DEFAULT_ARCHITECTURE

    vocab_size: int = dataclasses.field(default=30522, metadata=at_least(1))
    embedding_size: int = dataclasses.field(default=128, metadata=at_least(1))
    hidden_size: int = dataclasses.field(default=256, metadata=at_least(1))
    num_hidden_layers: int = dataclasses.field(default=12, metadata=at_least(1))
    num_attention_heads: int = dataclasses.field(default=4, metadata=at_least(1))
    intermediate_size: int = dataclasses.field(default=1024, metadata=at_least(1))
    hidden_act: str = dataclasses.field(default="gelu", metadata=one_of(*ACTIVATIONS))
    hidden_dropout_prob: float = dataclasses.field(default=0.1, metadata=within(0, 1))
    attention_probs_dropout_prob: float = dataclasses.field(default=0.1, metadata=within(0, 1))
    max_position_embeddings: int = dataclasses.field(default=512, metadata=at_least(1))
    type_vocab_size: int = dataclasses.field(default=2, metadata=at_least(1))
    initializer_range: float = 0.02
    token_mixer: str = dataclasses.field(default="mixed", metadata=one_of(*TOKEN_MIXERS))
    convolution: str = dataclasses.field(default="span", metadata=one_of(*CONVOLUTIONS))
    conv_kernel_size: int = dataclasses.field(default=9, metadata=at_least(1))
    head_ratio: int = dataclasses.field(default=2, metadata=at_least(1))
    linear_groups: int = dataclasses.field(default=1, metadata=at_least(1))
    share_layers: bool = False
    mask_padding: bool = True
    layer_norm_eps: float = 1e-12
    causal: bool = False
    summary_last: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_setting(self, 0.0 < self.layer_norm_eps < 1.0, "layer_norm_eps", "in (0, 1)")
        check_setting(self, self.conv_kernel_size % 2 == 1, "conv_kernel_size", "odd")
        n, ratio, groups = self.num_attention_heads, self.head_ratio, self.linear_groups
        check_setting(self, self.hidden_size % n == 0, "hidden_size", f"divisible by {n} heads")
        expected = f"a divisor of num_attention_heads ({n}), or greater (then one head is left)"
        check_setting(self, n % ratio == 0 or ratio > n, "head_ratio", expected)
        for name in ("hidden_size", "intermediate_size"):
            whole = getattr(self, name) % groups == 0
            check_setting(self, whole, name, f"divisible by {groups} groups")

    def overridden(self, changes: dict[str, Any]) -> EncoderConfig:
        """As in the original, `hidden_size` alone also sets the heads and the inner width."""
        changes = checked_values(type(self), changes)
        D = changes.get("hidden_size", self.hidden_size)
        if self.hidden_size != D:
            follow = {
                "num_attention_heads": max(1, D // self.head_size),
                "intermediate_size": 4 * D,
            }
            follow |= {"embedding_size": D} if self.embedding_size == self.hidden_size else {}
            changes = follow | changes
        return self.replace(**changes)

    def with_summary_last(self) -> EncoderConfig:
        """See BackboneConfig."""
        # Causal language modelling predicts each token of a text, and so begins with another.
        check_setting(self, not self.causal, "causal", "false with a SentencePiece vocabulary")
        segments = max(self.type_vocab_size, 3)
        return self.replace(summary_last=True, type_vocab_size=segments)

    @property
    def num_heads(self) -> int:
        """N, heads of the attention, and as many of the convolution; at least one."""
        return max(1, self.num_attention_heads // self.head_ratio)

    @property
    def head_size(self) -> int:
        """H, width of one head, untouched by the bottleneck."""
        return self.hidden_size // self.num_attention_heads

    @property
    def mixer_size(self) -> int:
        """A = N · H, width that queries, keys and values are projected to."""
        return self.num_heads * self.head_size

    @property
    def summary_token(self) -> int:
        """See BackboneConfig. Of a causal encoder's tokens the last alone saw the whole text."""
        return -1 if self.causal or self.summary_last else 0

    @property
    def attends(self) -> bool:
        """True if the layers have self-attention, alone or beside the convolution."""
        return self.token_mixer != "convolution"

    @property
    def convolves(self) -> bool:
        """True if the layers have a convolution, alone or beside self-attention."""
        return self.token_mixer != "attention"

    @property
    def visible_padding(self) -> int:
        """See BackboneConfig. Where padding enters convolutions, each layer sees half a kernel of
        it further."""
        if self.mask_padding or self.causal or not self.convolves:
            return 0
        return self.num_hidden_layers * (self.conv_kernel_size // 2)


def read_fields(path: str) -> dict[str, Any]:
    """The fields of a JSON file; raises InputError when it is missing or holds something else."""
    if not storage.exists(path):
        raise InputError(f"{path}: no encoder configuration here")
    return files.read_json(path)
