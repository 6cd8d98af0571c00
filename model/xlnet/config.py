"""The configuration of XLNet, and its floating-point operations."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import convbert.model.flops as count
from convbert.common.settings import at_least, check_setting, one_of, within
from convbert.model.config import ACTIVATIONS, BackboneConfig
from convbert.model.flops import Flops


@dataclasses.dataclass(frozen=True)
class XLNetConfig(BackboneConfig):
    """The configuration of XLNet as computed by zihangdai/xlnet.

    Fields that are not listed are as in `EncoderConfig`.

    Attributes:
        hidden_size: D, width of hidden states and embeddings; `d_model` in the original.
        num_hidden_layers: number of layers; `n_layer`.
        num_attention_heads: N; `n_head`. The head width is D / N, `d_head`.
        intermediate_size: inner width of the feed-forward block; `d_inner`.
        hidden_act: activation of the feed-forward block. The original's "gelu" is called
            "gelu_new" here, the tanh approximation.
        hidden_dropout_prob: dropout of embeddings, distance encodings, block outputs, inside of
            feed-forward blocks, and of the last output; `dropout`.
        attention_probs_dropout_prob: dropout of the attention probabilities; `dropatt`.
        max_position_embeddings: maximum sequence length in commands. No weights depend on it.
        type_vocab_size: number of segment ids. Attention only compares them for equality.
        initializer_range: standard deviation of the normal initialiser.
    """

    architecture: ClassVar[str] = "xlnet"
    summary_token = -1
    summary_layer = True
    two_streams = True  # the network has `two_streams`

    vocab_size: int = dataclasses.field(default=32000, metadata=at_least(1))
    hidden_size: int = dataclasses.field(default=768, metadata=at_least(2))
    num_hidden_layers: int = dataclasses.field(default=12, metadata=at_least(1))
    num_attention_heads: int = dataclasses.field(default=12, metadata=at_least(1))
    intermediate_size: int = dataclasses.field(default=3072, metadata=at_least(1))
    hidden_act: str = dataclasses.field(default="gelu_new", metadata=one_of(*ACTIVATIONS))
    hidden_dropout_prob: float = dataclasses.field(default=0.1, metadata=within(0, 1))
    attention_probs_dropout_prob: float = dataclasses.field(default=0.1, metadata=within(0, 1))
    max_position_embeddings: int = dataclasses.field(default=512, metadata=at_least(1))
    type_vocab_size: int = dataclasses.field(default=4, metadata=at_least(1))
    initializer_range: float = 0.02
    layer_norm_eps: float = dataclasses.field(default=1e-12, metadata=within(0, 1))

    def __post_init__(self) -> None:
        super().__post_init__()
        whole = self.hidden_size % self.num_attention_heads == 0
        expected = f"divisible by {self.num_attention_heads} heads"
        check_setting(self, whole, "hidden_size", expected)
        check_setting(self, self.hidden_size % 2 == 0, "hidden_size", "even")

    @property
    def head_size(self) -> int:
        """H = D / N."""
        return self.hidden_size // self.num_attention_heads


@count.forward.register
def forward(config: XLNetConfig, length: int, dense_lookup: bool) -> Flops:
    """Counts XLNet with one stream.

    Distance encodings are not counted, as they are computed and projected once per batch.
    """
    D = config.hidden_size
    lookup = Flops(2 * D * config.vocab_size if dense_lookup else 0, count.DROPOUT * D)
    projections = Flops(2 * D * D) * 4  # q, k, v, output
    return lookup + _layers(config, length, projections)


def query_stream(config: XLNetConfig, length: int) -> Flops:
    """Counts XLNet's query stream, which uses the keys of the content stream."""
    D = config.hidden_size
    return Flops(0, count.DROPOUT * D) + _layers(config, length, Flops(2 * D * D) * 2)


def _layers(config, length, projections):
    """Counts all layers, with `projections` in each, and the last dropout."""
    D, N, S = config.hidden_size, config.num_attention_heads, length
    biases = Flops(0, 3 * D)
    scores = Flops(2 * D * S) + Flops(2 * D * 2 * S)  # contents; distances
    segments = Flops(2 * D + 2 * N * config.type_vocab_size * S)
    per_score = 2 + 1 + count.SOFTMAX + count.DROPOUT  # a sum of three, scaled
    probabilities = Flops(2 * D * S, per_score * N * S)
    inner = config.intermediate_size
    feed_forward = (
        count.linear(D, inner)
        + count.linear(inner, D)
        + Flops(0, (count.GELU + count.DROPOUT) * inner)
    )
    after = Flops(0, (count.DROPOUT + 1 + count.LAYER_NORM) * D) * 2
    layer = projections + biases + scores + segments + probabilities + feed_forward + after
    return layer * config.num_hidden_layers + Flops(0, count.DROPOUT * D)
