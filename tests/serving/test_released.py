"""The models that come with the project load, answer, and have learned something."""

import collections
import random

import numpy as np
import pytest

import convbert
from convbert.data.readers.documentation import InstalledDocumentation
from convbert.examples.quickstart.word_order import labelled, split_passages
from convbert.serving.description import RELEASED

# One of the packages that they were trained on; reading all takes ten times as long.
PACKAGE, HELDOUT_FRACTION, SEED = "numpy", 0.02, 0


@pytest.fixture(scope="module")
def tiny():
    return convbert.load("tiny")


def test_they_are_small():
    files = list(RELEASED.glob("*.tflite"))
    assert {file.stem for file in files} == {"tiny", "tiny-word-order"}
    assert sum(file.stat().st_size for file in files) <= 4 * 2**20


def test_vectors_of_similar_texts_are_similar(tiny):
    texts = ["Returns the sum of all elements.", "Returns the mean of all elements."]
    texts += ["The colour of the line in the figure."]
    vectors = tiny.embed(texts)
    assert vectors.shape == (3, 128)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    assert unit[0] @ unit[1] > max(unit[0] @ unit[2], unit[1] @ unit[2])


def test_the_replaced_word_is_found(tiny):
    answer = tiny.replaced("Returns the sum of all banana of the array.")
    place = int(np.argmax(answer.probabilities))
    assert list(answer.pieces[6:9]) == ["ba", "##na", "##na"]
    assert 6 <= place < 9


def test_word_order_of_heldout_passages():
    """Of documents that the models were not trained on; half of them are disturbed."""
    corpus = InstalledDocumentation(PACKAGE)
    documents = [d for unit in corpus.units for d in corpus.documents(unit, collections.Counter())]
    passages = split_passages(documents, HELDOUT_FRACTION, SEED)["dev"]
    heldout = labelled(passages, 100, random.Random(1))
    found = convbert.load("tiny-word-order").predict([row["passage"] for row in heldout])
    right = [label == row["label"] for label, row in zip(found.label, heldout)]
    assert len(right) == 100
    assert np.mean(right) > 0.8
