"""The SavedModel as a folder: alone in the world, complete, whole or not there."""

import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
import sys
import unittest.mock

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from tensorflow.core.protobuf import saved_model_pb2

import convbert
from errors import InputError
from finetune.encoded import Encoded
from finetune.load import load_fine_tuned
from finetune.trial import WEIGHTS_NAME
from serving import export as exporting
from serving.export import export, size_on_disk
from serving.load import load
from signatures.tensors import Tensor, tensors_of
from tests import command_support
from tests.serving.support import WORDS, fine_tuned, save, task

pytestmark = pytest.mark.bfloat16  # most read the exports of both precisions
ROOT = pathlib.Path(__file__).parent.parent.parent
DOCUMENTATION = (ROOT / "docs/serving.md").read_text(encoding="utf-8")
TEXTS = ["the city was born in 1995", "", "who? " * 40, "Café in 北京"]


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Folder with run, float32 and mixed_bfloat16; and what both said of themselves."""
    folder = tmp_path_factory.mktemp("export")
    fine_tuned(folder / "run", task("classification"), linear_groups=2)
    said = {
        precision: export(
            load(str(folder / "run"), precision=precision), str(folder / precision), "run"
        )
        for precision in ("float32", "mixed_bfloat16")
    }
    return folder, said


def ask(folder, texts=TEXTS):
    answers = tf.saved_model.load(str(folder)).signatures["serving_default"](tf.constant(texts))
    return {name: value.numpy() for name, value in answers.items()}


def test_the_documented_python_runs(exported):
    folder, _ = exported
    section = DOCUMENTATION.split("## From Python")[1].split("\n## ")[0]
    code = "\n".join(line[4:] for line in section.splitlines() if line.startswith("    "))
    names = {}
    exec(code.replace('"my_model"', repr(str(folder / "float32"))), names)
    assert names["answers"]["label"].numpy()[0].decode() in ("bad", "fair", "good")


def test_the_graph_needs_nothing_special(exported):
    folder, _ = exported
    for precision in ("float32", "mixed_bfloat16"):
        saved = saved_model_pb2.SavedModel()
        saved.ParseFromString((folder / precision / "saved_model.pb").read_bytes())
        library = saved.meta_graphs[0].graph_def.library.function
        assert len(library) > 3
        for function in library:
            assert not function.attr["_XlaMustCompile"].b, function.signature.name
            operations = {node.op for node in function.node_def}
            assert not {op for op in operations if "PyFunc" in op or "XlaLaunch" in op}


def test_what_travels_with_it(exported):
    folder, said = exported
    description = json.loads((folder / "float32/assets.extra/model.json").read_text())
    assert description == said["float32"]
    assert description["kind"] == "classification"
    assert description["labels"] == ["bad", "fair", "good"]
    assert description["max_seq_length"] == 24
    vocabulary = description["vocabulary"]
    assert (vocabulary["do_lower_case"], vocabulary["strip_accents"]) == (True, True)
    lines = (folder / "float32" / vocabulary["file"]).read_text(encoding="utf-8").split("\n")
    assert tuple(lines[:-1]) == WORDS.tokens
    assert description["encoder"]["linear_groups"] == 2
    assert description["training"]["hparams"]["learning_rate"] == 3e-4
    assert description["versions"]["tensorflow"] == tf.__version__
    loaded = tf.saved_model.load(str(folder / "float32"))
    assert set(description["signatures"]) == set(loaded.signatures)
    for name, item in description["signatures"].items():
        outputs = loaded.signatures[name].structured_outputs
        assert {key: tensor.dtype for key, tensor in tensors_of(item, "outputs").items()} == {
            key: value.dtype.name for key, value in outputs.items()
        }
        inputs = loaded.signatures[name].structured_input_signature[1]
        assert set(inputs) == set(item["inputs"])
        for side in ("inputs", "outputs"):
            # The descriptions of models exported earlier have the text alone.
            tensors = tensors_of({side: item[side]}, side)
            assert tensors == tensors_of(item, side)
            assert {key: str(tensor) for key, tensor in tensors.items()} == item[side]


@pytest.mark.slow  # needs two exports
def test_bfloat16_is_what_the_network_computes_at_half_the_size(exported):
    folder, _ = exported
    data = "variables/variables.data-00000-of-00001"
    sizes = [(folder / name / data).stat().st_size for name in ("mixed_bfloat16", "float32")]
    assert sizes[0] < 0.6 * sizes[1]
    assert sizes[1] < size_on_disk(str(folder / "float32"))
    tf_keras.mixed_precision.set_global_policy("mixed_bfloat16")
    objective = load_fine_tuned(str(folder / "run")).objective
    served = load(str(folder / "run"), precision="mixed_bfloat16").objective
    ids = tf.constant(np.random.default_rng(0).integers(5, 99, [6, 20]), tf.int32)
    features = {"input_ids": ids, "input_mask": tf.ones_like(ids), "segment_ids": 0 * ids}
    expected, found = objective.predict(features)["logits"], served.predict(features)["logits"]
    np.testing.assert_array_equal(found, expected)  # to the bit
    dtypes = {variable.dtype for variable in served.variables}
    assert dtypes == {tf.float32, tf.bfloat16}
    full, half = (ask(folder / name) for name in ("float32", "mixed_bfloat16"))
    assert half["probabilities"].dtype == np.float32
    np.testing.assert_allclose(half["probabilities"], full["probabilities"], atol=0.03)


@pytest.mark.slow  # needs an export
def test_a_score_outside_the_range_is_answered_and_described_so(tmp_path):
    """As predictions/ has it and as it is scored: not clipped."""
    own = task("regression", label_range=(1.0, 5.0))
    objective, *_ = fine_tuned(tmp_path / "run", own, num_hidden_layers=1)
    objective.head.dense.bias.assign_add([9.0])
    save(tmp_path / "run", tf.train.Checkpoint(objective=objective), WEIGHTS_NAME)
    said = export(load(str(tmp_path / "run")), str(tmp_path / "saved"), "run")
    assert "may lie outside" in said["signatures"]["serving_default"]["outputs"]["score"]
    assert np.all(ask(tmp_path / "saved")["score"] > 5.0)
    assert "may lie outside `label_range`" in DOCUMENTATION
    shares = {"score": np.array([9.0], np.float32)}
    encoded = Encoded(np.array([0, 1]), {}, {"example": np.array([0])}, 0)
    assert own.plugin.answers(own, [], encoded, shares, None) == [37.0]


@pytest.mark.slow  # needs ten seconds: it exports a model
def test_nothing_is_left_of_an_export_that_fails(exported, tmp_path, monkeypatch):
    model = load(str(exported[0] / "run"))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("")
    with pytest.raises(InputError):
        export(model, str(tmp_path / "full"), "run")
    with pytest.raises(InputError):
        export(model, str(tmp_path / "full" / "file"), "run")

    before = sorted(os.listdir(tmp_path))
    no_space = tf.errors.ResourceExhaustedError(None, None, "No space left on device")
    for owner, name, error in (
        (exporting, "_check", OSError(28, "No space left on device")),
        (tf.saved_model, "save", no_space),
        (exporting, "_check", KeyboardInterrupt()),
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


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def edit_labels(path):
    path.write_text(path.read_text().replace('"bad"', '"mad"'))


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("variables/variables.data-00000-of-00001", cut),
        ("variables/variables.index", cut),
        ("saved_model.pb", cut),
        ("saved_model.pb", lambda path: path.write_bytes(b"")),
        ("saved_model.pb", lambda path: path.write_bytes(path.read_bytes() + b"\xa0\x06\x01")),
        ("assets.extra/model.json", edit_labels),
        ("assets.extra/model.json", cut),
        ("assets.extra/model.json", lambda path: path.write_text("[" * 200_000)),
    ],
)
def test_a_saved_model_that_is_not_whole(exported, tmp_path, name, damage):
    shutil.copytree(exported[0] / "float32", tmp_path / "saved")
    damage(tmp_path / "saved" / name)
    with pytest.raises(InputError):
        convbert.load(tmp_path / "saved")


@pytest.mark.slow  # needs an export of its own
def test_an_answer_that_changed_in_saving_is_noticed(exported):
    saved, sample = str(exported[0] / "float32"), {"text": tf.constant(["the city"])}
    answers = tf.saved_model.load(saved).signatures["serving_default"](**sample)
    exporting._check(saved, sample, answers)
    for name, value in (("scores", answers["scores"] + 1e-3), ("label", tf.constant(["?"]))):
        with pytest.raises(RuntimeError, match=f"`{name}`"):
            exporting._check(saved, sample, {**answers, name: value})


def test_the_command(tmp_path):
    """Says what can be asked, and the question it prints can be asked."""
    fine_tuned(tmp_path / "run", task("classification", True), num_hidden_layers=1)
    command = ["export_savedmodel.py", f"--model_dir={tmp_path / 'run'}"]
    command += [f"--output_dir={tmp_path / 'saved model'}", "--max_seq_length=30"]
    done = command_support.run(*command)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "MB, savedmodel, float32, classification" in lines[0]
    assert "    text, text_pair -> label, scores, probabilities, truncated" in lines
    description = json.loads((tmp_path / "saved model/assets.extra/model.json").read_text())
    assert description["max_seq_length"] == 30
    environment = {**os.environ, "PATH": f"{pathlib.Path(sys.executable).parent}:/usr/bin:/bin"}
    settings = {"cwd": ROOT, "env": environment, "capture_output": True, "text": True}
    answer = subprocess.run(lines[-1].strip(), shell=True, **settings)
    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout)["prediction"] in ("bad", "fair", "good")
    again = command_support.run(*command)
    assert again.returncode == 1
    assert again.stderr.strip().endswith("should not exist yet, or be an empty folder")


def test_descriptions_that_lie_are_noticed():
    text = {"text": Tensor("string", ("B",), "")}
    signature = exporting.Signature("", lambda text: {"length": tf.strings.length(text)}, text, {})
    length = Tensor("int32", ("B",), "")
    for wrong in ({"dtype": "int64"}, {"axes": ("B", "S")}, None):
        outputs = {} if wrong is None else {"length": dataclasses.replace(length, **wrong)}
        with pytest.raises(ValueError):
            dataclasses.replace(signature, outputs=outputs).trace()
    dataclasses.replace(signature, outputs={"length": length}).trace()
