"""The convolution against loops written from the equations of the ConvBERT paper."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from scipy.special import softmax

from convbert.model.config import CONVOLUTIONS
from convbert.model.token_mixing import TokenMixer
from tests.model_support import TINY, normal, randomize

B, S, D = 2, 11, 16
NO_PADDING = np.ones([1, 1, 1], np.float32)


def lightweight_convolution(values: np.ndarray, kernel_at) -> np.ndarray:
    """LConv(X, W, i)_c = sum_{j=1..K} W_{c,j} X_{i + j - (K+1)/2, c}; zero beyond the ends.
    `values` are [B, S, A]; `kernel_at` gives the K weights of (b, i, channel)."""
    output = np.zeros(values.shape)
    for b, i, c in np.ndindex(values.shape):
        weights = kernel_at(b, i, c)
        K = len(weights)
        for j in range(1, K + 1):
            source = i + j - (K + 1) // 2
            if 0 <= source < values.shape[1]:
                output[b, i, c] += weights[j - 1] * values[b, source, c]
    return output


def oracle(mixer: TokenMixer, hidden, query, padding_mask=NO_PADDING) -> np.ndarray:
    """Computes the convolution in float64."""
    config, layer = mixer.config, mixer.convolution
    N, H, K = config.num_heads, config.head_size, config.conv_kernel_size
    hidden, query = hidden.astype(np.float64), query.astype(np.float64)
    weights, bias = (w.astype(np.float64) for w in mixer.conv_value.get_weights())
    values = hidden @ weights + bias  # [B, S, A]
    values, hidden = values * padding_mask, hidden * padding_mask
    if config.convolution == "static":
        taps = layer.static_kernel.numpy()  # [K, A]
        return lightweight_convolution(values, lambda b, i, c: taps[:, c])
    source = values
    if config.convolution == "span":
        depthwise, pointwise, key_bias = layer.span_key.get_weights()
        depthwise = depthwise[..., 0].astype(np.float64)  # [K, D]
        around = lightweight_convolution(hidden, lambda b, i, c: depthwise[:, c])  # [B, S, D]
        key = around @ pointwise[0] + key_bias  # K_s
        both = np.concatenate([query, key], -1)
        source = {"product": query * key, "key": key, "concatenation": both}[config.span_kernel]
    weights, bias = layer.kernel_logits.get_weights()

    def kernel_at(b, i, channel):
        head = channel // H
        return softmax((source[b, i] @ weights + bias)[head * K : (head + 1) * K])

    assert values.shape[-1] == N * H
    return lightweight_convolution(values, kernel_at)


SPAN_KERNELS = itertools.product(("mixed", "convolution"), ("key", "concatenation"))


@pytest.mark.parametrize(
    "changes",
    [
        *(
            {"convolution": convolution, "conv_kernel_size": K, "head_ratio": ratio}
            for convolution, K, ratio in itertools.product(CONVOLUTIONS, (1, 5), (1, 2, 4))
        ),
        {"conv_kernel_size": 2 * S + 1},  # longer than the text
        *({"token_mixer": mixer, "span_kernel": kernel} for mixer, kernel in SPAN_KERNELS),
    ],
    ids=str,
)
def test_layer_follows_the_equations(changes):
    config = TINY.replace(**changes)
    mixer = TokenMixer(config)
    mixer(np.zeros([1, 1, D], np.float32), tf.zeros([1, 1, 1, 1]), NO_PADDING)
    randomize(mixer)
    hidden, query = normal(B, S, D), normal(B, S, config.mixer_size, seed=2)
    padded = (np.arange(S) < np.array([[S], [6]])).astype(np.float32)[..., None]  # [B, S, 1]
    for mask in (NO_PADDING, padded):
        expected = oracle(mixer, hidden, query, mask) * mask
        assert expected.shape == (B, S, D // config.head_ratio)
        output, *_ = mixer.convolution(hidden, query, mixer.conv_value(hidden), mask)
        output *= mask
        np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-4)
