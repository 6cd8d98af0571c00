"""The REST bodies in the documentation are what the signatures take and give.

Source of the format: tensorflow_serving/g3doc/api_rest.md and util/json_tensor.cc of TensorFlow
Serving.
"""

import json
import pathlib
import re

import numpy as np
import pytest
import tensorflow as tf

from serving.load import load, signatures
from tests.serving.support import fine_tuned, pretrained, task

ROOT = pathlib.Path(__file__).parent.parent.parent
TASKS = {
    "classification": task("classification", labels=("bad", "good")),
    "tagging": task("tagging"),
    "span": task("span"),
}
# What a model of random weights need not say as the documentation does.
LEARNED = ("label", "tags", "answer", "start", "end")


def bodies():
    """(kind of model, request, response) of every pair in the documentation."""
    text = (ROOT / "docs/serving.md").read_text(encoding="utf-8")
    pair = r"<!-- request: (\w+) -->(.*?)<!-- response: \1 -->(.*?)<!-- end -->"
    found = re.findall(pair, text, re.DOTALL)
    return [(kind, json.loads(request), json.loads(response)) for kind, request, response in found]


def plain(value):
    if isinstance(value, np.ndarray):
        return [plain(item) for item in value]
    return value.decode() if isinstance(value, bytes) else value.item()


def assert_same_form(found, documented, name=""):
    """The same keys, types, lengths, and values but for what a model has learned."""
    assert type(found) is type(documented), name
    if isinstance(found, dict):
        assert set(found) == set(documented)
        for key in found:
            assert_same_form(found[key], documented[key], key)
    elif isinstance(found, list):
        for item, expected in zip(found, documented, strict=True):
            assert_same_form(item, expected, name)
    elif not isinstance(found, float) and name not in LEARNED:
        assert found == documented, name


@pytest.mark.slow  # traces a model of every kind
@pytest.mark.parametrize(("kind", "request_body", "response"), bodies())
def test_the_bodies(tmp_path, kind, request_body, response):
    if kind == "pretraining":
        pretrained(tmp_path)
    else:
        fine_tuned(tmp_path, TASKS[kind], hparams={"max_seq_length": 48}, num_hidden_layers=1)
    name = request_body.get("signature_name", "serving_default")
    signature = signatures(load(str(tmp_path)))[name]
    rows = request_body.get("instances")
    if rows:  # rows that differ in shape raise below, as they are rejected there
        assert all(set(row) == set(signature.inputs) for row in rows)
        inputs = {key: [row[key] for row in rows] for key in signature.inputs}
    else:
        inputs = request_body["inputs"]
    found = signature.trace()(*(tf.constant(inputs[key]) for key in signature.inputs))
    assert not any(key.endswith("_bytes") for key in found), "the server would write Base64"
    found = {key: plain(value.numpy()) for key, value in found.items()}
    if not rows:
        assert_same_form({"outputs": found}, response)
        return
    answers = [dict(zip(found, values)) for values in zip(*found.values(), strict=True)]
    assert_same_form({"predictions": answers}, response)
    for row, given in zip(response["predictions"], rows):  # the documented answers could be ones
        if kind == "classification":
            assert row["label"] == ("bad", "good")[np.argmax(row["scores"])]
            shares = np.exp(row["scores"]) / np.exp(row["scores"]).sum()
            np.testing.assert_allclose(row["probabilities"], shares, atol=1e-4)
        elif kind == "span":
            assert row["answer"] == given["context"][row["start"] : row["end"]]
