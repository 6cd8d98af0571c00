"""Hugging Face's files through model directories, and through the command."""

from __future__ import annotations

import json
import shutil
import subprocess

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from checkpoints import huggingface, model_directory
from checkpoints.formats import from_elsewhere
from checkpoints.model_directory import Options
from tests import command_support
from tests.huggingface_support import (
    FOLDER,
    WEIGHTS,
    V,
    added_entry,
    change_json,
    change_tensors,
    copied,
    load,
    padded_copy,
    tensors,
)
from tests.tf1_support import assert_equal_tensors

OTHER_OUTPUT = {"generator_lm_head.weight": np.zeros([V, 12], np.float32)}
UNTIED = {"tie_word_embeddings": False}


@pytest.mark.parametrize(
    ("source", "fields", "added", "named"),
    [
        # As of BertForSequenceClassification.
        ("electra", {}, ["classifier.weight", "classifier.bias"], "--task"),
        ("electra", {}, ["classifier.dense.weight", "classifier.out_proj.bias"], "--task"),
        ("electra", {}, ["qa_outputs.weight", "qa_outputs.bias"], "--task"),
        ("electra", {}, ["sequence_summary.summary.weight", "classifier.weight"], "--task"),
        ("convbert", {}, OTHER_OUTPUT, "generator_lm_head.weight"),
        ("convbert", UNTIED, OTHER_OUTPUT, "generator_predictions.dense.weight"),
        ("convbert", UNTIED, {}, "generator_lm_head.bias"),
    ],
)
def test_heads_that_are_not_taken_are_named(source, fields, added, named, tmp_path):
    """Those of tasks, and of masked language models whose embeddings are not tied."""
    folder = copied(source, tmp_path)
    shutil.rmtree(folder / "generator", ignore_errors=True)
    change_json(folder / "config.json", **fields)

    def change(held):
        held = {name: t for name, t in held.items() if not name.startswith("discriminator")}
        return held | (added if isinstance(added, dict) else dict.fromkeys(added, np.ones(3, "f")))

    change_tensors(folder, change)
    notes = from_elsewhere("huggingface", str(folder), str(tmp_path / "model"), Options())
    assert any(all(name in note for name in (*added, named)) for note in notes)
    found, expected = model_directory.load(str(tmp_path / "model")), load(source)
    assert found.objective.head is None
    assert found.config == expected.config
    weights = found.objective.encoder.weights
    for one, other in zip(weights, expected.objective.encoder.weights, strict=True):
        np.testing.assert_array_equal(one, other)


def test_parts_beside_the_encoder_are_left_out(tmp_path):
    folder = copied("convbert", tmp_path)
    change_tensors(folder, lambda held: held | {"ranker.weight": np.ones([3], np.float32)})
    read = huggingface.read(str(folder), Options())
    assert read.objective.head is not None
    assert any("ranker.weight" in note for note in read.notes)


@pytest.mark.parametrize(
    ("dtype", "said"),
    [(np.float16, "58 tensors"), (ml_dtypes.bfloat16, "58 tensors"), (np.float64, "F64")],
)
def test_other_precisions_become_float32(dtype, said, tmp_path):
    def changed(tensor):
        return tensor.astype(dtype) + dtype(1e-12)

    folder = copied("convbert", tmp_path)
    change_tensors(folder, lambda held: {k: changed(v) for k, v in held.items()})
    read = huggingface.read(str(folder), Options())
    assert any(said in note for note in read.notes)
    full = load("convbert").objective.variables
    for ours, exact in zip(read.objective.variables, full, strict=True):
        assert ours.dtype == tf.float32
        np.testing.assert_array_equal(ours, changed(exact.numpy()).astype(np.float32))


def convert(*arguments: str) -> subprocess.CompletedProcess:
    return command_support.run("-m", "checkpoints.convert", *arguments)


def test_command_both_ways(tmp_path):
    away = copied("electra", tmp_path) / "generator"
    away.rename(tmp_path / "small")
    options = [f"--input={away.parent}", f"--generator={tmp_path}/small", "--strip_accents"]
    done = convert("--source=huggingface", f"--output={tmp_path}/model", *options)
    assert done.returncode == 0, done.stderr
    assert "generator: 0.5 of the discriminator's width" in done.stdout
    assert "strip_accents True" in done.stdout
    done = convert("--target=huggingface", f"--input={tmp_path}/model", f"--output={tmp_path}/back")
    assert done.returncode == 0, done.stderr
    assert "ElectraForPreTraining, 43 tensors" in done.stdout
    for inside in ("", "generator"):
        assert_equal_tensors(
            tensors(tmp_path / "back" / inside), tensors(FOLDER / "electra" / inside)
        )


def test_nothing_is_left_of_a_failure(tmp_path):
    """The generator comes last, so everything else has been read when it turns out damaged."""
    weights = copied("electra", tmp_path) / "generator" / WEIGHTS
    weights.write_bytes(weights.read_bytes()[:-1])
    done = convert(
        "--source=huggingface", f"--input={tmp_path}/electra", f"--output={tmp_path}/model"
    )
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: {weights}: not a readable safetensors file")
    assert done.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["electra"]


@pytest.mark.slow  # needs half a minute
def test_training_continues_from_there(tmp_path):
    """Two steps at a rate of 0: every weight passes through training and comes back to the bit.

    With a padded vocabulary, and an added token in the first row of the padding.
    """
    source = padded_copy("electra", tmp_path)
    token = {str(V): added_entry("afe")}
    change_json(source / "tokenizer_config.json", added_tokens_decoder=token)
    (tmp_path / "text").mkdir()
    documents = ["\n".join(f"the cafe {i} is in un {d}" for i in range(9)) for d in range(60)]
    (tmp_path / "text" / "a.txt").write_text("\n\n".join(documents))
    hparams = {"learning_rate": 0.0, "num_warmup_steps": 1, "max_seq_length": 20}
    hparams["train_batch_size"] = 4
    model, data = f"{tmp_path}/model", f"{tmp_path}/data"
    done = convert("--source=huggingface", f"--input={source}", f"--output={model}")
    assert done.returncode == 0, done.stderr
    builder = ["build_pretraining_data.py", f"--corpus={tmp_path}/text", f"--vocab={model}"]
    trainer = ["run_pretraining.py", f"--data_dir={data}", "--model_name=more"]
    for command in (
        [*builder, f"--output_dir={data}", "--max_seq_length=20", "--heldout_fraction=0.1"],
        [
            *trainer,
            f"--continue_from={model}",
            "--additional_steps=2",
            "--do_eval",
            f"--hparams={json.dumps(hparams)}",
        ],
    ):
        done = command_support.run(*command)
        assert done.returncode == 0, done.stderr
    done = convert(
        "--target=huggingface", f"--input={data}/models/more", f"--output={tmp_path}/back"
    )
    assert done.returncode == 0, done.stderr
    assert "the step (2), the optimizer's moments" in done.stdout
    for inside in ("", "generator"):
        original = tensors(source / inside)
        for key, tensor in tensors(tmp_path / "back" / inside).items():
            np.testing.assert_array_equal(tensor, original[key], strict=True, err_msg=key)
