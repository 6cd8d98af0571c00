"""Architectures as frozen, validated dataclasses, stored as `config.json`; and their registry."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple, TypeVar

from convbert.common import files
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
SPAN_KERNELS = ("product", "key", "concatenation")
ACTIVATIONS = ("gelu", "gelu_new", "silu", "relu", "tanh", "linear")
CONFIG_FILE = "config.json"

DEFAULT_ARCHITECTURE = "convbert"  # if config.json names none
Config = TypeVar("Config", bound="BackboneConfig")


class BackboneConfig:
    """Base class of the frozen dataclasses that describe architectures.

    A subclass sets `architecture` and has at least the fields without a value here, which commands
    read; a rate that it does not use is 0. Heads read the class attributes with a value, which a
    subclass may turn into fields. `settings.check_fields` checks the fields.
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
    use_bias = True  # of dense layers and norms, but those that predict
    summary_layer = False  # whether heads for whole texts begin with a dense layer and tanh

    def __post_init__(self) -> None:
        check_fields(self)
        layers = getattr(self, "num_hidden_layers", 1)
        check_setting(self, layers <= 1000, "num_hidden_layers", "at most 1000")

    @property
    def embedding_size(self) -> int:
        """E, width of the embeddings."""
        return self.hidden_size

    def inner_size(self, width: int) -> int:
        """Returns the usual inner width of a network of this kind with another hidden width."""
        return 4 * width

    @property
    def output_initializer_range(self) -> float:
        """Standard deviation of the initial weights of the LM head's dense layer."""
        return self.initializer_range

    @property
    def summary_token(self) -> int:
        """Position of the token that represents the whole text; -1: the last one."""
        return 0

    @property
    def visible_padding(self) -> int:
        """Number of padding tokens after a sequence that can change its outputs; usually 0.

        More padding than that has no further effect.
        """
        return 0

    @property
    def packing_gap(self) -> int | None:
        """Tokens of padding between sequences of one row with which convolutions do not cross.

        None if the backbone does not support `sequence_ids`; see `model.backbone.Backbone`.
        """
        return None

    def replace(self: Config, **changes: Any) -> Config:
        """Returns a copy with some fields changed, validated again."""
        return dataclasses.replace(self, **changes)

    def overridden(self, changes: dict[str, Any]) -> BackboneConfig:
        """Returns a copy of a named size with fields changed, and those that depend on them."""
        return replace_checked(self, changes)

    def with_summary_last(self) -> BackboneConfig:
        """Returns the configuration for texts that end with a summary token of segment 2 (XLNet).

        Raises:
            InputError: the architecture does not support such texts.
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
        """Writes `config.json` into `folder`; InputError if that fails."""
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
    """Registers an architecture for all commands.

    Args:
        config_class: a frozen dataclass that names its `architecture`.
        build: the class of the backbone, `build(config, embeddings=None, name="encoder")`;
            `embeddings` are another backbone's, to share. Or its name, "module:class", which is
            imported when it is called. The backbone has all its variables after its first call.
        sizes: configurations by name, for `model_size`.

    Raises:
        InputError: the name of the architecture or of a size is taken.
    """
    for name in sizes or {}:
        if name in SIZES and source(type(SIZES[name])) != source(config_class):
            raise InputError(f"{source(config_class)}: there is a size {name} already")
    ARCHITECTURES.add(config_class.architecture, Architecture(config_class, build), config_class)
    SIZES.update(sizes or {})


@dataclasses.dataclass(frozen=True)
class EncoderConfig(BackboneConfig):
    """The configuration of ConvBERT and of the encoders it is compared with.

    Fields have BERT's or ELECTRA's names where those exist.

    Attributes:
        vocab_size: number of rows of the word embeddings. A vocabulary may hold fewer pieces; the
            remaining rows are padding and are never predicted.
        embedding_size: E, width of the embeddings; projected to D when it differs.
        hidden_size: D, width of the hidden states.
        num_hidden_layers: number of layers.
        num_attention_heads: heads before the bottleneck, N γ of width H = D / (N γ). Table 1 of the
            ConvBERT supplement lists N, the number after it. With a larger γ, N is 1.
        intermediate_size: inner width of the feed-forward block.
        hidden_act: activation of the feed-forward block; "gelu" is exact (erf), "gelu_new" the
            tanh approximation, "silu" x times its logistic function.
        hidden_dropout_prob: dropout of embeddings and block outputs.
        attention_probs_dropout_prob: dropout of the attention probabilities.
        max_position_embeddings: maximum sequence length.
        type_vocab_size: number of segment ids.
        initializer_range: standard deviation of the truncated normal initialiser.
        layer_norm_eps: ε, added to the variance in every layer norm.
        token_mixer: "attention" alone (BERT and ELECTRA, with `head_ratio` 1), "mixed" (ConvBERT)
            or "convolution" alone.
        convolution: kernel of the mixing convolution: "span" (ConvBERT: from a span of tokens),
            "dynamic" (from the token alone) or "static" (one learned depthwise kernel).
        span_kernel: what the span kernel is predicted from: the "product" Q ⊙ K_s (ConvBERT), the
            "key" K_s alone, or the "concatenation" [Q; K_s]. Point 6 of the authors' response
            argues for the product against the others.
        conv_kernel_size: K, odd.
        head_ratio: γ of the ConvBERT paper; attention and convolution get N heads each.
        linear_groups: G, groups of the feed-forward block (equation 1 of the authors' response).
        share_layers: one set of layer weights used by every layer (ALBERT, ALE).
        mask_padding: zero the convolution's inputs at padding, so that outputs do not depend on how
            far a batch was padded. The original code does not; its checkpoints are converted with
            False.
        causal: whether a token depends only on itself and earlier tokens, as language models
            require. The last token's vector then represents the text.
        summary_last: whether the last token represents the whole text, as in XLNet's layout,
            instead of the first.
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
    type_vocab_size: int = dataclasses.field(default=2, metadata=at_least(2))
    initializer_range: float = 0.02
    token_mixer: str = dataclasses.field(default="mixed", metadata=one_of(*TOKEN_MIXERS))
    convolution: str = dataclasses.field(default="span", metadata=one_of(*CONVOLUTIONS))
    span_kernel: str = dataclasses.field(default="product", metadata=one_of(*SPAN_KERNELS))
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
        expected = f"a divisor of num_attention_heads ({n}), or greater (which leaves one head)"
        check_setting(self, n % ratio == 0 or ratio > n, "head_ratio", expected)
        for name in ("hidden_size", "intermediate_size"):
            whole = getattr(self, name) % groups == 0
            check_setting(self, whole, name, f"divisible by {groups} groups")

    def overridden(self, changes: dict[str, Any]) -> EncoderConfig:
        """A changed `hidden_size` also sets heads and widths not given, as in the original.

        Heads keep their width, or their number where that does not fit: the authors' ablation of
        width 432 has the 8 heads of width 384, as 9 have no bottleneck of 2.
        """
        changes = checked_values(type(self), changes)
        D = changes.get("hidden_size", self.hidden_size)
        if self.hidden_size != D:
            ratio, n = changes.get("head_ratio", self.head_ratio), max(1, D // self.head_size)
            fits = D % n == 0 and (ratio > n or n % ratio == 0)
            n = n if fits else self.num_attention_heads
            follow = {"num_attention_heads": n, "intermediate_size": 4 * D}
            follow |= {"embedding_size": D} if self.embedding_size == self.hidden_size else {}
            changes = follow | changes
        return self.replace(**changes)

    def with_summary_last(self) -> EncoderConfig:
        """Returns the configuration for XLNet's layout; a causal encoder has none."""
        # Causal language modelling predicts each token of a text, so another token comes first.
        check_setting(self, not self.causal, "causal", "false with a SentencePiece vocabulary")
        segments = max(self.type_vocab_size, 3)
        return self.replace(summary_last=True, type_vocab_size=segments)

    @property
    def num_heads(self) -> int:
        """N, the number of heads of the attention and of the convolution each; at least one."""
        return max(1, self.num_attention_heads // self.head_ratio)

    @property
    def head_size(self) -> int:
        """H, width of one head, which the bottleneck does not change."""
        return self.hidden_size // self.num_attention_heads

    @property
    def mixer_size(self) -> int:
        """A = N · H, width of queries, keys and values."""
        return self.num_heads * self.head_size

    @property
    def summary_token(self) -> int:
        """0, or -1 in XLNet's layout and causal encoders, where only the last token sees all."""
        return -1 if self.causal or self.summary_last else 0

    @property
    def attends(self) -> bool:
        """True if the layers have self-attention, alone or beside the convolution."""
        return self.token_mixer in ("attention", "mixed")

    @property
    def convolves(self) -> bool:
        """True if the layers have a convolution, alone or beside self-attention."""
        return self.token_mixer in ("convolution", "mixed")

    @property
    def queries(self) -> bool:
        """True if the layers have a query, for self-attention or the span kernel."""
        return self.attends or (self.convolution == "span" and self.span_kernel != "key")

    @property
    def visible_padding(self) -> int:
        """Half a kernel for each layer if padding enters the convolutions, else 0."""
        if self.mask_padding or self.causal or not self.convolves:
            return 0
        return self.num_hidden_layers * (self.conv_kernel_size // 2)

    @property
    def packing_gap(self) -> int | None:
        """Half a kernel. None if causal, or if padding enters the convolutions."""
        if self.causal or (self.convolves and not self.mask_padding):
            return None
        return self.conv_kernel_size // 2 if self.convolves else 0
