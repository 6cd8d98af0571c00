"""XLNet is fine-tuned, exported and asked as any other; its heads are those of the original."""

import json

import numpy as np
import pytest
import tensorflow as tf

from finetune.hparams import resolve_hparams
from model.heads.task import HEAD_DROPOUT
from model.kernels import dropout
from model.xlnet.config import XLNetConfig
from tests import command_support
from tests.finetune.kinds_support import declared
from tests.model_support import TINY, normal
from tests.serving.support import task
from tests.xlnet_support import original_tensors, write_original

XLNET = XLNetConfig(vocab_size=31, hidden_size=16, num_attention_heads=2)


def head_of(kind, config):
    own = task(kind)
    return own.plugin.head(own, config, resolve_hparams({"max_seq_length": 24}, own, config))


@pytest.mark.parametrize("kind", ["classification", "regression", "multiple_choice"])
def test_heads_for_texts_begin_with_a_dense_layer(kind):
    """Of XLNet alone; dropout comes after it."""
    head, pooled = head_of(kind, XLNET), normal(500, 16)
    found = head(pooled)
    shapes = {tuple(w.shape) for w in head.weights}
    assert shapes == {(16, 16), (16,), (16, found.shape[1]), found.shape[1:]}
    head.summary.kernel.assign(normal(16, 16, seed=3) / 4)
    head.summary.bias.assign(normal(16, seed=4))
    summary = np.tanh(pooled @ head.summary.kernel.numpy() + head.summary.bias.numpy())
    kernel, bias = head.dense.kernel.numpy(), head.dense.bias.numpy()
    np.testing.assert_allclose(head(pooled), summary @ kernel + bias, atol=1e-5)
    seed = tf.constant([1, 2])
    dropped = dropout(tf.constant(summary), HEAD_DROPOUT, seed).numpy()
    found = head(pooled, training=True, seed=seed)
    np.testing.assert_allclose(found, dropped @ kernel + bias, atol=1e-5)
    assert np.abs(dropped - summary).max() > 0.1
    plain = head_of(kind, TINY)
    plain(pooled)
    assert len(plain.weights) == 2


@pytest.mark.slow  # needs a minute of two cores: six commands
def test_an_original_is_converted_finetuned_exported_and_asked(tmp_path):
    """With its SentencePiece model; it learns to tell first from second texts."""
    source = write_original(tmp_path / "original", original_tensors())
    model_dir, runs = tmp_path / "model", tmp_path / "runs"
    run("-m", "checkpoints.convert", source="tf1", input=source, output=model_dir)
    rows = [(low, "low") for low in ("the a b", "d of the")]
    rows += [(high, "high") for high in ("x y z", "zz yy xx")]
    lines = [json.dumps({"text": text, "label": label}) for text, label in rows]
    splits = {"train": lines * 4, "dev": lines * 4}
    own = declared(tmp_path, splits, {"text_a": "text", "label": "label"}, "jsonl")
    tuning = {"num_train_epochs": 30, "train_batch_size": 4, "learning_rate": 5e-3}
    tuning |= {"max_seq_length": 16, "layerwise_lr_decay": 0.9}
    flags = {"task": own, "output_dir": runs, "hparams": json.dumps(tuning)}
    run("run_finetuning.py", model_dir=model_dir, **flags)
    (result,) = runs.glob("*/*/trial_0/result.json")
    assert json.loads(result.read_text())["scores"]["dev"]["accuracy"] == 100.0
    for name in ("savedmodel", "litert"):
        saved, answers = tmp_path / name, tmp_path / f"{name}.jsonl"
        run("export_savedmodel.py", model_dir=result.parent, output_dir=saved, format=name)
        run("serving/predict.py", model=saved, input=tmp_path / "dev.jsonl", output=answers)
        found = [json.loads(line) for line in answers.read_text().splitlines()]
        assert [answer["prediction"] for answer in found] == [gold for _, gold in rows * 4]


def run(*script, **flags):
    arguments = [f"--{name}={value}" for name, value in flags.items()]
    done = command_support.run(*script, *arguments)
    assert done.returncode == 0, done.stderr
