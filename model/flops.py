"""Counts the floating-point operations of the encoder and its heads, component by component.

Every function counts the forward pass of one token; `analysis.operations` computes training FLOPs
from them. A plug-in registers the function for its backbone with `forward.register(MyConfig)`.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Sequence

from convbert.model.config import BackboneConfig, EncoderConfig

# Operations per element as in ELECTRA's flops_computation.py: small beside the products.
DROPOUT = 4  # draw, compare, multiply, rescale
LAYER_NORM = 5  # mean, variance (2), shift, scale
GELU = 8  # its tanh form
SOFTMAX = 5  # maximum, difference, exponential, sum, quotient

_EULER = 0.5772  # the sum of 1 / rank over V tokens is log V + this


@dataclasses.dataclass(frozen=True)
class Flops:
    """Operations of the forward pass, per token unless noted otherwise.

    Attributes:
        matrix: matrix products and convolutions with learned kernels, 2 per multiply-add. This is
            what TensorFlow's profiler counts.
        other: biases, activations, normalisation, dropout, and the convolution with predicted
            kernels.
    """

    matrix: float = 0.0
    other: float = 0.0

    @property
    def total(self) -> float:
        """All operations."""
        return self.matrix + self.other

    def __add__(self, more: Flops) -> Flops:
        return Flops(self.matrix + more.matrix, self.other + more.other)

    def __mul__(self, times: float) -> Flops:
        return Flops(self.matrix * times, self.other * times)


UNCOUNTED = Flops(math.nan, math.nan)  # and so is every sum with it


@functools.singledispatch
def forward(config: BackboneConfig, length: int, dense_lookup: bool) -> Flops:
    """Counts the forward pass of a backbone, per token; UNCOUNTED for an unknown architecture.

    Args:
        config: its class selects the function.
        length: S.
        dense_lookup: whether embedding lookups count as products with one-hot vectors.
    """
    return UNCOUNTED


def linear(inputs: int, outputs: int, groups: int = 1) -> Flops:
    """A dense layer with bias; G groups divide its cost by G."""
    return Flops(2 * inputs * outputs / groups, outputs)


def embedding(config: EncoderConfig, length: int, dense_lookup: bool) -> Flops:
    """Word, segment and position embeddings, summed, normalised, and projected to D."""
    E, D = config.embedding_size, config.hidden_size
    rows = config.vocab_size + config.type_vocab_size + length if dense_lookup else 0
    flops = Flops(2 * E * rows, (2 + LAYER_NORM + DROPOUT) * E)
    return flops if E == D else flops + linear(E, D)


def convolution(config: EncoderConfig) -> Flops:
    """The convolution half: its values, the prediction of K taps, and the convolution itself."""
    D, A, K = config.hidden_size, config.mixer_size, config.conv_kernel_size
    values, products = linear(D, A), 2 * K * A
    if config.convolution == "static":
        return values + Flops(products)
    taps = config.num_heads * K  # of every token
    both = config.convolution == "span" and config.span_kernel == "concatenation"
    flops = values + linear(2 * A if both else A, taps) + Flops(0, SOFTMAX * taps + products)
    if config.convolution == "span":
        flops += Flops(2 * K * D) + linear(D, A)  # depthwise, pointwise: the span-aware key
        if config.span_kernel == "product":
            flops += Flops(0, A)  # times the query
    return flops


def token_mixer(config: EncoderConfig, length: int) -> Flops:
    """Token mixing with its output projection: the block of the paper's Table 5."""
    D, A = config.hidden_size, config.mixer_size
    flops = linear((config.attends + config.convolves) * A, D)
    if config.queries:
        flops += linear(D, A)  # query
    if config.attends:
        flops += linear(D, A) * 2  # key, value
        per_score = 1 + SOFTMAX + DROPOUT  # the first is the division by sqrt(H)
        flops += Flops(4 * A * length, per_score * config.num_heads * length)
    return flops + convolution(config) if config.convolves else flops


def layer(config: EncoderConfig, length: int) -> Flops:
    """One layer: mixing and feed-forward, each followed by dropout, residual and normalisation."""
    D, inner, G = config.hidden_size, config.intermediate_size, config.linear_groups
    feed_forward = linear(D, inner, G) + Flops(0, GELU * inner) + linear(inner, D, G)
    after = Flops(0, (DROPOUT + 1 + LAYER_NORM) * D)
    return token_mixer(config, length) + feed_forward + after * 2


@forward.register
def encoder(config: EncoderConfig, length: int, dense_lookup: bool) -> Flops:
    """Embeddings and layers. Layers with shared weights cost as much as others."""
    layers = layer(config, length) * config.num_hidden_layers
    return embedding(config, length, dense_lookup) + layers


def masked_lm_head(config: BackboneConfig) -> Flops:
    """The prediction of one masked token: D -> E, activation, normalisation, V logits, softmax."""
    D, E, V = config.hidden_size, config.embedding_size, config.vocab_size
    transform = linear(D, E) + Flops(0, (GELU + LAYER_NORM) * E)
    return transform + linear(E, V) + Flops(0, SOFTMAX * V)


def tied_head(config: BackboneConfig) -> Flops:
    """The prediction of one token with word embeddings and a bias only: V logits, softmax."""
    V = config.vocab_size
    return linear(config.hidden_size, V) + Flops(0, SOFTMAX * V)


def causal_lm_head(config: BackboneConfig, cutoffs: Sequence[int] = (), divisor: int = 1) -> Flops:
    """The prediction of the next token; see `model.heads.pretraining`.

    A group of rarer tokens is computed only for its own tokens: their share by Zipf's law,
    1 / rank.
    """
    D, E, V = config.hidden_size, config.embedding_size, config.vocab_size
    ends = [*(cutoff for cutoff in cutoffs if cutoff < V), V]
    flops = linear(D, E) + Flops(0, (GELU + LAYER_NORM) * E)
    words = ends[0] + len(ends) - 1
    flops += linear(E, words) + Flops(0, SOFTMAX * words)
    for i, (start, end) in enumerate(itertools.pairwise(ends), 1):
        width, words = max(1, E // divisor**i), end - start
        share = math.log(end / start) / (math.log(V) + _EULER)
        flops += Flops(2 * E * width)
        flops += (linear(width, words) + Flops(0, SOFTMAX * words)) * share
    return flops


def discriminator_head(config: BackboneConfig) -> Flops:
    """The prediction for one token: D -> D, activation, D -> 1."""
    D = config.hidden_size
    return linear(D, D) + Flops(0, GELU * D) + linear(D, 1)
