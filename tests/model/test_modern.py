"""The modern encoder against its equations in NumPy; transformers: tests/checkpoints."""

import math
from functools import partial

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from scipy.special import softmax

from convbert.model import MaskedLMHead, build_backbone, flops, named_size
from convbert.model.backbone import rematerialize
from convbert.model.modern import config as modern_config
from tests.model.test_mixed_attention import lightweight_convolution
from tests.model_support import TINY_MODERN as TINY
from tests.model_support import build_tiny, random_features, tensors

MIXERS = {
    "attention": {},
    "mixed": {"token_mixer": "mixed"},
    "gated_convolution": {"token_mixer": "gated_convolution", "conv_kernel_size": 3},
    "canon": {"canon_kernel_size": 3},
    "narrow embeddings": {"embedding_size": 12},
}
B, S, LENGTHS = 3, 9, (9, 4, 1)
build = partial(build_tiny, TINY)


def norm(x, layer):
    x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + TINY.layer_norm_eps) * layer.gamma.numpy()


def turned(x, theta):
    """Rotates [S, H] as complex numbers: position p turns pair k by p * theta^(-2 k / H)."""
    length, H = x.shape
    pairs = x[:, : H // 2] + 1j * x[:, H // 2 :]
    angles = np.arange(length)[:, None] * theta ** (-2 * np.arange(H // 2) / H)
    pairs = pairs * np.exp(1j * angles)
    return np.concatenate([pairs.real, pairs.imag], -1)


def attention(a, mixer, config, is_global):
    """softmax(q k / sqrt(H)) v over all tokens or a window, one head after the other."""
    theta = config.global_rope_theta if is_global else config.local_rope_theta
    q, k, v = (a @ layer.kernel.numpy() for layer in (mixer.query, mixer.key, mixer.value))
    places = np.arange(len(a))
    near = np.abs(places[:, None] - places) <= config.local_attention // 2
    outputs = []
    for head in np.split(np.arange(q.shape[-1]), config.num_heads):
        scores = turned(q[:, head], theta) @ turned(k[:, head], theta).T / math.sqrt(len(head))
        if not is_global:
            scores = np.where(near, scores, -np.inf)
        outputs.append(softmax(scores, -1) @ v[:, head])
    return np.concatenate(outputs, -1), q


def depthwise(x, kernel):
    return lightweight_convolution(x[None], lambda b, i, c: kernel[:, c])[0]


def span_convolution(a, q, mixer, config):
    """LConv(V, softmax(W_f (Q * K_s)_i), i)."""
    part, N, K = mixer.convolution, config.num_heads, config.conv_kernel_size
    key = depthwise(a, part.span_key.depthwise_kernel.numpy()[:, :, 0])
    key = key @ part.span_key.pointwise_kernel.numpy()[0]
    kernels = softmax((q * key @ part.kernel_logits.kernel.numpy()).reshape(len(a), N, K), -1)
    v = a @ mixer.conv_value.kernel.numpy()
    return lightweight_convolution(v[None], lambda b, i, c: kernels[i, c // config.head_size])[0]


def expected_states(encoder, ids):
    """Hidden states of all layers for one text without padding."""
    config, h = encoder.config, encoder.embeddings.word_embeddings.numpy()[ids]
    h, states = norm(h, encoder.embeddings.norm), []
    if encoder.embeddings_project is not None:
        h = h @ encoder.embeddings_project.kernel.numpy()
    for i, layer in enumerate(encoder.encoder_layers):
        is_global = i in (0, 3)
        a = h if i == 0 else norm(h, layer.mixer_norm)
        if config.canon_kernel_size:
            a = a + depthwise(a, layer.canon.kernel.numpy())
        if config.token_mixer == "gated_convolution" and not is_global:
            b, c, x = np.split(a @ layer.mixer.projection.kernel.numpy(), 3, -1)
            mixed = c * depthwise(b * x, layer.mixer.convolution.kernel.numpy())
        else:
            mixed, q = attention(a, layer.mixer, config, is_global)
            if config.token_mixer == "mixed":
                local = span_convolution(a, q, layer.mixer, config)
                mixed = np.concatenate([mixed, local], -1)
        h = h + mixed @ layer.mixer_output.kernel.numpy()
        inner = norm(h, layer.feed_forward_norm) @ layer.intermediate.kernel.numpy()
        x, gate = np.split(inner, 2, -1)
        gelu = x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))
        h = h + (gelu * gate) @ layer.output_dense.kernel.numpy()
        states.append(h)
    return [*states[:-1], norm(h, encoder.final_norm)]


@pytest.mark.parametrize("changes", MIXERS.values(), ids=MIXERS)
def test_the_equations(changes):
    encoder, features = build(**changes), random_features(B, S, LENGTHS)
    output = encoder(features)
    for b, length in enumerate(LENGTHS):
        expected = expected_states(encoder, features["input_ids"][b, :length])
        for found, state in zip(output.hidden_states, expected, strict=True):
            np.testing.assert_allclose(found[b, :length], state, atol=1e-5, rtol=1e-5)
    np.testing.assert_array_equal(output.sequence, output.hidden_states[-1])
    np.testing.assert_array_equal(output.pooled, output.sequence[:, 0])


def test_long_texts_attend_in_blocks():
    """Layers as by the equations, eagerly and in a graph of any length, also with a wide window."""
    length = 4 * 64 + 7
    for window in (4, 130):
        encoder = build(max_position_embeddings=300, local_attention=window)
        features = random_features(2, length, (length, 100))
        graph = tf.function(
            lambda ids, mask, of=encoder: of({"input_ids": ids, "input_mask": mask}).sequence,
            input_signature=[tf.TensorSpec([None, None], tf.int32)] * 2,
        )
        in_graph = graph(features["input_ids"], features["input_mask"])
        for found in (encoder(features).sequence, in_graph):
            for b, n in enumerate((length, 100)):
                expected = expected_states(encoder, features["input_ids"][b, :n])[-1]
                np.testing.assert_allclose(found[b, :n], expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_blocks_change_nothing(dtype, monkeypatch):
    """States, also beside probabilities, which are those of all tokens at once."""
    tf_keras.mixed_precision.set_global_policy(dtype)
    encoder, features = build(), random_features(B, S, LENGTHS)
    expected = encoder(features).sequence
    monkeypatch.setattr(modern_config, "SMALLEST_BLOCK", 2)
    found, beside = encoder(features), encoder(features, output_attentions=True)
    assert [p.shape[-1] for p in beside.attention_probs] == [S] * 4
    tolerance = 1e-5 if dtype == "float32" else 0.1
    for b, length in enumerate(LENGTHS):
        for states in (found.sequence, beside.sequence):
            one, other = (tf.cast(x[b, :length], tf.float32) for x in (states, expected))
            np.testing.assert_allclose(one, other, atol=tolerance)


def test_operations_of_blocks():
    """From 256 tokens on, four of seven layers compute 192 scores of a token in place of all."""
    local = named_size("ettin-17m")
    dense = local.replace(global_attn_every_n_layers=1)
    for length, fewer in ((255, 0), (512, 4 * 4 * local.hidden_size * (512 - 192))):
        difference = flops.forward(dense, length, False) + flops.forward(local, length, False) * -1
        assert difference.matrix == fewer


@pytest.mark.parametrize(
    ("mixer", "block"), [("attention", 2), ("mixed", 64), ("gated_convolution", 64)]
)
def test_rematerialized_gradients_are_equal(mixer, block, monkeypatch):
    """Of attention in blocks, and of other mixers at once."""
    monkeypatch.setattr(modern_config, "SMALLEST_BLOCK", block)
    encoder, features = build(**MIXERS[mixer]), tensors(random_features(B, S, LENGTHS))
    rates = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
    encoder = build_backbone(encoder.config.replace(**rates))
    found = []
    for _ in range(2):
        with tf.GradientTape() as tape:
            output = encoder(features, training=True, seed=tf.constant([1, 2]))
            loss = tf.reduce_sum(output.sequence[0] ** 3)
        found.append(tape.gradient(loss, encoder.trainable_variables))
        rematerialize(encoder)
    for plain, again, variable in zip(*found, encoder.trainable_variables, strict=True):
        assert plain is not None, variable.name
        again, plain = tf.convert_to_tensor(again), tf.convert_to_tensor(plain)
        np.testing.assert_allclose(again, plain, atol=1e-4)


def test_initialization():
    """0.02, and 0.02 / sqrt(2 layers) for projections back and the LM head; no bias or shift."""
    encoder = build_backbone(TINY.replace(hidden_size=256, embedding_size=256))
    layer, back = encoder.encoder_layers[1], 0.02 / 8**0.5
    head = MaskedLMHead(encoder.config, encoder.embeddings)
    head(tf.zeros([1, 1, 256]), tf.zeros([1, 1], tf.int32))
    parts = {layer.mixer.query: 0.02, layer.intermediate: 0.02}
    parts |= {layer.mixer_output: back, layer.output_dense: back, head.transform: back}
    for part, deviation in parts.items():
        # A normal distribution cut at two deviations has 0.88 of its deviation.
        assert part.kernel.numpy().std() == pytest.approx(0.8796 * deviation, rel=0.05)
        assert np.abs(part.kernel).max() <= 2 * deviation
        assert part.bias is None
    names = {variable.name.rpartition("/")[2] for variable in head.trainable_variables}
    assert names == {"word_embeddings:0", "kernel:0", "gamma:0", "output_bias:0"}
