"""The SavedModel as a folder: alone in the world, complete, whole or not there."""

import json
import os
import pathlib
import shlex
import shutil
import unittest.mock

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

import convbert
from convbert.common.errors import InputError
from convbert.finetune.encoding import Encoded, Split
from convbert.finetune.evaluations import WEIGHTS_NAME
from convbert.serving import export as exporting
from convbert.serving.export import export
from convbert.serving.load import load_model_directory
from tests import command_support
from tests.damage_support import cut, empty
from tests.serving.support import WORDS, fine_tuned, save, task

ROOT = pathlib.Path(__file__).parent.parent.parent
DOCUMENTATION = (ROOT / "docs/serving.md").read_text(encoding="utf-8")
TEXTS = ["the city was born in 1995", "", "who? " * 40, "Café in 北京"]


def ask(folder, texts=TEXTS):
    loaded = tf.saved_model.load(str(folder))
    answers = loaded.signatures["serving_default"](tf.constant(texts))
    return {name: value.numpy() for name, value in answers.items()}


def test_the_documented_python_runs(saved):
    section = DOCUMENTATION.split("## From Python")[1].split("\n## ")[0]
    code = "\n".join(line[4:] for line in section.splitlines() if line.startswith("    "))
    names = {}
    exec(code.replace('"my_model"', repr(saved["classification"])), names)
    assert names["answers"]["label"].numpy()[0].decode() in ("bad", "fair", "good")


def assert_graph_needs_nothing_special(folder):
    """The graph calls neither Python nor XLA, which servers lack."""
    graph = saved_model_pb2.SavedModel()
    graph.ParseFromString((folder / "saved_model.pb").read_bytes())
    library = graph.meta_graphs[0].graph_def.library.function
    operations = {node.op for function in library for node in function.node_def}
    assert operations
    assert not [op for op in operations if "PyFunc" in op or "XlaLaunch" in op]
    assert not any(function.attr["_XlaMustCompile"].b for function in library)


def test_what_travels_with_it(saved):
    folder = pathlib.Path(saved["classification"])
    assert_graph_needs_nothing_special(folder)
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
        assert {key: own["dtype"] for key, own in item["outputs"].items()} == {
            key: value.dtype.name for key, value in outputs.items()
        }
        inputs = loaded.signatures[name].structured_input_signature[1]
        assert set(inputs) == set(item["inputs"])


@pytest.mark.slow  # needs an export
def test_a_score_outside_the_range_is_answered_so(tmp_path):
    """As predictions/ has it and as it is scored: not clipped."""
    own = task("regression", label_range=(1.0, 5.0))
    objective, *_ = fine_tuned(tmp_path / "run", own, num_hidden_layers=1)
    objective.head.dense.bias.assign_add([9.0])
    save(tmp_path / "run", tf.train.Checkpoint(objective=objective), WEIGHTS_NAME)
    export(load_model_directory(str(tmp_path / "run")), str(tmp_path / "saved"), "run")
    assert np.all(ask(tmp_path / "saved")["score"] > 5.0)
    shares = {"score": np.array([9.0], np.float32)}
    encoded = Encoded(np.array([0, 1]), {}, {"example": np.array([0])}, 0)
    assert own.plugin.answers(own, Split([], encoded), shares, None) == [37.0]


@pytest.mark.slow  # needs ten seconds: it exports a model
def test_nothing_is_left_of_an_export_that_fails(saved, tmp_path, monkeypatch):
    model = load_model_directory(saved.directory("classification"))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("")
    with pytest.raises(InputError):
        export(model, str(tmp_path / "full"), "run")
    with pytest.raises(InputError):
        export(model, str(tmp_path / "full" / "file"), "run")

    before = sorted(os.listdir(tmp_path))
    no_space = tf.errors.ResourceExhaustedError(None, None, "No space left on device")
    for owner, name, error in (
        (exporting, "write_json", OSError(28, "No space left on device")),
        (tf.saved_model, "save", no_space),
        (exporting, "write_json", KeyboardInterrupt()),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, unittest.mock.Mock(side_effect=error))
            with pytest.raises((InputError, KeyboardInterrupt)) as raised:
                export(model, str(tmp_path / "saved"), "run")
        assert ("No space left on device" in str(raised.value)) == isinstance(error, Exception)
        assert sorted(os.listdir(tmp_path)) == before
    (tmp_path / "empty").mkdir()
    export(model, str(tmp_path / "empty"), "run")
    assert (tmp_path / "empty" / "saved_model.pb").exists()


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("variables/variables.data-00000-of-00001", cut),
        ("variables/variables.index", cut),
        ("saved_model.pb", cut),
        ("saved_model.pb", empty),
        ("assets.extra/model.json", cut),
        ("assets.extra/model.json", lambda path: path.write_text("[" * 200_000)),
    ],
)
def test_a_saved_model_that_is_not_whole(saved, tmp_path, name, damage):
    shutil.copytree(saved["classification"], tmp_path / "saved")
    damage(tmp_path / "saved" / name)
    with pytest.raises(InputError):
        convbert.load(tmp_path / "saved")


def test_the_command(tmp_path):
    """Says what can be asked, and the question it prints can be asked."""
    fine_tuned(tmp_path / "run", task("classification", True), num_hidden_layers=1)
    command = ["export_savedmodel.py", f"--model_dir={tmp_path / 'run'}"]
    command += [f"--output_dir={tmp_path / 'saved model'}", "--max_seq_length=30"]
    done = command_support.run(*command)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert ": savedmodel, float32, classification" in lines[0]
    assert "    text, text_pair -> label, scores, probabilities, truncated" in lines
    description = json.loads((tmp_path / "saved model/assets.extra/model.json").read_text())
    assert description["max_seq_length"] == 30
    _, row, _, *asked = shlex.split(lines[-1])  # echo ROW | convbert predict ...
    answer = command_support.run("-m", *asked, text=f"{row}\n")
    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout)["prediction"] in ("bad", "fair", "good")
    again = command_support.run(*command)
    assert again.returncode == 1
    assert again.stderr.strip().endswith("should not exist yet, or be an empty folder")
