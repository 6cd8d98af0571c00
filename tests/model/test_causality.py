"""Causal encoders: no output knows of later tokens; cached generation against whole passes."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from convbert.model import CausalLMHead
from convbert.model.generation import Sampling, TextGenerator, advance, draw, empty_state
from convbert.model.kernels import fusion
from tests.model_support import MIXERS, TINY, build_tiny, random_features, randomize, tensors

S = 11
# Where texts begin and end: without padding, with padding after them, and before them.


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
    """Returns for each padding whether an output before t changed; those at t have to change. Texts
    are compared at the same place of two batches: elsewhere rounding and dropout may differ."""
    before, after = (run(features).numpy() for features in batches(((0, S), (0, S - 3), (2, S))))
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
    # Padding after it changes nothing, even unmasked.
    encoder = build_tiny(causal=True, mask_padding=False)
    output = encoder(features).sequence
    for i, length in enumerate((S, S - 4)):
        alone = encoder({name: value[i : i + 1, :length] for name, value in features.items()})
        np.testing.assert_allclose(output[i, :length], alone.sequence[0], atol=1e-5)


V = TINY.vocab_size
END, NEVER = 3, (0, 2, 4)


def build(token_mixer="mixed", kind="span", K=5, **changes):
    given = {"token_mixer": token_mixer, "convolution": kind, "conv_kernel_size": K, **changes}
    encoder = build_tiny(causal=True, **given)
    head = CausalLMHead(encoder.config, encoder.embeddings, cutoffs=[12], divisor=2)
    head(tf.zeros([1, 1, TINY.hidden_size]))
    randomize(head, 1, scale=0.3)
    return encoder, head


class WholePasses(TextGenerator):
    """The same, where every token takes a pass over the whole text before it."""

    def _read(self, ids, start, end, state):
        return self.encoder({"input_ids": ids[:, :end]}).sequence[:, -1], state


def sampling(B, num_tokens=5, temperature=1.0, top_k=0, seed=7):
    values = (num_tokens, temperature, top_k, seed)
    dtypes = (tf.int32, tf.float32, tf.int32, tf.int32)
    values = (np.broadcast_to(value, [B]).copy() for value in values)
    return Sampling(*map(tf.constant, values, dtypes))


def prompts():
    ids = np.random.default_rng(0).integers(5, V, [3, 8]).astype(np.int32)
    lengths = np.array([8, 3, 1], np.int32)
    return tf.constant(ids * (np.arange(8) < lengths[:, None])), tf.constant(lengths)


@pytest.mark.parametrize(
    ("token_mixer", "kind", "K", "precision"),
    [
        *[(*mixer, 5, "float32") for mixer in (*MIXERS[:4], MIXERS[-1])],
        *[("mixed", "span", K, "float32") for K in (1, 9)],
        ("mixed", "span", 5, "mixed_bfloat16"),
    ],
)
def test_cached_logits_are_the_uncached_ones(token_mixer, kind, K, precision):
    """Of tokens read one by one, and several at once; K may be longer than what was read."""
    tf_keras.mixed_precision.set_global_policy(precision)
    encoder, head = build(token_mixer, kind, K, linear_groups=2)
    ids = tf.constant(np.random.default_rng(1).integers(1, V, [2, 7]), tf.int32)
    expected = head(encoder({"input_ids": ids}).sequence)
    for parts in ([1] * 7, [4, 1, 2], [7]):
        state, start, found = empty_state(encoder, 2), 0, []
        for size in parts:
            hidden, state = advance(encoder, ids[:, start : start + size], start, state)
            found.append(head(hidden))
            start += size
            assert hidden.dtype == encoder.compute_dtype
        difference = tf.concat(found, 1) - expected
        share = 1e-5 if precision == "float32" else 0.03  # of rounding
        assert np.sqrt(np.mean(difference**2)) < share * np.std(expected)


def test_cached_tokens_are_the_uncached_ones():
    """Greedy and drawn; of prompts of different lengths, each as if it were alone."""
    encoder, head = build(share_layers=True)
    ids, lengths = prompts()
    options = sampling(3, temperature=[0.0, 1.3, 1.3], top_k=[0, 5, 0])
    cached = TextGenerator(encoder, head, END, NEVER)(ids, lengths, options)
    whole = WholePasses(encoder, head, END, NEVER)(ids, lengths, options)
    np.testing.assert_array_equal(cached.ids, whole.ids)
    np.testing.assert_array_equal(cached.lengths, whole.lengths)
    np.testing.assert_allclose(cached.log_probs, whole.log_probs, atol=1e-5)
    for i, length in enumerate(lengths.numpy()):
        one = Sampling(*(option[i : i + 1] for option in options))
        generate = TextGenerator(encoder, head, END, NEVER)
        alone = generate(ids[i : i + 1, :length], lengths[i, None], one)
        end, begin = int(alone.lengths[0]), int(length)
        assert end == cached.lengths[i]
        np.testing.assert_array_equal(cached.ids[i, :end], alone.ids[0, :end])
        expected = head(encoder({"input_ids": alone.ids[:, :end]}).sequence)[0, begin - 1 : end - 1]
        expected = tf.gather(expected, alone.ids[0, begin:end], batch_dims=1)
        np.testing.assert_allclose(alone.log_probs[0, begin:end], expected, atol=1e-5)


def test_draws():
    """Shares of many seeds; of all tokens, or of the k most probable."""
    count, logits = 4000, np.log([[0.1, 0.4, 0.2, 0.3]]).astype(np.float32)
    logits = tf.constant(np.repeat(logits, count, 0))

    def shares(**options):
        tokens = draw(logits, 5, sampling(count, seed=np.arange(count), **options)).numpy()
        return np.bincount(tokens, minlength=4) / count

    np.testing.assert_allclose(shares(), [0.1, 0.4, 0.2, 0.3], atol=0.03)
    np.testing.assert_allclose(shares(top_k=2), [0, 4 / 7, 0, 3 / 7], atol=0.03)
    np.testing.assert_allclose(shares(temperature=0.0), [0, 1, 0, 0])
    ones = draw(logits, 5, sampling(count, seed=np.arange(count))).numpy()
    others = draw(logits, 6, sampling(count, seed=np.arange(count))).numpy()
    assert np.mean(ones == others) == pytest.approx(0.3, abs=0.03)  # 0.1² + 0.4² + 0.2² + 0.3²
    squares = np.array([1, 16, 4, 9]) / 30
    np.testing.assert_allclose(shares(temperature=0.5), squares, atol=0.03)
