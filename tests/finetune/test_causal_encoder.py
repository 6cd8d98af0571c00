"""A causal encoder is fine-tuned as any other: its last token stands for the text."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from serving.load import load
from serving.signatures import signatures
from tests.model_support import random_features
from tests.serving.support import fine_tuned, task

S, LENGTHS = 9, [9, 5]


def test_predictions_do_not_depend_on_padding(tmp_path):
    objective, _, _ = fine_tuned(tmp_path, task("classification"), causal=True)
    features = {name: tf.constant(x) for name, x in random_features(2, S, LENGTHS).items()}
    (found,) = objective.head.predict(objective.encoder(features), features).values()
    for i, length in enumerate(LENGTHS):
        alone = {name: x[i : i + 1, :length] for name, x in features.items()}
        (expected,) = objective.head.predict(objective.encoder(alone), alone).values()
        np.testing.assert_allclose(found[i], expected[0], atol=1e-5)


def test_the_place_of_no_answer_is_the_last_token(tmp_path):
    objective, _, _ = fine_tuned(tmp_path, task("span"), causal=True)
    features = {name: tf.constant(x) for name, x in random_features(2, S, LENGTHS).items()}
    places, _ = objective.head._places(features)
    assert places.numpy().tolist() == [length - 1 for length in LENGTHS]


@pytest.mark.slow  # traces every signature
def test_it_is_served(tmp_path):
    """The whole text decides: its last word as well as its first."""
    fine_tuned(tmp_path, task("classification"), causal=True)
    asked = signatures(load(str(tmp_path)))
    texts = ["the city was born", "born city was born", "the city was the"]
    scores = asked["serving_default"].function(tf.constant(texts))["scores"].numpy()
    assert np.abs(scores[0] - scores[1]).max() > 1e-3
    assert np.abs(scores[0] - scores[2]).max() > 1e-3
