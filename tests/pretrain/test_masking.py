"""Masking statistics on 100k tokens, and the sampler against its distribution."""

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from convbert.pretrain.hparams import parse_hparams
from convbert.pretrain.masking import mask_tokens, replace_tokens
from convbert.pretrain.vocabulary_softmax import sample_tokens, unnormalized_softmax
from tests.model_support import SPECIAL, framed_texts, tensors

V, B, S = 1000, 800, 128  # 102,400 tokens


def make_hparams(**changes):
    return parse_hparams({"vocab_size": V, "max_seq_length": S, **changes})


@pytest.fixture(scope="module")
def features():
    lengths = np.random.default_rng(0).integers(4, S + 1, B)
    lengths[:400] = S
    found = framed_texts(B, S, lengths, V)
    ids, mask = found["input_ids"], found["input_mask"]
    ids[:, S // 3] = np.where(ids[:, S // 3] == 3, 3, SPECIAL["mask"])  # a [MASK] in plain text
    found["input_ids"] = ids * mask
    return tensors(found)


def draw(features, seed=(1, 2), **changes):
    hparams = make_hparams(**changes)
    batch = mask_tokens(features, hparams, SPECIAL, tf.constant(seed))
    return {name: value.numpy() for name, value in batch.items()}


def test_the_first_token_is_never_hidden(features):
    """Blocks of words begin with a word: an unused slot says position 0, too."""
    ids = tf.concat([features["input_ids"][:, 1:2], features["input_ids"][:, 1:]], 1)
    batch = draw({**features, "input_ids": ids})
    used = batch["masked_lm_weights"] > 0
    assert batch["masked_lm_positions"][used].min() == 1
    assert (batch["masked_input_ids"][:, 0] == ids[:, 0].numpy()).all()


def test_how_many_and_which_tokens(features):
    batch = draw(features)
    ids, mask = features["input_ids"].numpy(), features["input_mask"].numpy()
    used = batch["masked_lm_weights"] > 0
    assert batch["masked_lm_positions"].shape == (B, 19)
    wanted = np.clip(np.round(mask.sum(1).astype(np.float32) * 0.15), 1, 19)
    candidates = (mask > 0) & ~np.isin(ids, list(SPECIAL.values()))
    np.testing.assert_array_equal(used.sum(1), np.minimum(wanted, candidates.sum(1)))
    rows, slots = np.nonzero(used)
    positions = batch["masked_lm_positions"][rows, slots]
    assert candidates[rows, positions].all()
    np.testing.assert_array_equal(batch["masked_lm_ids"][rows, slots], ids[rows, positions])
    assert len(set(zip(rows, positions))) == len(rows)  # no position twice
    for name in ("masked_lm_positions", "masked_lm_ids"):
        assert (batch[name][~used] == 0).all()


def test_every_candidate_is_equally_likely(features):
    counts = np.zeros(S)
    for i in range(10):
        batch = draw(features, seed=(7, i))
        rows, slots = np.nonzero(batch["masked_lm_weights"][:400])  # full-length rows
        np.add.at(counts, batch["masked_lm_positions"][rows, slots], 1)
    candidates = np.ones(S, bool)
    candidates[[0, S // 3, S // 2, S - 1]] = False
    assert counts[~candidates].sum() == 0
    # Without replacement counts vary less than multinomially, so a low p-value is suspicious only.
    assert stats.chisquare(counts[candidates]).pvalue > 1e-3


@pytest.mark.parametrize(("masked", "random"), [(0.85, 0.0), (0.8, 0.1), (0.0, 0.0), (1.0, 0.0)])
def test_what_is_shown_instead(features, masked, random):
    batch = draw(features, mask_token_prob=masked, random_token_prob=random)
    rows, slots = np.nonzero(batch["masked_lm_weights"])
    positions = batch["masked_lm_positions"][rows, slots]
    shown = batch["masked_input_ids"][rows, positions]
    original = batch["masked_lm_ids"][rows, slots]
    n = len(rows)
    assert n > 10_000
    is_mask, kept = shown == SPECIAL["mask"], shown == original
    for share, expected in ((is_mask, masked), (kept, 1 - masked - random)):
        assert abs(share.mean() - expected) <= 4 * np.sqrt(expected * (1 - expected) / n) + 2 / V
    replaced = shown[~is_mask & ~kept]
    if random:
        assert stats.kstest(replaced / V, "uniform").pvalue > 1e-3
    else:
        assert len(replaced) == 0
    untouched = np.ones([B, S], bool)
    untouched[rows, positions] = False
    ids = features["input_ids"].numpy()
    np.testing.assert_array_equal(batch["masked_input_ids"][untouched], ids[untouched])


def test_static_masks(features):
    """Of the example alone: not of step, batch or padding; ten are all used."""
    one, again = draw(features, static_masks=1), draw(features, seed=(1, 3), static_masks=1)
    for name in one:
        np.testing.assert_array_equal(one[name], again[name])
    short = {name: value[5:9, :100] for name, value in features.items()}
    short["input_mask"] *= tf.cast(tf.range(100) < 60, tf.int32)
    alone = draw(short, static_masks=1)
    cut = draw({name: value[:, :60] for name, value in short.items()}, static_masks=1)
    for name in ("masked_lm_positions", "masked_lm_ids"):
        np.testing.assert_array_equal(alone[name], cut[name])
    assert len({tuple(row) for row in one["masked_lm_positions"][:400]}) == 400  # examples differ
    counts = np.bincount(one["masked_lm_positions"][:400].ravel(), minlength=S)
    counts = np.delete(counts, [0, S // 3, S // 2, S - 1])
    assert stats.chisquare(counts).pvalue > 1e-3
    copies = [draw(features, seed=(1, i), static_masks=10) for i in range(60)]
    shown = {copy["masked_input_ids"][0].tobytes() for copy in copies}
    assert len(shown) == len({copy["masked_lm_positions"][0].tobytes() for copy in copies}) == 10


def test_the_originals_draws_collide(features):
    batch = draw(features, mask_with_replacement=True)
    rows, slots = np.nonzero(batch["masked_lm_weights"])
    positions = batch["masked_lm_positions"][rows, slots]
    ids = features["input_ids"].numpy()
    assert not np.isin(ids[rows, positions], list(SPECIAL.values())).any()
    collisions = 1 - len(set(zip(rows, positions))) / len(rows)
    assert 0.04 < collisions < 0.12  # about 18 / (2 * 125) for 19 draws from 125


def test_example_with_nothing_to_mask():
    ids = tf.constant([[2, 3, 0, 0], [2, 7, 3, 0], [0, 0, 0, 0]])
    features = {"input_ids": ids, "input_mask": tf.cast(ids > 0, tf.int32), "segment_ids": ids * 0}
    hparams = make_hparams(max_seq_length=20)
    batch = mask_tokens(features, hparams, SPECIAL, tf.constant([0, 0]))
    assert batch["masked_lm_weights"].numpy().sum(1).tolist() == [0.0, 1.0, 0.0]
    np.testing.assert_array_equal(batch["masked_input_ids"][0], ids[0])


def test_replace_tokens():
    ids = tf.constant([[2, 10, 11, 12], [2, 20, 21, 22]])
    positions = tf.constant([[1, 3, 0], [2, 2, 0]])
    updates = tf.constant([[50, 60, 70], [31, 34, 70]])
    expected = [[2, 50, 11, 60], [2, 20, 32, 22]]  # the collision's mean, rounded down: (31+34)//2
    np.testing.assert_array_equal(replace_tokens(ids, positions, updates), expected)


def test_samples_follow_the_softmax():
    logits = np.random.default_rng(3).normal(size=90).astype(np.float32) * 2
    logits[:10] = -1e4  # never
    draws = 200_000
    uniform = tf.random.stateless_uniform([1, draws, 2], [5, 6])
    tiled = tf.tile(tf.constant(logits)[None, None], [1, draws, 1])
    samples = sample_tokens(unnormalized_softmax(tiled), uniform, 90).numpy()[0]
    assert samples.min() >= 10
    assert samples.max() < 90
    probabilities = np.exp(logits.astype(np.float64))
    probabilities /= probabilities.sum()
    observed = np.bincount(samples, minlength=90)[10:]
    assert stats.chisquare(observed, probabilities[10:] * draws).pvalue > 1e-3


def test_extreme_uniforms_stay_inside_the_vocabulary():
    logits = tf.fill([1, 3, 30522], 0.0)
    uniform = tf.constant([[[0.0, 0.0], [1 - 2**-23, 1 - 2**-23], [0.5, 1 - 2**-23]]])
    samples = sample_tokens(unnormalized_softmax(logits), uniform, 30522).numpy()[0]
    assert (samples[0], samples[1]) == (0, 30521)
    assert 0 < samples[2] < 30522
