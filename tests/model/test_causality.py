"""Causal encoders: no output knows of later tokens."""

import numpy as np
import pytest
import tensorflow as tf

from convbert.model.kernels import fusion
from convbert.model.token_mixing import attention_bias
from tests.model_support import MIXERS, build_tiny, random_features, tensors

S = 11
# Where texts begin and end: without padding, with padding after them, and before them.
PADDINGS = ((0, S), (0, S - 3), (2, S))


def batches(paddings):
    """For every padding, S times the same text; and those, with token t changed in text t."""
    features = {name: np.repeat(x, S, 0) for name, x in random_features(1, S).items()}
    changed = features["input_ids"].copy()
    diagonal = np.arange(S), np.arange(S)
    changed[diagonal] = 1 + changed[diagonal] % 30
    masks = [np.int32((np.arange(S) >= i) & (np.arange(S) < j)) for i, j in paddings]
    for ids in (features["input_ids"], changed):
        yield {
            "input_ids": np.tile(ids, [len(masks), 1]),
            "input_mask": np.repeat(masks, S, 0),
            "segment_ids": np.tile(features["segment_ids"], [len(masks), 1]),
        }


def leaks(run) -> list[bool]:
    """Returns for each padding whether an output before t changed; those at t have to change. The
    texts compared are at the same place of two batches: elsewhere rounding and dropout may
    differ."""
    before, after = (run(features).numpy() for features in batches(PADDINGS))
    differs = (before != after).any(-1).reshape([-1, S, S])  # [padding, text t, token]
    assert differs[:, np.arange(S), np.arange(S)].all()
    return np.tril(differs, -1).any((1, 2)).tolist()


@pytest.mark.parametrize(
    "changes",
    [
        *({"token_mixer": mixer, "convolution": kind} for mixer, kind in MIXERS),
        *({"conv_kernel_size": K} for K in (1, 15)),  # the last one is longer than the text
        *({"span_kernel": kernel} for kernel in ("key", "concatenation")),
        {"share_layers": True, "linear_groups": 2, "head_ratio": 4},
    ],
    ids=str,
)
def test_outputs_do_not_know_later_tokens(changes):
    """In training, so with dropout."""
    encoder = build_tiny(causal=True, **changes)
    assert not any(leaks(lambda features: encoder(features, training=True, seed=[3, 4]).sequence))


@pytest.mark.parametrize("jit_compile", [False, True], ids=["fused kernels", "XLA"])
def test_compiled_outputs_do_not_know_later_tokens(monkeypatch, jit_compile):
    monkeypatch.setattr(fusion, "SMALLEST_ON_CPU", 0)
    encoder = build_tiny(causal=True, num_hidden_layers=1)

    @tf.function(autograph=False, jit_compile=jit_compile)
    def run(features):
        return encoder(features).sequence

    assert not any(leaks(lambda features: run(tensors(features))))


def test_the_last_token_stands_for_the_text():
    encoder, features = build_tiny(causal=True), random_features(2, S, lengths=[S, S - 4])
    output = encoder(features)
    expected = [output.sequence[0, S - 1], output.sequence[1, S - 5]]
    np.testing.assert_array_equal(output.pooled, expected)
    assert (encoder.config.summary_token, encoder.config.visible_padding) == (-1, 0)


def test_padding_after_a_text_changes_nothing_even_unmasked():
    encoder = build_tiny(causal=True, mask_padding=False)
    features, lengths = random_features(2, S, lengths=[S, S - 4]), [S, S - 4]
    output = encoder(features).sequence
    for i, length in enumerate(lengths):
        alone = encoder({name: value[i : i + 1, :length] for name, value in features.items()})
        np.testing.assert_allclose(output[i, :length], alone.sequence[0], atol=1e-5)


def test_bias_of_padding_before_a_text():
    """Tokens of padding attend to padding alone, and not to the text after them."""
    bias = attention_bias(tf.constant([[0, 0, 1]]), tf.float32, causal=True)
    shares = tf.nn.softmax(bias)[0, 0]
    np.testing.assert_array_equal(shares, [[1, 0, 0], [0.5, 0.5, 0], [0, 0, 1]])
