"""XLNet is fine-tuned, exported and asked as any other; its heads are those of the original."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tensorflow as tf

from finetune.hparams import resolve_hparams
from model.heads.task import HEAD_DROPOUT
from model.kernels import dropout
from model.xlnet.config import XLNetConfig
from tests import command_support
from tests.model_support import TINY, normal, random_features
from tests.serving.support import task
from tests.xlnet_support import original_tensors, write_original

XLNET = XLNetConfig(vocab_size=31, hidden_size=16, num_attention_heads=2)


def head_of(kind, config):
    own, hparams = task(kind), {"max_seq_length": 24}
    if kind == "span":
        hparams |= {"max_query_length": 8, "doc_stride": 6}
    return own.plugin.head(own, config, resolve_hparams(hparams, own, config))


@pytest.mark.parametrize("kind", ["classification", "regression", "multiple_choice"])
def test_heads_for_texts_begin_with_a_dense_layer(kind):
    """Of XLNet alone; dropout comes after it."""
    head, pooled = head_of(kind, XLNET), normal(500, 16)
    found = head(pooled)
    assert {tuple(w.shape) for w in head.weights} == {
        (16, 16),
        (16,),
        (16, found.shape[1]),
        found.shape[1:],
    }
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


def test_the_answer_is_in_the_second_text():
    """The tokens of XLNet's last segment, and the summary token in it, are no answers."""
    head = head_of("span", XLNET)
    features = random_features(1, 6)
    features["segment_ids"] = np.array([[0, 0, 1, 1, 1, 2]], np.int32)
    nowhere, outside = head._places(features)
    assert nowhere.numpy().tolist() == [5]
    assert (outside.numpy() == 0).tolist() == [[False, False, True, True, True, True]]
    assert outside.numpy().max() == 0
    on_the_left = {name: np.roll(value, 2, 1) for name, value in features.items()}
    on_the_left["input_mask"] = np.array([[0, 0, 1, 1, 1, 1]], np.int32)
    assert head._places(on_the_left)[0].numpy().tolist() == [5]


@pytest.mark.slow  # needs three minutes of two cores: 16 commands
def test_an_original_is_converted_finetuned_exported_and_asked(tmp_path):
    """With its SentencePiece model."""
    source = write_original(tmp_path / "original", original_tensors())
    model_dir = tmp_path / "model"
    done = command_support.run(
        *("-m", "checkpoints.convert", "--source=tf1", f"--input={source}", f"--output={model_dir}")
    )
    assert done.returncode == 0, done.stderr
    pairs = [("the a b", "x y z"), ("d of the", "zz yy xx")]
    for form in FORMS:
        assert_learns_and_answers(tmp_path, form, pairs)


# What tells first from second texts, by kind: the declaration, settings, and two rows of a pair
# with what is to be predicted.
FORMS = {
    "text": (
        {"kind": "classification", "columns": {"text_a": "text", "label": "label"}},
        {},
        lambda low, high: [({"text": low}, "low"), ({"text": high}, "high")],
    ),
    "words": (
        {"kind": "tagging", "columns": {"words": "words", "tags": "label"}},
        {"head": "crf", "tag_constraints": "bio"},
        lambda low, high: [
            ({"words": low.split()}, ["B-X", *["I-X"] * (len(low.split()) - 1)]),
            ({"words": high.split()}, ["O"] * len(high.split())),
        ],
    ),
    "options": (
        {
            "kind": "multiple_choice",
            "columns": {"context": "context", "options": "options", "label": "label"},
        },
        {"max_qa_length": 8},
        lambda low, high: [
            ({"context": "the", "options": [low, high]}, "A"),
            ({"context": "the", "options": [high, low]}, "B"),
        ],
    ),
}


def assert_learns_and_answers(folder, form, pairs):
    """Fine-tunes the `model` of a folder to tell first from second texts; asks the SavedModel."""
    declaration, settings, rows_of = FORMS[form]
    rows = [row for pair in pairs for row in rows_of(*pair)]
    lines = [json.dumps({**fields, "label": gold}) + "\n" for fields, gold in rows * 4]
    for name in ("train", "dev"):
        (folder / f"{form}.{name}.jsonl").write_text("".join(lines))
    files = {name: f"{form}.{name}.jsonl" for name in ("train", "dev")}
    (folder / f"{form}.json").write_text(json.dumps({**declaration, "files": files}))
    tuning = {"num_train_epochs": 30, "train_batch_size": 4, "learning_rate": 5e-3, **settings}
    tuning |= {"max_seq_length": 16, "layerwise_lr_decay": 0.9}
    runs = folder / f"{form}.runs"
    flags = {"model_dir": folder / "model", "task": folder / f"{form}.json", "output_dir": runs}
    run("run_finetuning.py", **flags, hparams=json.dumps(tuning))
    (result,) = runs.glob("*/*/trial_0/result.json")
    (dev,) = json.loads(result.read_text())["scores"].values()
    assert max(dev.values()) == 100.0, dev
    asked = folder / f"{form}.rows.jsonl"
    asked.write_text("".join(json.dumps(fields) + "\n" for fields, _ in rows))
    for name in ("savedmodel", "litert"):
        saved, answers = folder / f"{form}.{name}", folder / f"{form}.{name}.jsonl"
        run("export_savedmodel.py", model_dir=result.parent, output_dir=saved, format=name)
        run("serving/predict.py", model=saved, input=asked, output=answers)
        found = [json.loads(line) for line in answers.read_text().splitlines()]
        assert [answer["prediction"] for answer in found] == [gold for _, gold in rows]


def run(script, **flags):
    arguments = [f"--{name}={value}" for name, value in flags.items()]
    done = command_support.run(script, *arguments)
    assert done.returncode == 0, done.stderr
