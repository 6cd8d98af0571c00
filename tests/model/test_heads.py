"""The span head against loops over starts and tokens; the CRF against all paths, one by one."""

import itertools
import types

import numpy as np
import pytest
import tensorflow as tf
from scipy.special import erf, log_softmax, softmax

from convbert.model import EncoderOutput
from convbert.model.heads import linear_chain
from convbert.model.heads.crf import CrfHead
from convbert.model.heads.linear_chain import ChainScores, viterbi
from convbert.model.heads.span import SpanHead
from tests.model_support import TINY, normal, randomize

B, S, D, K = 3, 11, TINY.hidden_size, 4
QUESTION = 3


def make_head(config=TINY, **changes):
    settings = {"joint_prediction": True, "beam_size": K, "answerable_classifier": True}
    settings |= {"answerable_uses_start_logits": True, "answerable_weight": 0.5, **changes}
    head = SpanHead(config, types.SimpleNamespace(**settings), version_2=True)
    draw = np.random.default_rng(0)
    for variable in head.trainable_variables:  # as initialised, biases would go unseen
        variable.assign(draw.normal(0, 0.5, variable.shape))
    return head


def make_batch(S=S, lengths=(11, 8, 9)):
    mask = (np.arange(S) < np.array(lengths)[:, None]).astype(np.int32)
    return {
        "input_mask": mask,
        "segment_ids": mask * (np.arange(S) >= QUESTION),
        "start_position": np.array([4, 0, 3], np.int32),
        "end_position": np.array([6, 0, 3], np.int32),
        "is_impossible": np.array([0, 1, 0], np.int32),
    }


def output_of(sequence):
    return EncoderOutput(sequence, sequence[:, 0])


def predict(head, sequence, batch):
    found = head.predict(output_of(sequence), batch)
    return {name: value.numpy() for name, value in found.items()}


def loss(head, sequence, batch):
    return head.loss(output_of(sequence), batch, training=True).numpy()


def gelu(x):
    return 0.5 * x * (1 + erf(x / np.sqrt(2)))


class Oracle:
    """The head with the dense layer on the concatenation, for one row in float64."""

    def __init__(self, head, sequence, batch, row):
        self.weights = {
            variable.name.removeprefix("span/").removesuffix(":0"): variable.numpy().astype(float)
            for variable in head.trainable_variables
        }
        self.sequence = sequence[row].astype(float)
        self.allowed = (batch["input_mask"] * batch["segment_ids"])[row] > 0
        self.allowed[0] = True

    def dense(self, name, x):
        return x @ self.weights[f"{name}/kernel"] + self.weights[f"{name}/bias"]

    def masked(self, logits):
        return np.where(self.allowed, logits, logits - 1000.0)

    def start_logits(self):
        return self.masked(self.dense("start", self.sequence)[:, 0])

    def end_logits(self, start):
        pairs = [np.concatenate([self.sequence[start], token]) for token in self.sequence]
        hidden = gelu(self.dense("end_hidden", np.array(pairs)))
        return self.masked(self.dense("end", hidden)[:, 0])

    def unanswerable(self):
        mean = softmax(self.start_logits()) @ self.sequence
        hidden = gelu(self.dense("answerable_hidden", np.concatenate([self.sequence[0], mean])))
        return self.dense("answerable", hidden)[0]


def test_predictions_and_losses_are_those_of_the_concatenation():
    head, sequence, batch = make_head(), normal(B, S, D), make_batch()
    predictions, losses = predict(head, sequence, batch), loss(head, sequence, batch)
    for row in range(B):
        oracle = Oracle(head, sequence, batch, row)
        starts = log_softmax(oracle.start_logits())
        best = np.argsort(-starts)[:K]
        np.testing.assert_array_equal(predictions["start_index"][row], best)
        np.testing.assert_allclose(predictions["start_log_probs"][row], starts[best], 1e-4, 1e-4)
        for beam, start in enumerate(best):
            ends = log_softmax(oracle.end_logits(start))
            order = np.argsort(-ends)[:K]
            np.testing.assert_array_equal(predictions["end_index"][row, beam], order)
            found = predictions["end_log_probs"][row, beam]
            np.testing.assert_allclose(found, ends[order], 1e-4, 1e-4)
        found = predictions["answerable_logit"][row]
        np.testing.assert_allclose(found, oracle.unanswerable(), 1e-4, 1e-4)
        start, end = batch["start_position"][row], batch["end_position"][row]
        span = -log_softmax(oracle.start_logits())[start]
        span = (span - log_softmax(oracle.end_logits(start))[end]) / 2
        sign = 1 if batch["is_impossible"][row] else -1
        classifier = np.log1p(np.exp(-sign * oracle.unanswerable()))
        np.testing.assert_allclose(losses[row], span + 0.5 * classifier, 1e-4)
    assert len(np.unique(predictions["end_index"][0], axis=0)) > 1  # ends depend on the start


@pytest.mark.parametrize("joint", [True, False])
def test_without_classifier_the_null_score_is_that_of_the_first_token(joint):
    head = make_head(answerable_classifier=False, joint_prediction=joint, beam_size=S)
    sequence, batch = normal(B, S, D), make_batch()
    found = predict(head, sequence, batch)
    assert len(head.trainable_variables) == (6 if joint else 4)
    for row in range(B):
        beam = found["start_index"][row].tolist().index(0)
        null = found["start_log_probs"][row, beam]
        null += found["end_log_probs"][row, beam, found["end_index"][row, beam].tolist().index(0)]
        np.testing.assert_allclose(found["answerable_logit"][row], null, 1e-4)
    ends_differ = np.ptp(found["end_index"], axis=1).any()
    assert ends_differ == joint


@pytest.mark.parametrize("classifier", [True, False])
def test_the_summary_token_may_be_the_last_one(classifier):
    """Moved from the first place of each sequence to the last, all else is the same."""
    lengths = np.array([11, 8, 9])
    batch, sequence = make_batch(lengths=lengths), normal(B, S, D)
    place = np.array([np.r_[1:n, 0, n:S] for n in lengths])  # where a token was
    at_last = np.take_along_axis(sequence, place[..., None], axis=1)
    moved = {"input_mask": batch["input_mask"], "is_impossible": batch["is_impossible"]}
    moved["segment_ids"] = batch["input_mask"] * (np.arange(S) >= QUESTION - 1)
    moved["segment_ids"][np.arange(B), lengths - 1] = 2  # as in XLNet's layout
    for name in ("start_position", "end_position"):
        moved[name] = np.maximum(batch[name] - 1, 0)
    options = {"answerable_classifier": classifier, "beam_size": 3}
    first = make_head(**options)
    last = make_head(config=TINY.with_summary_last(), **options)
    outputs = output_of(sequence), EncoderOutput(at_last, sequence[:, 0])
    losses = [
        head.loss(output, features, training=True)
        for head, output, features in zip((first, last), outputs, (batch, moved))
    ]
    np.testing.assert_allclose(losses[0], losses[1], 1e-5)
    expected, found = first.predict(outputs[0], batch), last.predict(outputs[1], moved)
    for name in ("start_log_probs", "end_log_probs", "answerable_logit"):
        np.testing.assert_allclose(found[name], expected[name], 1e-5, 1e-5)
    row = np.arange(B)[:, None]
    np.testing.assert_array_equal(place[row, found["start_index"]], expected["start_index"])


@pytest.mark.parametrize("jit", [False, True])
def test_in_a_function(jit):
    """Dynamic shapes without XLA; a beam that does not fit with either."""
    head, batch = make_head(beam_size=9), make_batch()
    shape = [B, S] if jit else [None, None]
    specs = {name: tf.TensorSpec(shape[: value.ndim], tf.int32) for name, value in batch.items()}

    @tf.function(input_signature=[tf.TensorSpec([*shape, D]), specs], jit_compile=jit)
    def run(sequence, batch):
        output = output_of(sequence)
        return head.predict(output, batch), head.loss(output, batch, training=True)

    lengths = [S] if jit else [S, 7]
    for length in lengths:
        sequence = normal(B, length, D)
        batch = make_batch(length, (length, 5, 6))
        predictions, losses = run(sequence, {name: tf.constant(v) for name, v in batch.items()})
        np.testing.assert_allclose(losses, loss(head, sequence, batch), 1e-4)
        for name, value in predict(head, sequence, batch).items():
            np.testing.assert_allclose(predictions[name], value, 1e-4, 1e-4)


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
    best = viterbi(emissions, lengths, constants(chain))
    for row, length in enumerate(LENGTHS):
        words, gold = emissions[row, :length], tuple(tags[row, :length])
        paths = list(itertools.product(range(K), repeat=length))
        scores = np.array([path_score(words, path, chain) for path in paths])
        partition = np.logaddexp.reduce(scores)
        probabilities = np.exp(scores - partition)
        nll = partition - path_score(words, gold, chain)
        assert float(loss[row]) == pytest.approx(nll, abs=2e-5)
        assert tuple(best[row].numpy()) == paths[probabilities.argmax()]
        for path, share in [*zip(paths, probabilities), (gold, -1.0)]:
            share *= row + 1
            expected[0][row, np.arange(length), path] += share
            expected[1][path[0]] += share
            expected[3][path[-1]] += share
            for i, j in itertools.pairwise(path):
                expected[2][i, j] += share
    for one, other in zip(found, expected):
        np.testing.assert_allclose(one, other, atol=2e-5)


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


def total(head, batch):
    output = EncoderOutput(batch["sequence"], batch["sequence"][:, 0])
    losses = head.loss(output, batch, training=True)
    return tf.reduce_sum(losses * head.loss_weights(batch))


def test_loss_is_of_first_pieces_and_of_whole_sentences():
    """Four sequences, the two in the middle of one sentence; first pieces have gaps between."""
    rng, head, first = np.random.default_rng(0), CrfHead(5), np.zeros([4, 10], np.float32)
    head(tf.zeros([1, 1, 8]))
    randomize(head, scale=0.7)
    for row, places in enumerate([(1, 2, 5), (2, 3, 4, 8), (1, 6), (4,)]):
        first[row, places] = 1.0
    batch = {
        "tag_weight": tf.constant(first),
        "tags": tf.constant(rng.integers(0, 5, [4, 10]).astype(np.int32)),
        "weight": tf.ones([4]),
        "example": tf.constant([7, 3, 3, 4]),
        "window": tf.constant([0, 0, 1, 0]),
        "sequence": tf.constant(rng.normal(size=[4, 10, 8]).astype(np.float32)),
    }
    emissions, tags, expected = head(batch["sequence"]).numpy(), batch["tags"].numpy(), 0.0
    for rows in ([0], [1, 2], [3]):
        words = np.concatenate([emissions[row][first[row] > 0] for row in rows])
        gold = np.concatenate([tags[row][first[row] > 0] for row in rows])
        length = tf.constant([len(gold)])
        expected += negative_log_likelihood(words[None], gold[None], length, head.scores())[0]
    assert float(total(head, batch)) == pytest.approx(float(expected), rel=1e-5)
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
