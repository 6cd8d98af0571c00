"""Tagging with a CRF: settings, batches of whole sentences, answers, training, older records."""

import collections
import itertools

import numpy as np
import pytest
import tensorflow as tf

from common.errors import InputError
from finetune.batches import TrainingBatches, slots
from finetune.encoding import best_paths
from finetune.hparams import resolve_hparams
from finetune.kinds.tagging import TaggedExample, TaggingHParams, forbidden
from finetune.objective import FineTuning
from model import build_encoder
from model.heads.linear_chain import ChainScores, viterbi
from model.heads.task import TaggingHead
from tests.finetune.kinds_support import random_sequences, rejects, task_of
from tests.model_support import TINY
from tests.serving.support import WORDS, evaluated
from training.distribution import create_strategy
from training.loop import Trainer
from training.optimizer import create_optimizer

BIO = ("O", "B-A", "I-A", "B-B", "I-B")


def test_head_is_a_setting_with_constraints_of_its_own():
    task = task_of("tagging", labels=BIO)
    assert isinstance(task.plugin.head(task, TINY, TaggingHParams()), TaggingHead)
    crf = resolve_hparams({"head": "crf", "tag_constraints": "bio"}, task, TINY)
    assert task.plugin.whole_examples(crf)
    scores = task.plugin.head(task, TINY, crf).scores()
    assert tf.reduce_min(scores.transitions) < -1000 < tf.reduce_max(scores.transitions)
    for values in ({"tag_constraints": "bio"}, {"head": "lstm"}):
        with rejects(next(iter(values))):
            resolve_hparams(values, task, TINY)


@pytest.mark.parametrize(
    ("scheme", "sentence", "place"),
    [
        ("bio", "O B-A I-A B-B I-B O", None),
        ("bio", "I-A O", 0),
        ("bio", "B-A I-B", 1),
        ("bio", "O I-A", 1),
        ("bioes", "S-A B-A I-A E-A B-A E-A O", None),
        ("bioes", "B-A O", 1),
        ("bioes", "O E-A", 1),
        ("bioes", "O B-A", 2),
    ],
)
def test_schemes_forbid_what_cannot_follow(scheme, sentence, place):
    labels = BIO if scheme == "bio" else ("O", "B-A", "I-A", "E-A", "S-A")
    tags = tuple(labels.index(tag) for tag in sentence.split())
    rules = forbidden(labels, scheme)
    wrong = [rules.start[tags[0]], *(rules.transitions[i, j] for i, j in itertools.pairwise(tags))]
    wrong.append(rules.end[tags[-1]])
    assert np.flatnonzero(wrong).tolist() == ([] if place is None else [place])
    task = task_of("tagging", labels=labels)
    examples = [TaggedExample("s7", ("w",) * len(tags), tags)]
    hparams = TaggingHParams(head="crf", tag_constraints=scheme)
    if place is None:
        assert task.plugin.training_examples(task, examples, hparams) == examples
    else:
        with pytest.raises(InputError):
            task.plugin.training_examples(task, examples, hparams)


def divided(sizes):
    return random_sequences("tagging", sizes, 24)


@pytest.mark.parametrize(
    "sizes", [[1] * 30 + [2, 3, 1, 2] + [1] * 20, [3] * 11, [2, 1, 4, 4, 1], [4]]
)
def test_batches_keep_sentences_whole_and_each_epoch_has_all(sizes):
    encoded = divided(sizes)
    B, options = 8, {"max_seq_length": 24, "whole_examples": True}
    batches = TrainingBatches(encoded, B, 5, **options)
    G = slots(encoded, B)
    assert G == 4 if max(sizes) > 2 else G
    seen, steps = collections.Counter(), 0
    while steps < 400:
        for numbers in itertools.islice(batches.numbers(), 400):
            steps += 1
            assert len(numbers) == B
            for example in {encoded.sequences["example"][i] for i in numbers if i >= 0}:
                own = np.flatnonzero(encoded.sequences["example"] == example)
                places = [i for i, x in enumerate(numbers) if x == own[0]]
                for place in places:
                    assert numbers[place : place + len(own)].tolist() == own.tolist()
                    assert place // G == (place + len(own) - 1) // G  # on one device
            seen.update(i for i in numbers.tolist() if i >= 0)
    assert len(seen) == len(encoded)
    assert max(seen.values()) - min(seen.values()) <= 2  # the last epoch is not whole
    resumed = list(itertools.islice(batches.numbers(37), 5))
    np.testing.assert_array_equal(resumed, list(itertools.islice(batches.numbers(), 37, 42)))
    batch = next(iter(batches()))
    assert set(batch["weight"].numpy()) <= {0.0, 1.0}
    assert slots(divided([9]), B) == 9


def test_single_sequences_come_in_the_order_of_other_heads():
    encoded, options = divided([1] * 40), {"max_seq_length": 24}
    one, other = (
        itertools.islice(TrainingBatches(encoded, 8, 5, whole_examples=x, **options).numbers(), 20)
        for x in (False, True)
    )
    np.testing.assert_array_equal(list(one), list(other))


@pytest.mark.slow  # a training step
def test_training_learns_and_answers_are_whole_sentences():
    task = task_of("tagging", labels=("A", "B", "C"))
    hparams = resolve_hparams({"head": "crf", "max_seq_length": 24}, task, TINY)
    encoder = build_encoder(TINY.replace(num_hidden_layers=1, vocab_size=WORDS.size))
    objective = FineTuning(encoder, task.plugin.head(task, TINY, hparams))
    strategy = create_strategy("one_device")
    optimizer = create_optimizer("adam", 5e-3, 0.0, objective.trainable_variables)
    batches = TrainingBatches(
        divided([1] * 20 + [2, 3]), 8, 3, max_seq_length=24, whole_examples=True
    )
    trainer = Trainer(objective, optimizer, batches, seed=3, strategy=strategy)
    losses = [float(trainer.train(tf.constant(10))["loss"]) for _ in range(6)]
    trainer.close()
    assert losses[-1] < 0.5 * losses[0]

    words = ("the", "city", "born", "ab", "1995", "xyzab")
    draw = np.random.default_rng(0)
    examples = [
        TaggedExample(str(i), tuple(draw.choice(words, n).tolist()), None)
        for i, n in enumerate((1, 5, 60, 3))
    ]
    encoded, outputs, answers = evaluated(objective, task, examples, WORDS, hparams)
    assert max(encoded.sequences["window"]) > 1
    emissions = outputs["emissions"][encoded.tokens["tag_weight"] > 0]
    scores = ChainScores(**{name: outputs[name] for name in ChainScores._fields})
    ends = np.cumsum([0, *(len(example.words) for example in examples)])
    for answer, (start, end) in zip(answers, itertools.pairwise(ends)):
        best, _ = viterbi(emissions[None, start:end], tf.constant([int(end - start)]), scores)
        assert list(answer) == best[0].numpy().tolist()


def test_sentences_of_one_word_have_paths():
    constants = {"start": np.float32([0, 3]), "transitions": np.zeros([2, 2], np.float32)}
    constants["end"] = np.float32([0, -1])
    assert best_paths(np.zeros([2, 2], np.float32), [1, 1], constants) == [(1,), (1,)]
