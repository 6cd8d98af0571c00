"""Hugging Face's files through model directories, and through the command."""

from __future__ import annotations

import json
import shutil
import subprocess

import numpy as np
import pytest

from checkpoints import huggingface
from checkpoints.formats import from_elsewhere
from checkpoints.model_directory import Options
from pretrain.load import load_encoder
from tests import command_support
from tests.huggingface_support import (
    FOLDER,
    WEIGHTS,
    change_json,
    change_tensors,
    copied,
    load,
    tensors,
)


@pytest.mark.parametrize(
    "head",
    [
        ("classifier.weight", "classifier.bias"),
        ("classifier.dense.weight", "classifier.out_proj.bias"),
        ("qa_outputs.weight", "qa_outputs.bias"),
        ("sequence_summary.summary.weight", "classifier.weight"),
    ],
)
def test_of_a_fine_tuned_model_the_encoder_is_read(head, tmp_path):
    """As of BertForSequenceClassification: every tensor of its head is named, with the reason."""
    folder = copied("electra", tmp_path)
    shutil.rmtree(folder / "generator")

    def change(held):
        kept = {k: v for k, v in held.items() if not k.startswith("discriminator")}
        return kept | {name: np.ones([3], np.float32) for name in head}

    change_tensors(folder, change)
    notes = from_elsewhere("huggingface", str(folder), str(tmp_path / "model"), Options())
    assert any(", ".join(sorted(head)) in note and "--task" in note for note in notes)
    assert load_encoder(str(tmp_path / "model")).config == load("electra").config


OTHER_OUTPUT = {"generator_lm_head.weight": np.zeros([137, 12], np.float32)}


@pytest.mark.parametrize(
    ("fields", "added", "named"),
    [
        ({}, OTHER_OUTPUT, "generator_lm_head.weight"),
        ({"tie_word_embeddings": False}, OTHER_OUTPUT, "generator_predictions.dense.weight"),
        ({"tie_word_embeddings": False}, {}, "generator_lm_head.bias"),
    ],
)
def test_of_untied_embeddings_the_encoder_is_read(fields, added, named, tmp_path):
    folder = copied("convbert", tmp_path)
    change_json(folder / "config.json", **fields)
    change_tensors(folder, lambda held: held | added)
    read = huggingface.read(str(folder), Options())
    assert read.objective.head is None
    assert any(named in note for note in read.notes)
    whole = load("convbert").objective.encoder.weights
    for ours, expected in zip(read.objective.encoder.weights, whole, strict=True):
        np.testing.assert_array_equal(ours, expected)


def test_parts_beside_the_encoder_are_left_out(tmp_path):
    folder = copied("convbert", tmp_path)
    change_tensors(folder, lambda held: held | {"ranker.weight": np.ones([3], np.float32)})
    read = huggingface.read(str(folder), Options())
    assert read.objective.head is not None
    assert any("ranker.weight" in note for note in read.notes)


def test_double_precision_is_rounded(tmp_path):
    folder = copied("convbert", tmp_path)
    change_tensors(folder, lambda held: {k: v + np.float64(1e-12) for k, v in held.items()})
    read = huggingface.read(str(folder), Options())
    assert any("F64" in note for note in read.notes)
    words = read.objective.encoder.embeddings.word_embeddings
    theirs = tensors(folder)["convbert.embeddings.word_embeddings.weight"]
    np.testing.assert_array_equal(words, theirs.astype(np.float32))


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
        original = tensors(FOLDER / "electra" / inside)
        back = tensors(tmp_path / "back" / inside)
        assert set(back) == set(original)
        for key, tensor in back.items():
            np.testing.assert_array_equal(tensor, original[key], err_msg=key)


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


@pytest.mark.slow  # needs half a minute each
@pytest.mark.parametrize("kind", ["plain", "padded, with added tokens"])
def test_training_continues_from_there(kind, tmp_path):
    """Two steps at a rate of 0: every weight passes through training and comes back to the bit."""
    source = FOLDER / "electra"
    if kind != "plain":
        source = padded_with_added_tokens(copied("electra", tmp_path))
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


def padded_with_added_tokens(folder):
    """Nine rows more, the first of them an added token's; biases there that would win."""
    rows = np.random.default_rng(0).normal(size=[9, 12]).astype(np.float32)
    token = {"content": "afe", "special": False, "normalized": True}
    for part in (folder, folder / "generator"):
        change_json(part / "config.json", vocab_size=146)
        change_tensors(part, lambda held: {k: padded(v, rows) for k, v in held.items()})
    change_json(folder / "tokenizer_config.json", added_tokens_decoder={"137": token})
    return folder


def padded(tensor, rows):
    if tensor.shape[0] != 137:
        return tensor
    extra = rows if tensor.ndim == 2 else np.full(9, 100.0, np.float32)
    return np.concatenate([tensor, extra])
