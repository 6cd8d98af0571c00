"""The CRF: its chain against all paths, one by one, and the head, a chain over windows."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from convbert.model.encoder import EncoderOutput
from convbert.model.heads import linear_chain
from convbert.model.heads.crf import CrfHead
from convbert.model.heads.linear_chain import ChainScores, viterbi
from tests.model_support import randomize


def negative_log_likelihood(emissions, tags, lengths, chain):
    """[B]; no row goes on with the one before."""
    joined = tf.zeros(tf.shape(lengths), tf.bool)
    return linear_chain.negative_log_likelihood(emissions, tags, lengths, chain, joined)


def random_chain(K, rng, scale=2.0):
    values = (rng.normal(0, scale, shape) for shape in ([K], [K, K], [K]))
    return ChainScores(*map(np.float32, values))


def path_score(emissions, tags, chain):
    """In float64, a word after the other."""
    score = float(chain.start[tags[0]]) + float(chain.end[tags[-1]])
    score += sum(float(e[tag]) for e, tag in zip(emissions, tags))
    return score + sum(float(chain.transitions[i, j]) for i, j in itertools.pairwise(tags))


def all_paths(emissions, chain):
    """(paths, their probabilities, log partition) of one sentence [W, K]."""
    W, K = emissions.shape
    paths = list(itertools.product(range(K), repeat=W))
    scores = np.array([path_score(emissions, path, chain) for path in paths])
    partition = np.logaddexp.reduce(scores)
    return paths, np.exp(scores - partition), partition


def constants(chain):
    return ChainScores(*map(tf.constant, chain))


LENGTHS = (6, 1, 4, 2)


@pytest.mark.parametrize("K", [2, 3, 4])
def test_sum_best_path_and_gradients_are_those_of_all_paths(K):
    rng = np.random.default_rng(K)
    chain = random_chain(K, rng)
    emissions = rng.normal(0, 2, [4, 6, K]).astype(np.float32)
    tags = rng.integers(0, K, [4, 6]).astype(np.int32)
    lengths = np.array(LENGTHS, np.int32)
    variables = [tf.constant(emissions), *constants(chain)]
    with tf.GradientTape() as tape:
        tape.watch(variables)
        loss = negative_log_likelihood(variables[0], tags, lengths, ChainScores(*variables[1:]))
        total = tf.reduce_sum(loss * [1.0, 2.0, 3.0, 4.0])
    found = [gradient.numpy() for gradient in tape.gradient(total, variables)]
    expected = [np.zeros_like(variable) for variable in variables]
    best, log_probability = viterbi(emissions, lengths, constants(chain))
    partitions = linear_chain.log_partition(emissions, lengths, constants(chain))
    for row, length in enumerate(LENGTHS):
        words, gold = emissions[row, :length], tuple(tags[row, :length])
        paths, probabilities, partition = all_paths(words, chain)
        assert float(partitions[row]) == pytest.approx(partition, abs=2e-5)
        nll = partition - path_score(words, gold, chain)
        assert float(loss[row]) == pytest.approx(nll, abs=2e-5)
        assert tuple(best[row, :length].numpy()) == paths[probabilities.argmax()]
        assert not best[row, length:].numpy().any()
        assert float(log_probability[row]) == pytest.approx(np.log(probabilities.max()), abs=2e-5)
        for path, share in [*zip(paths, probabilities), (gold, -1.0)]:
            share *= row + 1
            expected[0][row, np.arange(length), path] += share
            expected[1][path[0]] += share
            expected[3][path[-1]] += share
            for i, j in itertools.pairwise(path):
                expected[2][i, j] += share
    for one, other in zip(found, expected):
        np.testing.assert_allclose(one, other, atol=2e-5)


L, D = 5, 8
EXAMPLE, WINDOW = [7, 3, 3, 4], [0, 0, 1, 0]


def test_long_chain_of_large_scores_is_exact():
    """Marginals of 512 words sum to 1, though the scores of paths are in the thousands."""
    rng = np.random.default_rng(0)
    emissions = tf.constant(rng.normal(0, 10, [2, 512, 9]).astype(np.float32))
    chain = constants(random_chain(9, rng))
    lengths = tf.constant([512, 300])

    @tf.function
    def gradient_of(emissions):
        with tf.GradientTape() as tape:
            tape.watch(emissions)
            tags = tf.zeros([2, 512], tf.int32)
            loss = negative_log_likelihood(emissions, tags, lengths, chain)
        return tape.gradient(loss, emissions)

    gradient, real = gradient_of(emissions).numpy(), tf.sequence_mask(lengths, 512, tf.float32)
    gradient[:, :, 0] += real  # without the gold path's
    np.testing.assert_allclose(gradient.sum(-1), real, atol=1e-5)
    assert gradient.min() > -1e-6


def head_of(**options):
    head = CrfHead(L, **options)
    head(tf.zeros([1, 1, D]))
    randomize(head, scale=0.7)
    return head


def batch_of(rng, S=10):
    """Four sequences, the two in the middle of one sentence; first pieces have gaps between."""
    first = np.zeros([4, S], np.float32)
    for row, places in enumerate([(1, 2, 5), (2, 3, 4, 8), (1, 6), (4,)]):
        first[row, places] = 1.0
    return {
        "tag_weight": tf.constant(first),
        "tags": tf.constant(rng.integers(0, L, [4, S]).astype(np.int32)),
        "weight": tf.ones([4]),
        "example": tf.constant(EXAMPLE),
        "window": tf.constant(WINDOW),
        "sequence": tf.constant(rng.normal(size=[4, S, D]).astype(np.float32)),
    }


def total(head, batch):
    output = EncoderOutput(batch["sequence"], batch["sequence"][:, 0])
    losses = head.loss(output, batch, training=True)
    return tf.reduce_sum(losses * head.loss_weights(batch))


def expected_of(head, batch):
    """The chains of each sentence, gathered one word after the other."""
    first = batch["tag_weight"].numpy() > 0
    emissions, tags = head(batch["sequence"]).numpy(), batch["tags"].numpy()
    found = 0.0
    for rows in ([0], [1, 2], [3]):
        words = np.concatenate([emissions[row][first[row]] for row in rows])
        gold = np.concatenate([tags[row][first[row]] for row in rows])
        length = tf.constant([len(gold)])
        found += negative_log_likelihood(words[None], gold[None], length, head.scores())[0]
    return float(found)


def test_loss_is_of_first_pieces_and_of_whole_sentences():
    rng, head = np.random.default_rng(0), head_of()
    batch = batch_of(rng)
    assert float(total(head, batch)) == pytest.approx(expected_of(head, batch), rel=1e-5)
    other = tf.constant(rng.normal(size=batch["sequence"].shape).astype(np.float32))
    inside = batch["tag_weight"][..., None] > 0
    changed = {**batch, "sequence": tf.where(inside, batch["sequence"], other)}
    changed["tags"] = tf.where(inside[..., 0], batch["tags"], 0)
    assert float(total(head, changed)) == float(total(head, batch))
    apart = {**batch, "window": tf.zeros([4], tf.int32)}  # what the same sequences are apart
    assert abs(float(total(head, apart) - total(head, batch))) > 1e-2
    # A copy that only fills the batch neither counts nor continues a sentence.
    numbers = [0, 1, 2, 2]
    filled = {name: tf.gather(value, numbers) for name, value in batch.items()}
    filled["weight"] = tf.constant([1.0, 1.0, 1.0, 0.0])
    filled["window"] = tf.constant([0, 0, 1, 2])
    three = {name: value[:3] for name, value in batch.items()}
    assert float(total(head, filled)) == pytest.approx(float(total(head, three)), rel=1e-6)
