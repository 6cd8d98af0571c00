"""The configuration of the modern encoder, and its floating-point operations."""

from __future__ import annotations

import dataclasses
from dataclasses import field
from typing import ClassVar

import convbert.model.flops as count
from convbert.common.settings import above, at_least, check_setting, one_of, within
from convbert.model.config import ACTIVATIONS, BackboneConfig
from convbert.model.flops import Flops

TOKEN_MIXERS = ("attention", "mixed", "gated_convolution")
SMALLEST_BLOCK = 64  # of local attention


@dataclasses.dataclass(frozen=True)
class ModernConfig(BackboneConfig):
    """The configuration of ModernBERT, and of its block with other token mixers.

    Fields that are not listed are as in `EncoderConfig`.

    Attributes:
        num_attention_heads: heads of width H = D / heads; for "mixed" before the bottleneck.
        intermediate_size: inner width of the feed-forward block, half of its first projection.
        hidden_act: activation of one half of that projection, which multiplies the other half.
        hidden_dropout_prob: dropout of the token mixer's output alone, as published.
        initializer_range: standard deviation of the truncated normal initializer. Projections back
            to the hidden states have it divided by sqrt(2 * layers).
        global_attn_every_n_layers: the layers 0, n, 2 n, ... attend to all tokens, the others to
            those at most `local_attention` / 2 away.
        local_attention: the width of that window, even.
        global_rope_theta, local_rope_theta: base of the rotations in these and those layers.
        token_mixer: "attention"; "mixed", attention beside ConvBERT's span-based convolution in
            every layer; or "gated_convolution", which replaces local attention (LFM2).
        conv_kernel_size: K of the mixing convolution, odd; LFM2's is 3.
        head_ratio: γ of the ConvBERT paper, for "mixed": attention and convolution get
            `num_attention_heads` / γ heads each.
        canon_kernel_size: taps of a residual depthwise convolution before token mixing, odd; 0 for
            none (Canon layers, arXiv 2512.17351, there causal with 4 taps).
    """

    architecture: ClassVar[str] = "modern"
    type_vocab_size = 2  # ids of segments are accepted and not used
    use_bias = False
    # Read by `token_mixing.TokenMixer`.
    convolution, span_kernel, causal, attends, queries = "span", "product", False, True, True

    vocab_size: int = field(default=50368, metadata=at_least(1))
    embedding_size: int = field(default=768, metadata=at_least(1))
    hidden_size: int = field(default=768, metadata=at_least(1))
    num_hidden_layers: int = field(default=22, metadata=at_least(1))
    num_attention_heads: int = field(default=12, metadata=at_least(1))
    intermediate_size: int = field(default=1152, metadata=at_least(1))
    hidden_act: str = field(default="gelu", metadata=one_of(*ACTIVATIONS))
    hidden_dropout_prob: float = field(default=0.0, metadata=within(0, 1))
    attention_probs_dropout_prob: float = field(default=0.0, metadata=within(0, 1))
    max_position_embeddings: int = field(default=8192, metadata=at_least(1))
    initializer_range: float = field(default=0.02, metadata=above(0))
    layer_norm_eps: float = field(default=1e-5, metadata=above(0))
    global_attn_every_n_layers: int = field(default=3, metadata=at_least(1))
    local_attention: int = field(default=128, metadata=at_least(2))
    global_rope_theta: float = field(default=160_000.0, metadata=above(0))
    local_rope_theta: float = field(default=10_000.0, metadata=above(0))
    token_mixer: str = field(default="attention", metadata=one_of(*TOKEN_MIXERS))
    conv_kernel_size: int = field(default=9, metadata=at_least(1))
    head_ratio: int = field(default=2, metadata=at_least(1))
    canon_kernel_size: int = field(default=0, metadata=at_least(0))

    def __post_init__(self) -> None:
        super().__post_init__()
        D, n = self.hidden_size, self.num_attention_heads
        check_setting(self, D % n == 0, "hidden_size", f"divisible by {n} heads")
        check_setting(self, D // n % 2 == 0, "hidden_size", f"{n} heads of an even width")
        check_setting(self, self.local_attention % 2 == 0, "local_attention", "even")
        check_setting(self, self.conv_kernel_size % 2 == 1, "conv_kernel_size", "odd")
        canon = self.canon_kernel_size
        check_setting(self, canon == 0 or canon % 2 == 1, "canon_kernel_size", "odd, or 0 for none")
        fits = self.token_mixer != "mixed" or n % self.head_ratio == 0
        check_setting(self, fits, "head_ratio", f"a divisor of num_attention_heads ({n})")
        fits = self.token_mixer != "gated_convolution" or self.global_attn_every_n_layers > 1
        check_setting(self, fits, "global_attn_every_n_layers", "above 1 with gated_convolution")

    @property
    def head_size(self) -> int:
        """H, width of one head."""
        return self.hidden_size // self.num_attention_heads

    @property
    def num_heads(self) -> int:
        """N, the heads of the attention, after the bottleneck of "mixed"."""
        return self.num_attention_heads // (self.head_ratio if self.token_mixer == "mixed" else 1)

    @property
    def convolves(self) -> bool:
        """True if a convolution with kernels of its own is beside the attention."""
        return self.token_mixer == "mixed"

    @property
    def mixer_size(self) -> int:
        """A = N · H, width of queries, keys and values."""
        return self.num_heads * self.head_size

    def inner_size(self, width: int) -> int:
        """Returns the same share of another hidden width."""
        return round(self.intermediate_size * width / self.hidden_size)

    @property
    def output_initializer_range(self) -> float:
        """Standard deviation for projections back to the hidden states and for the LM head."""
        return self.initializer_range / (2 * self.num_hidden_layers) ** 0.5

    @property
    def packing_gap(self) -> int:
        """Half of the largest kernel."""
        taps = 0 if self.token_mixer == "attention" else self.conv_kernel_size
        return max(taps, self.canon_kernel_size) // 2

    @property
    def attention_block(self) -> int:
        """Tokens of a block in local attention: half a window, or `SMALLEST_BLOCK`."""
        return max(self.local_attention // 2, SMALLEST_BLOCK)

    def is_global(self, layer: int) -> bool:
        """Returns True if a layer, from 0, attends to all tokens."""
        return layer % self.global_attn_every_n_layers == 0


@count.forward.register
def forward(config: ModernConfig, length: int, dense_lookup: bool) -> Flops:
    """Counts embeddings and layers."""
    D, E = config.hidden_size, config.embedding_size
    flops = Flops(2 * E * config.vocab_size if dense_lookup else 0, count.LAYER_NORM * E)
    if E != D:
        flops += Flops(2 * E * D)
    for i in range(config.num_hidden_layers):
        flops += _layer(config, length, i)
    return flops + Flops(0, count.LAYER_NORM * D)


def _layer(config: ModernConfig, length: int, index: int) -> Flops:
    D, A, inner = config.hidden_size, config.mixer_size, config.intermediate_size
    K = config.conv_kernel_size
    norms = Flops(0, (count.LAYER_NORM + 1) * D) * 2
    feed_forward = Flops(2 * D * 2 * inner + 2 * inner * D, (count.GELU + 1) * inner)
    canon = Flops(2 * config.canon_kernel_size * D, D if config.canon_kernel_size else 0)
    if config.token_mixer == "gated_convolution" and not config.is_global(index):
        mixing = Flops(2 * D * 3 * D + 2 * K * D, 2 * D)
    else:
        rotations = Flops(0, 2 * 3 * A)
        per_score = 1 + count.SOFTMAX + count.DROPOUT
        # As `attend_nearby` computes them.
        in_blocks = not config.is_global(index) and length >= 4 * config.attention_block
        keys = 3 * config.attention_block if in_blocks else length
        scores = Flops(4 * A * keys, per_score * config.num_heads * keys)
        mixing = Flops(2 * D * 3 * A) + rotations + scores
        if config.token_mixer == "mixed":
            taps = config.num_heads * K
            span_key = Flops(2 * K * D + 2 * D * A, A)  # times the query
            kernels = Flops(2 * A * taps, count.SOFTMAX * taps + 2 * K * A)
            mixing += Flops(2 * D * A) + span_key + kernels
    mixed = 2 * A if config.token_mixer == "mixed" else D
    return norms + feed_forward + canon + mixing + Flops(2 * mixed * D)
