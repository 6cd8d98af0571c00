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
PLACES = ("docs/serving.md", "README.md")
LENGTHS = {"max_seq_length": 48}
# What a model of random weights need not say as the documentation does.
LEARNED = ("label", "tags", "answer", "start", "end")


def bodies():
    """(file, kind of model, request, response) of every pair in the documentation."""
    found = []
    for place in PLACES:
        text = (ROOT / place).read_text(encoding="utf-8")
        for kind, request, response in re.findall(
            r"<!-- request: (\w+) -->(.*?)<!-- response: \1 -->(.*?)<!-- end -->", text, re.S
        ):
            found.append((place, kind, json.loads(request), json.loads(response)))
    return found


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Kind -> the model's signatures in the graph."""
    folder = tmp_path_factory.mktemp("rest")
    tasks = {
        "classification": task("classification", labels=("bad", "good")),
        "tagging": task("tagging", labels=("DET", "NOUN", "VERB", "PUNCT")),
        "span": task("span"),
    }
    for kind, own in tasks.items():
        fine_tuned(folder / kind, own, hparams=LENGTHS, num_hidden_layers=1)
    pretrained(folder / "pretraining")
    return {
        kind: {name: item.trace() for name, item in signatures(load(str(folder / kind))).items()}
        for kind in (*tasks, "pretraining")
    }


def tensors(request, specs):
    """The inputs of a request, by TensorFlow Serving's rules."""
    assert len({"instances", "inputs"} & set(request)) == 1
    if "inputs" in request:
        values = request["inputs"]
    else:
        rows = request["instances"]
        assert rows, "the server rejects an empty list"
        if not isinstance(rows[0], dict):
            (name,) = specs
            rows = [{name: row} for row in rows]
        assert all(set(row) == set(specs) for row in rows)
        values = {name: [row[name] for row in rows] for name in specs}
    # A list whose items differ in shape raises here, as it is rejected there.
    return {name: tf.constant(values[name], spec.dtype) for name, spec in specs.items()}


def body(outputs, in_rows):
    """The response for some outputs."""
    for name, value in outputs.items():
        assert value.dtype in (tf.string, tf.bool, tf.int32, tf.float32), name
        assert not name.endswith("_bytes"), "the server would write Base64"
    values = {name: plain(value.numpy()) for name, value in outputs.items()}
    if not in_rows:
        return {"outputs": values}
    sizes = {len(value) for value in values.values()}
    assert len(sizes) == 1, "rows need one first dimension"
    rows = [{name: value[i] for name, value in values.items()} for i in range(sizes.pop())]
    return {"predictions": rows}


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
        assert len(found) == len(documented), name
        for item, expected in zip(found, documented):
            assert_same_form(item, expected, name)
    elif not isinstance(found, float) and name not in LEARNED:
        assert found == documented, name


@pytest.mark.slow  # exports a model of every kind
@pytest.mark.parametrize(("place", "kind", "request_body", "response"), bodies())
def test_the_bodies(models, place, kind, request_body, response):
    signature = models[kind][request_body.get("signature_name", "serving_default")]
    specs = {spec.name: spec for spec in signature.structured_input_signature[0]}
    inputs = tensors(request_body, specs)
    found = body(signature(*inputs.values()), "instances" in request_body)
    assert_same_form(found, response)
    # The documented answers could be ones.
    for row, given in zip(response.get("predictions", []), request_body.get("instances", [])):
        if kind == "classification":
            assert row["label"] == ("bad", "good")[np.argmax(row["scores"])]
            shares = np.exp(row["scores"]) / np.exp(row["scores"]).sum()
            np.testing.assert_allclose(row["probabilities"], shares, atol=1e-4)
        elif kind == "span":
            assert row["answer"] == given["context"][row["start"] : row["end"]]


@pytest.mark.slow  # traces all signatures
def test_every_signature_can_be_asked_in_rows(models):
    """Every output of every signature has the batch first, also of one row and of three."""
    for traced in models.values():
        for signature in traced.values():
            for B in (1, 3):
                inputs = []
                for spec in signature.structured_input_signature[0]:
                    shape = [B, 4][: spec.shape.rank]
                    value = "a" if spec.dtype == tf.string else 1
                    inputs.append(tf.fill(shape, tf.constant(value, spec.dtype)))
                assert len(body(signature(*inputs), True)["predictions"]) == B
