"""Tagging with a CRF: settings, batches of whole sentences, answers, training."""

import collections
import itertools

import numpy as np
import pytest

from convbert.finetune.batches import TrainingBatches, slots
from convbert.finetune.encoding import best_paths
from convbert.finetune.hparams import resolve_hparams
from convbert.finetune.kinds.tagging import TaggingHParams
from convbert.model.heads.crf import CrfHead
from convbert.model.heads.task import TaggingHead
from tests.finetune.kinds_support import random_sequences, rejects, task_of
from tests.model_support import TINY


def test_head_is_a_setting():
    task = task_of("tagging", labels=("O", "B-A", "I-A"))
    assert isinstance(task.plugin.head(task, TINY, TaggingHParams()), TaggingHead)
    crf = resolve_hparams({"head": "crf"}, task, TINY)
    assert task.plugin.whole_examples(crf)
    assert isinstance(task.plugin.head(task, TINY, crf), CrfHead)
    with rejects("head"):
        resolve_hparams({"head": "lstm"}, task, TINY)


def divided(sizes):
    return random_sequences("tagging", sizes, 24)


@pytest.mark.parametrize("sizes", [[1] * 30 + [2, 3, 1, 2] + [1] * 20, [2, 1, 4, 4, 1], [4]])
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


def test_sentences_of_one_word_have_paths():
    constants = {"start": np.float32([0, 3]), "transitions": np.zeros([2, 2], np.float32)}
    constants["end"] = np.float32([0, -1])
    assert best_paths(np.zeros([2, 2], np.float32), [1, 1], constants) == [(1,), (1,)]
