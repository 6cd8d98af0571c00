"""Properties of XLNet: the equation by a plain loop, padding, segments, dropout, streams."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tensorflow as tf

from model import build_backbone
from model.backbone import rematerialize
from model.xlnet import network
from model.xlnet.attention import (
    AttentionInputs,
    distance_encodings,
    scores_by_key,
    scores_by_key_at,
    scores_by_key_at_reference,
    scores_by_key_reference,
)
from model.xlnet.network import XLNetLMHead
from tests.model.test_xlnet import LENGTHS, B, P, S, batch, order
from tests.model.xlnet_support import TINY, build
from tests.model_support import normal, tensors

D, C = TINY.hidden_size, TINY.type_vocab_size
SEED = tf.constant([3, 4])


def test_scores_are_brought_to_their_keys():
    """With their gradients; of all places and of some."""
    scores, places = (
        tf.constant(normal(2, 3, S, 2 * S)),
        tf.constant([[6, 0, 3, 3], [1, 2, 5, 4]]),
    )
    some = tf.gather(scores, [0, 2, 4, 6], axis=2)
    for found, reference, given in (
        (scores_by_key, scores_by_key_reference, scores),
        (
            lambda scores: scores_by_key_at(scores, places),
            lambda scores: scores_by_key_at_reference(scores, places),
            some,
        ),
    ):
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(given)
            outputs, expected = found(given), reference(given)
            sums = [tf.reduce_sum(value * normal(*value.shape)) for value in (outputs, expected)]
        np.testing.assert_array_equal(outputs, expected)
        gradients = [tape.gradient(value, given) for value in sums]
        np.testing.assert_allclose(*gradients, atol=1e-6)


def attention_by_loop(attention, hidden, segments, visible):
    """The equation of `model.xlnet.attention`, for one text and number by number."""
    N, H = TINY.num_attention_heads, TINY.head_size

    def heads(inputs, kernel):
        return (inputs @ kernel.numpy()).reshape(-1, N, H)

    def encoding(distance):
        angles = [distance / 10000 ** (2 * i / D) for i in range(D // 2)]
        return np.array([*map(math.sin, angles), *map(math.cos, angles)], np.float32)

    biases = (getattr(attention.biases, name) for name in ("content", "position", "segment"))
    r_w, r_r, r_s = (bias.numpy() for bias in biases)
    q, k = heads(hidden, attention.query_kernel), heads(hidden, attention.key_kernel)
    v, e = heads(hidden, attention.value_kernel), attention.segment_embeddings.numpy()
    outputs = np.zeros_like(hidden)
    for i in range(S):
        context = np.zeros([N, H], np.float32)
        for n in range(N):
            scores = []
            for j in range(S):
                r = heads(encoding(i - j)[None], attention.encoding_kernel)[0, n]
                s = e[0 if segments[i] == segments[j] else 1, n]
                parts = (q[i, n] + r_w[n]) @ k[j, n], (q[i, n] + r_r[n]) @ r, (q[i, n] + r_s[n]) @ s
                scores.append(sum(parts) / math.sqrt(H) if visible[j] else -math.inf)
            weights = np.exp(np.array(scores) - max(scores))
            context[n] = weights / weights.sum() @ v[:, n]
        outputs[i] = context.reshape(-1) @ attention.output_kernel.numpy()
    return outputs


def test_attention_is_the_equation():
    attention = build().encoder_layers[0].attention
    hidden, features = normal(B, S, D), batch()
    segments = tf.one_hot(features["segment_ids"], C)
    bias = ((1 - features["input_mask"]) * -1e30)[:, None, None]
    given = AttentionInputs(distance_encodings(S, TINY), segments, tf.constant(bias, tf.float32))
    found, _ = attention(hidden, given=given)
    for b in range(B):
        about = features["segment_ids"][b], features["input_mask"][b]
        expected = attention_by_loop(attention, hidden[b], *about)
        np.testing.assert_allclose(found[b], expected, atol=2e-5)


def test_padding_on_either_side_changes_nothing():
    """Here it is on the right; the original has it on the left."""
    encoder, right = build(), batch()
    longer = {name: np.pad(value, [[0, 0], [0, 3]]) for name, value in right.items()}
    moved = [[np.roll(row, S - n) for row, n in zip(v, LENGTHS)] for v in right.values()]
    left = dict(zip(right, map(np.stack, moved), strict=True))
    expected = encoder(right)
    for features, begins in ((longer, [0] * B), (left, S - np.array(LENGTHS))):
        found = encoder(features)
        np.testing.assert_allclose(found.pooled, expected.pooled, atol=1e-5)
        for b, (begin, length) in enumerate(zip(begins, LENGTHS, strict=True)):
            states = found.sequence[b, begin : begin + length]
            np.testing.assert_allclose(states, expected.sequence[b, :length], atol=1e-5)
    nothing = {**right, "input_mask": np.zeros_like(right["input_mask"])}
    assert np.isfinite(encoder(nothing).sequence).all()


def test_segments_are_compared_by_equality():
    encoder, features = build(), batch()
    expected = encoder(features).sequence
    other = {**features, "segment_ids": np.array([2, 3, 1])[features["segment_ids"]]}
    np.testing.assert_allclose(encoder(other).sequence, expected, atol=1e-5)
    one = {**features, "segment_ids": np.zeros([B, S], np.int32)}
    absent = {name: features[name] for name in ("input_ids", "input_mask")}
    np.testing.assert_array_equal(encoder(one).sequence, encoder(absent).sequence)
    assert np.abs(encoder(one).sequence - expected).max() > 0.01


def test_what_is_returned():
    encoder, features = build(), batch()
    output = encoder(features, output_attentions=True)
    assert output.sequence.shape == output.embedding_output.shape == (B, S, D)
    assert [states.shape for states in output.hidden_states] == [(B, S, D)] * 2
    np.testing.assert_array_equal(output.hidden_states[-1], output.sequence)
    assert [each.shape for each in output.attention_probs] == [(B, 4, S, S)] * 2
    np.testing.assert_allclose(tf.reduce_sum(output.attention_probs[1], -1), 1.0, atol=1e-5)
    assert encoder(features).attention_probs == ()
    assert encoder.config.summary_token == -1


@pytest.mark.parametrize("untie", [True, False])
def test_groups_of_variables_are_all_of_them(untie):
    encoder = build(untie_biases=untie)
    groups = encoder.layer_groups()
    assert len(groups) == 3
    found = [variable.name for group in groups for variable in group]
    assert sorted(found) == sorted(variable.name for variable in encoder.trainable_variables)
    assert len(set(found)) == len(found) == (1 + 2 * 17 if untie else 1 + 2 * 14 + 3)


def test_kernels_begin_normally_distributed():
    """Not truncated at two deviations, as BERT's are."""
    encoder = build_backbone(TINY.replace(initializer_range=0.1))
    head = XLNetLMHead(encoder.config, encoder.embeddings)
    variables = {v.name.split(":")[0]: v.numpy() for v in head.weights + encoder.weights}
    drawn = [v for name, v in variables.items() if v.ndim > 1]
    assert len(drawn) == 2 + 2 * (6 + 3 + 2)
    values = np.concatenate([value.ravel() for value in drawn])
    assert values.std() == pytest.approx(0.1, rel=0.05)
    assert np.mean(np.abs(values) > 0.2) == pytest.approx(0.0455, abs=0.01)
    for name, value in variables.items():
        if value.ndim == 1:
            np.testing.assert_array_equal(value, 1.0 if "gamma" in name else 0.0)


def test_dropout_is_where_the_original_has_it(monkeypatch):
    """Also of the encodings, whose mask all texts share, and of the last output."""
    dropped = []

    def noted(inputs, rate, seed=None):
        if rate:
            dropped.append((*inputs.shape, len(seed)))
        return dropout(inputs, rate, seed)

    dropout = network.dropout
    monkeypatch.setattr(network, "dropout", noted)
    encoder = build(hidden_dropout_prob=0.5, attention_probs_dropout_prob=0.0)
    features, (permitted, targets) = tensors(batch()), order()
    seed = tf.constant([3, 4, 0])
    outputs = encoder.two_streams(features, permitted, targets, normal(1, D), True, seed)
    inner = [(B, S, 24, 3), (B, P, 24, 3)]
    expected = [
        (B, S, D, 3),
        (1, 2 * S, D, 2),
        (B, P, D, 3),
        *inner * 2,
        (B, S, D, 3),
        (B, P, D, 3),
    ]
    assert dropped == expected
    for output in (outputs.content.sequence, outputs.queries):
        assert np.mean(output.numpy() == 0.0) == pytest.approx(0.5, abs=0.15)
    assert encoder.encoder_layers[0].rate == 0.5  # of what enters a norm


def test_dropout_is_a_function_of_the_seed():
    encoder, features = build(), tensors(batch())
    once, again = (encoder(features, training=True, seed=SEED).sequence for _ in range(2))
    np.testing.assert_array_equal(once, again)
    assert np.abs(encoder(features, training=True, seed=SEED + 1).sequence - once).max() > 0.01
    halves = [
        encoder(
            {name: value[half * 2 :][:2] for name, value in features.items()},
            training=True,
            seed=tf.concat([SEED, [half]], 0),
        ).sequence
        for half in (0, 1)
    ]
    np.testing.assert_allclose(tf.concat(halves, 0), once, atol=1e-5)


def test_the_head_is_the_embeddings_and_a_bias():
    encoder = build()
    head = XLNetLMHead(encoder.config, encoder.embeddings, pieces=29)
    head.output_bias.assign(normal(31))
    queries = normal(B, P, D)
    expected = queries @ encoder.embeddings.word_embeddings.numpy().T + head.output_bias.numpy()
    np.testing.assert_allclose(head(queries), expected[..., :29], atol=1e-5)
    own = {variable.name: tuple(variable.shape) for variable in head.trainable_variables}
    assert own.pop(encoder.embeddings.word_embeddings.name) == (31, D)
    assert own == {"lm_head/output_bias:0": (31,), "lm_head/mask_embedding:0": (1, D)}


def one_layer():
    encoder = build(num_hidden_layers=1, untie_biases=False)
    head = XLNetLMHead(encoder.config, encoder.embeddings)
    return encoder, head, (tensors(batch()), *map(tf.constant, order()))


def test_a_step_is_the_same_rematerialized():
    """When layers are computed again for their gradients; everything has one."""
    encoder, head, given = one_layer()
    variables = encoder.trainable_variables + head.trainable_variables[:2]

    def run():
        with tf.GradientTape() as tape:
            found = encoder.two_streams(*given, head.mask_embedding, True, SEED)
            texts = found.content.sequence
            loss = tf.reduce_mean(head(found.queries) ** 2) + tf.reduce_mean(texts**2)
        gradients = tape.gradient(loss, variables)
        return [loss, *(tf.convert_to_tensor(gradient) for gradient in gradients)]

    expected = run()
    rematerialize(encoder)
    for one, other in zip(run(), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def test_what_is_computed_is_the_same_compiled_and_of_any_length():
    encoder, head, given = one_layer()

    def run(features, permitted, targets):
        streams = permitted, targets, head.mask_embedding
        return encoder.two_streams(features, *streams).queries

    expected = run(*given)
    dynamic = tf.nest.map_structure(lambda t: tf.TensorSpec([None] * len(t.shape), t.dtype), given)
    any_length = tf.function(run, input_signature=dynamic)
    np.testing.assert_allclose(any_length(*given), expected, atol=1e-5)
    features = given[0]
    compiled = tf.function(lambda features: encoder(features).pooled, jit_compile=True)
    np.testing.assert_allclose(compiled(features), encoder(features).pooled, atol=1e-5)
