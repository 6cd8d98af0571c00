"""The CRF head: first pieces alone, one chain over the windows of a sentence, float32."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from model.encoder import EncoderOutput
from model.heads.crf import CrfHead
from model.heads.linear_chain import ChainScores, negative_log_likelihood, viterbi
from tests.model_support import randomize

L, D = 5, 8
EXAMPLE, WINDOW = [7, 3, 3, 4], [0, 0, 1, 0]


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
        found += negative_log_likelihood(
            words[None], gold[None], tf.constant([len(gold)]), head.scores(), tf.constant([False])
        )[0]
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


@pytest.mark.bfloat16
def test_it_stays_in_float32_under_half_precision():
    tf_keras.mixed_precision.set_global_policy("mixed_bfloat16")
    head, batch = head_of(), batch_of(np.random.default_rng(1))
    batch["sequence"] = tf.cast(batch["sequence"], tf.bfloat16)
    with tf.GradientTape() as tape:
        loss = total(head, batch)
    gradients = tape.gradient(loss, head.trainable_variables)
    assert len(gradients) == 5
    assert {value.dtype for value in (loss, *head.variables, *gradients)} == {tf.float32}
    assert all(np.any(gradient) for gradient in gradients)


def test_what_is_forbidden_is_never_answered():
    forbidden = (np.zeros(L, bool), np.zeros([L, L], bool), np.zeros(L, bool))
    forbidden[1][:, 2] = forbidden[0][1] = forbidden[2][3] = True
    head = head_of(forbidden=forbidden)
    emissions = head(tf.random.stateless_normal([50, 9, D], [1, 2]) * 3)
    lengths = tf.fill([50], 9)
    free = viterbi(emissions, lengths, ChainScores(*head.chain))[0].numpy()
    tags, shares = (found.numpy() for found in viterbi(emissions, lengths, head.scores()))
    assert np.isfinite(shares).all()
    assert np.max(shares) <= 0
    for answers, count in ((free, 3), (tags, 0)):
        broken = [(answers[:, 1:] == 2).any(), (answers[:, 0] == 1).any(), (answers[:, -1] == 3)]
        assert sum(bool(np.any(item)) for item in broken) == count
