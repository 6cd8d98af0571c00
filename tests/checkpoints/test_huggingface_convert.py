"""Hugging Face's files through model directories, and through the command."""

import json
import shutil
import subprocess

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from convbert.checkpoints import model_directory
from convbert.checkpoints.formats import from_elsewhere, to_elsewhere
from convbert.checkpoints.model_directory import Options
from tests import command_support
from tests import huggingface_support as hf
from tests.tf1_support import assert_equal_tensors

OTHER_OUTPUT = {"generator_lm_head.weight": np.zeros([hf.V, 12], np.float32)}
UNTIED = {"tie_word_embeddings": False}


@pytest.mark.parametrize(
    ("source", "fields", "added", "named"),
    [
        # BertForSequenceClassification's.
        ("bert", {}, ["classifier.weight", "classifier.bias"], "--task"),
        ("electra", {}, ["classifier.dense.weight", "classifier.out_proj.bias"], "--task"),
        ("electra", {}, ["qa_outputs.weight", "qa_outputs.bias"], "--task"),
        ("convbert", {}, OTHER_OUTPUT, "generator_lm_head.weight"),
        ("convbert", UNTIED, OTHER_OUTPUT, "generator_predictions.dense.weight"),
        ("convbert", UNTIED, {}, "generator_lm_head.bias"),
    ],
)
def test_heads_that_are_not_taken_are_named(source, fields, added, named, tmp_path):
    """Those of tasks, and of masked language models whose embeddings are not tied. The encoder
    alone goes back as the class without a head."""
    folder, model, back = hf.copied(source, tmp_path), str(tmp_path / "model"), tmp_path / "back"
    shutil.rmtree(folder / "generator", ignore_errors=True)
    hf.change_json(folder / "config.json", **fields)

    def change(held):
        own = ("discriminator", "cls.")
        held = {name: tensor for name, tensor in held.items() if not name.startswith(own)}
        return held | (added if isinstance(added, dict) else dict.fromkeys(added, np.ones(3, "f")))

    hf.change_tensors(folder, change)
    notes = from_elsewhere("huggingface", str(folder), model, Options())
    assert any(all(name in note for name in (*added, named)) for note in notes)
    found, expected = model_directory.load(model), hf.load(source)
    assert found.objective.head is None
    assert found.config == expected.config
    notes = to_elsewhere("huggingface", model, str(back))
    assert any("pooler" in note for note in notes) == (source == "bert")
    architecture = {"bert": "Bert", "electra": "Electra", "convbert": "ConvBert"}[source] + "Model"
    assert json.loads((back / "config.json").read_text())["architectures"] == [architecture]
    original = hf.tensors(hf.FOLDER / source)
    written = {f"{source}.{name}": tensor for name, tensor in hf.tensors(back).items()}
    assert_equal_tensors(written, {name: original[name] for name in written})


@pytest.mark.parametrize(
    ("dtype", "said"),
    [(np.float16, "58 tensors"), (ml_dtypes.bfloat16, "58 tensors"), (np.float64, "F64")],
)
def test_other_precisions_become_float32(dtype, said, tmp_path):
    def changed(tensor):
        return tensor.astype(dtype) + dtype(1e-12)

    folder = hf.copied("convbert", tmp_path)
    hf.change_tensors(folder, lambda held: {k: changed(v) for k, v in held.items()})
    found = hf.read(folder)
    assert any(said in note for note in found.notes)
    full = hf.load("convbert").objective.variables
    for ours, exact in zip(found.objective.variables, full, strict=True):
        assert ours.dtype == tf.float32
        np.testing.assert_array_equal(ours, changed(exact.numpy()).astype(np.float32))


def convert(*arguments: str) -> subprocess.CompletedProcess:
    return command_support.run("-m", "convbert.checkpoints.convert", *arguments)


def test_command_both_ways(tmp_path):
    away = hf.copied("electra", tmp_path) / "generator"
    away.rename(tmp_path / "small")
    options = [f"--input={away.parent}", f"--generator={tmp_path}/small", "--strip_accents"]
    done = convert("--source=huggingface", f"--output={tmp_path}/model", *options)
    assert "generator: 0.5 of the discriminator's width" in done.stdout
    assert "strip_accents True" in done.stdout
    done = convert("--target=huggingface", f"--input={tmp_path}/model", f"--output={tmp_path}/back")
    assert "ElectraForPreTraining, 43 tensors" in done.stdout
    for inside in ("", "generator"):
        assert_equal_tensors(
            hf.tensors(tmp_path / "back" / inside), hf.tensors(hf.FOLDER / "electra" / inside)
        )
