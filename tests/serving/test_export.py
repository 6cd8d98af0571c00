"""The SavedModel as a folder: as documented, complete, without this repository; the command."""

import json
import os
import pathlib
import shlex
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from convbert.serving.trusted import GRAPH_FILE
from tests import command_support
from tests.serving.conftest import TASKS
from tests.serving.support import WORDS, asked, assert_equal, fine_tuned, inputs_of, task


def test_the_documented_python_runs(saved):
    text = (command_support.ROOT / "docs/serving.md").read_text(encoding="utf-8")
    section = text.split("## From Python")[1].split("\n## ")[0]
    code = "\n".join(line[4:] for line in section.splitlines() if line.startswith("    "))
    names = {}
    exec(code.replace('"my_model"', repr(saved["classification"])), names)
    assert names["answers"]["label"].numpy()[0].decode() in ("bad", "fair", "good")


def test_what_travels_with_it(saved):
    folder = pathlib.Path(saved["classification"])
    (graph,) = saved_model_pb2.SavedModel.FromString((folder / GRAPH_FILE).read_bytes()).meta_graphs
    functions = graph.graph_def.library.function
    assert functions
    assert not any(of.attr["_XlaMustCompile"].b for of in functions)  # servers may lack XLA
    nodes = [node for of in functions for node in of.node_def]
    assert not [node.name for node in nodes if "_gradient_op_type" in node.attr]
    description = json.loads((folder / "assets.extra/model.json").read_text())
    assert description["kind"] == "classification"
    assert description["labels"] == ["bad", "fair", "good"]
    assert description["max_seq_length"] == 24
    vocabulary = description["vocabulary"]
    assert (vocabulary["do_lower_case"], vocabulary["strip_accents"]) == (True, True)
    lines = (folder / vocabulary["file"]).read_text(encoding="utf-8").split("\n")
    assert tuple(lines[:-1]) == WORDS.tokens
    assert description["encoder"]["num_hidden_layers"] == 1
    assert description["training"]["hparams"]["learning_rate"] == 3e-4
    assert description["versions"]["tensorflow"] == tf.__version__
    loaded = saved.loaded("classification")
    assert set(description["signatures"]) == set(loaded.signatures)
    for name, item in description["signatures"].items():
        outputs = loaded.signatures[name].structured_outputs
        types = {key: own["dtype"] for key, own in item["outputs"].items()}
        assert types == {key: value.dtype.name for key, value in outputs.items()}
        inputs = loaded.signatures[name].structured_input_signature[1]
        assert set(inputs) == set(item["inputs"])


def test_no_gradients(saved):
    """They would lack those of the kernels, and be wrong."""
    loaded = saved.loaded("classification")
    with tf.GradientTape() as tape:
        scores = loaded.signatures["serving_default"](text=tf.constant(["A fine film."]))["scores"]
    assert not any(of is not None for of in tape.gradient(scores, loaded.model_variables))


def test_the_command(tmp_path):
    fine_tuned(tmp_path / "run", task("classification", True), num_hidden_layers=1)
    command = ["export_savedmodel.py", f"--model_dir={tmp_path / 'run'}"]
    command += [f"--output_dir={tmp_path / 'saved model'}", "--max_seq_length=30"]
    done = command_support.run(*command)
    lines = done.stdout.splitlines()
    assert ": savedmodel, float32, classification" in lines[0]
    assert "    text, text_pair -> label, scores, probabilities, truncated" in lines
    description = json.loads((tmp_path / "saved model/assets.extra/model.json").read_text())
    assert description["max_seq_length"] == 30
    _, row, _, *asked = shlex.split(lines[-1])  # echo ROW | convbert predict ...
    answer = command_support.run("-m", *asked, text=f"{row}\n")
    assert json.loads(answer.stdout)["prediction"] in ("bad", "fair", "good")
    again = command_support.run(*command, status=1)
    assert again.stderr.strip().endswith("should not exist yet, or be an empty folder")


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
    assert_equal(found, expected, rtol=1e-5)
