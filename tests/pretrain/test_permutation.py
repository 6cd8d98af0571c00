"""Spans and factorization orders against the rules of the original, written out for one text."""

import types

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from convbert.data.vocabulary import SPECIAL_TOKENS, Vocabulary, word_starts
from convbert.pretrain.hparams import parse_hparams
from convbert.pretrain.permutation import permitted, permute_tokens, sample_spans
from tests.model_support import SPECIAL, framed_texts, tensors

V, S = 300, 128
STARTS = np.arange(V) % 3 != 2  # a third of the tokens go on with a word
STARTS[:5] = True


def sample_mask(starts, goal, draws, *, alpha=6, max_gram=5, in_pieces=False):
    """`_sample_mask` of data_utils.py, for one text; up to where single tokens are drawn. `draws`
    yields two numbers of [0, 1) for each span: its length, its place."""
    seg_len = len(starts)
    mask = np.zeros(seg_len, bool)
    shares = 1.0 / np.arange(1, max_gram + 1)
    cumulative = np.cumsum(shares / shares.sum())[:-1]
    num_predict = cur_len = 0
    while cur_len < seg_len and num_predict < goal:
        length_draw, place_draw = next(draws)
        n = min(1 + int(np.sum(length_draw >= cumulative)), goal - num_predict)
        ctx_size = n * alpha
        l_ctx = int(place_draw * ctx_size)
        beg = cur_len + l_ctx
        while beg < seg_len and not starts[beg]:
            beg += 1
        if beg >= seg_len:
            break
        end, cnt_ngram = beg + 1, 1
        while end < seg_len:
            if starts[beg if in_pieces else end]:
                cnt_ngram += 1
                if cnt_ngram > n:
                    break
            end += 1
        if end >= seg_len:
            break
        end = min(end, beg + goal - num_predict)  # ours: the original fails where words are longer
        mask[beg:end] = True
        num_predict += end - beg
        cur_len = end + ctx_size - l_ctx
    return mask


def local_perm(ids, is_masked, index):
    """`_local_perm` of data_utils.py, from a shuffled index: targets, and who is blind to whom."""
    functional = (ids == SPECIAL["sep"]) | (ids == SPECIAL["cls"])
    non_mask = ~is_masked & ~functional
    rev_index = np.where(non_mask, -1, index)
    target = ~non_mask & ~functional
    self_rev_index = np.where(target, rev_index, rev_index + 1)
    return target, (self_rev_index[:, None] <= rev_index[None, :]) & ~non_mask[None, :]


def prepare(features, seed=(1, 2), **settings):
    hparams = parse_hparams({"objective": "permutation_lm", "max_seq_length": S, **settings})
    given = tensors(features), hparams, SPECIAL, tf.constant(STARTS), tf.constant(seed)
    batch = permute_tokens(*given)
    return {name: value.numpy() for name, value in batch.items()}


@pytest.mark.parametrize("in_pieces", [False, True])
@pytest.mark.parametrize("context", [6, 2])
def test_spans_follow_the_original_rules(in_pieces, context):
    """From the same draws the same spans, whatever the length and the number wanted."""
    B = 200
    draw = np.random.default_rng(3)
    lengths = draw.integers(3, S + 1, B)
    lengths[:80] = S
    ids = framed_texts(B, S, lengths, V)["input_ids"]
    starts = STARTS[ids] & (np.arange(S) < lengths[:, None])
    wanted = np.where(np.arange(B) % 2, np.maximum(1, lengths // 6), draw.integers(1, 12, B))
    noise = (draw.integers(0, 2**24, [B, -(-S // (context + 1)), 2]) / 2**24).astype(np.float32)
    given = starts, lengths.astype(np.int32), wanted.astype(np.int32), noise
    options = {"max_words": 5, "context": context, "in_pieces": in_pieces}
    found = sample_spans(*map(tf.constant, given), **options).numpy()
    for i, length in enumerate(lengths):
        rules = {"alpha": context, "in_pieces": in_pieces}
        expected = sample_mask(starts[i, :length], wanted[i], iter(noise[i]), **rules)
        np.testing.assert_array_equal(found[i, :length], expected, err_msg=str(i))
    assert not found[np.arange(S) >= lengths[:, None]].any()
    assert found.sum(1).mean() > 5


def test_numbers_of_predictions():
    lengths = np.random.default_rng(1).integers(2, S + 1, 300)
    lengths[:100] = S
    features = framed_texts(300, S, lengths, V)
    batch = prepare(features)
    used = batch["target_weights"] > 0
    assert used.shape == (300, 21)  # 85 of 512, so 21 of 128
    wanted = np.clip(np.round(lengths.astype(np.float32) * np.float32(0.166)), 1, 21)
    assert (used.sum(1) <= wanted).all()
    assert (used.sum(1) >= wanted - 3).all()  # three draws may be [CLS] or [SEP]
    assert (used.sum(1) < wanted).any()
    rows, slots = np.nonzero(used)
    positions = batch["target_positions"][rows, slots]
    ids = features["input_ids"]
    assert features["input_mask"][rows, positions].all()
    assert not np.isin(ids[rows, positions], [SPECIAL["cls"], SPECIAL["sep"]]).any()
    np.testing.assert_array_equal(batch["target_ids"][rows, slots], ids[rows, positions])
    assert len({*zip(rows, positions)}) == len(rows)
    for name in ("target_positions", "target_ids"):
        assert not batch[name][~used].any()
    assert parse_hparams({"objective": "permutation_lm"}).objective.max_predictions(512) == 85


@pytest.mark.parametrize("perm_size", [None, 32, 50, 1])
def test_orders_follow_the_original_rules(perm_size):
    features = framed_texts(20, S, np.random.default_rng(2).integers(5, S + 1, 20), V)
    batch = prepare(features, perm_size=perm_size)
    can_see = permitted(tf.constant(batch["order"]), tf.constant(batch["limit"])).numpy()
    size = perm_size or S
    for i, ids in enumerate(features["input_ids"]):
        masked = np.zeros(S, bool)
        masked[batch["target_positions"][i][batch["target_weights"][i] > 0]] = True
        # The order of those that have one; `_local_perm` numbers all of them.
        index = np.empty(S, int)
        order = np.where(batch["order"][i] < 0, 2**31 - 1, batch["order"][i])
        index[np.argsort(order, kind="stable")] = np.arange(S)
        target, blind = local_perm(ids, masked, index)
        np.testing.assert_array_equal(target, masked)
        np.testing.assert_array_equal(can_see[i], ~blind)
        ordered = np.flatnonzero(batch["order"][i] >= 0)
        windows = ordered[np.argsort(batch["order"][i][ordered])] // size
        assert (np.diff(windows) >= 0).all()  # windows follow each other


def test_every_order_is_equally_likely():
    """And every token, in the long run; draws do not repeat and depend on the seed alone."""
    features = framed_texts(500, S, vocab_size=V)
    one, again, other = prepare(features), prepare(features), prepare(features, seed=(1, 3))
    np.testing.assert_equal(again, one)
    assert (one["target_positions"] != other["target_positions"]).mean() > 0.8
    first = []
    for seed in range(12):
        batch = prepare(features, seed=(9, seed), mask_prob=0.03)
        for i, positions in enumerate(batch["target_positions"]):
            if batch["target_weights"][i].all():
                first.append(np.argmin(batch["order"][i, np.sort(positions)]))
    counts = np.bincount(first, minlength=4)
    assert len(counts) == 4
    assert stats.chisquare(counts).pvalue > 1e-3


def test_word_starts():
    words = Vocabulary((*SPECIAL_TOKENS, "un", "##real", "#", "##", "a"))
    assert word_starts(words) == [True] * 6 + [False, True, False, True]
    # As `_is_start_piece` of data_utils.py: a hyphen and "<eod>" begin one, "'" and "£" do not.
    pieces = ("<unk>", "<eod>", "▁", "▁un", "real", "-", "'", "£", ".")
    model = types.SimpleNamespace(tokens=pieces, tokenizer="sentencepiece")
    assert word_starts(model) == [True] * 4 + [False, True, False, False, True]
