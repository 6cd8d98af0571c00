"""SavedModels answer with TensorFlow and TensorFlow Text alone, in a folder without this code."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from tests.serving.conftest import TASKS
from tests.serving.support import asked, inputs_of

TEXTS = ["the city was born", "Café", "", "who? " * 9, "the 北京 in 1995", "what"]

# SavedModels and inputs -> outputs.
ANSWER = """
import json, sys
import numpy as np
import tensorflow as tf
import tensorflow_text
answers = {}
for kind, (folder, inputs) in json.load(open(sys.argv[1])).items():
    ask = tf.saved_model.load(folder).signatures["serving_default"]
    outputs = ask(**{name: tf.constant(values) for name, values in inputs.items()})
    for name, value in outputs.items():
        value = value.numpy()
        answers[f"{kind}/{name}"] = value.astype("S") if value.dtype == object else value
assert not {"model", "serving", "finetune", "data", "errors", "official"} & set(sys.modules)
np.savez(sys.argv[2], **answers)
"""


@pytest.mark.slow  # a SavedModel of every kind, and a process that loads them all
def test_without_this_repository(saved, tmp_path):
    questions, expected = {}, {}
    for kind in TASKS:
        columns = asked(inputs_of(saved[kind])["serving_default"], TEXTS)
        columns = {name: values.tolist() for name, values in columns.items()}
        questions[kind] = (saved[kind], columns)
        signature = saved.loaded(kind).signatures["serving_default"]
        for name, value in signature(**{n: tf.constant(v) for n, v in columns.items()}).items():
            expected[f"{kind}/{name}"] = value.numpy()
    (tmp_path / "asked.json").write_text(json.dumps(questions))
    (tmp_path / "empty").mkdir()
    # The last one chooses this repository's Keras; the other environment has only one.
    hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "TF_USE_LEGACY_KERAS")
    subprocess.run(
        [sys.executable, "-c", ANSWER, str(tmp_path / "asked.json"), str(tmp_path / "found.npz")],
        cwd=tmp_path / "empty",
        env={name: value for name, value in os.environ.items() if name not in hidden},
        check=True,
    )
    with np.load(tmp_path / "found.npz") as answers:
        found = dict(answers)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        if value.dtype == np.float32:
            np.testing.assert_allclose(found[name], value, rtol=0, atol=1e-5)
        else:
            np.testing.assert_array_equal(found[name], value.astype(found[name].dtype))
