"""What describes an XLNet, and its named sizes. Needs no TensorFlow."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from model.config import ACTIVATIONS, BackboneConfig
from settings import at_least, check_setting, one_of, within


@dataclasses.dataclass(frozen=True)
class XLNetConfig(BackboneConfig):
    """XLNet, as zihangdai/xlnet computes it.

    Attributes:
        vocab_size: V, number of rows of the word embeddings.
        hidden_size: D, width of the hidden states and of the embeddings; `d_model` there.
        num_hidden_layers: number of layers; `n_layer`.
        num_attention_heads: N; `n_head`. Heads are D / N wide, `d_head`.
        intermediate_size: inner width of the feed-forward block; `d_inner`.
        hidden_act: activation of the feed-forward block. The original's "gelu" is what is called
            "gelu_new" here, the approximation by tanh.
        hidden_dropout_prob: dropout of embeddings, encodings of distances, block outputs, of what
            is between the two layers of a feed-forward block, and of the last output; `dropout`.
        attention_probs_dropout_prob: dropout of the attention probabilities; `dropatt`.
        max_position_embeddings: longest sequence that commands accept. No weights depend on it.
        type_vocab_size: segment ids are smaller. Attention knows only whether those of two tokens
            are equal.
        initializer_range: standard deviation of the normal initialiser.
        layer_norm_eps: ε, added to the variance in every layer norm.
        clamp_length: distances beyond it count as this one; -1: none do. `clamp_len`.
        untie_biases: whether every layer has its own attention biases; `untie_r`.
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
    clamp_length: int = -1
    untie_biases: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        whole = self.hidden_size % self.num_attention_heads == 0
        expected = f"divisible by {self.num_attention_heads} heads"
        check_setting(self, whole, "hidden_size", expected)
        check_setting(self, self.hidden_size % 2 == 0, "hidden_size", "even")
        clamp = self.clamp_length
        check_setting(self, clamp == -1 or clamp > 0, "clamp_length", "at least 1, or -1 for none")

    @property
    def head_size(self) -> int:
        """H = D / N."""
        return self.hidden_size // self.num_attention_heads
