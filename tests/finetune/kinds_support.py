"""Tasks of each kind with and without files, examples, answers, and a model to fine-tune."""

import contextlib
import json
import pathlib

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

from convbert.common.errors import InputError
from convbert.data.vocabulary import SPECIAL_TOKENS, Vocabulary
from convbert.finetune import kinds
from convbert.finetune.declaration import Task
from convbert.finetune.encoding import Encoded
from convbert.finetune.kinds.tagging import TaggedExample
from convbert.finetune.kinds.texts import TextExample
from convbert.model import build_backbone
from tests.model_support import TINY

# Of `reviews`: words that decide, and words that do not.
GOOD, BAD = [f"good{i}" for i in range(10)], [f"bad{i}" for i in range(10)]
OTHER = [f"w{i}" for i in range(40)]
VOCABULARY = Vocabulary((*SPECIAL_TOKENS, *GOOD, *BAD, *OTHER))
REVIEW = {"text_a": "review", "label": "verdict"}
HPARAMS = {"learning_rate": 1e-2, "num_train_epochs": 2, "train_batch_size": 8}
HPARAMS |= {"max_seq_length": 24, "iterations_per_loop": 5}

_TEXT = {"text_a": 0, "label": 1}
_LAYOUT = {
    **dict.fromkeys(("classification", "multi_label", "regression"), ("tsv", _TEXT)),
    "tagging": ("conll", {"words": 0, "tags": 1}),
    "span": ("squad", {}),
    "multiple_choice": ("jsonl", {"context": "story", "options": "ends", "label": "right"}),
}


@contextlib.contextmanager
def rejects(*named):
    """Asserts that input is rejected by an error that names these."""
    with pytest.raises(InputError) as error:
        yield
    assert [part for part in named if str(part) not in str(error.value)] == []


def reviews(count, seed=0):
    """Texts of words, some of them good or bad: label, score, tags of the words."""
    draw, rows = np.random.default_rng(seed), []
    for _ in range(count):
        good = bool(draw.random() < 0.5)
        words = draw.choice(OTHER, draw.integers(1, 12)).tolist()
        words += draw.choice(GOOD if good else BAD, 4).tolist()
        words = draw.permutation(words).tolist()
        tags = ["A" if word in GOOD else "B" if word in BAD else "C" for word in words]
        rows.append((" ".join(words), "yes" if good else "no", 2.5 + good, words, tags))
    return pd.DataFrame(rows, columns=["review", "verdict", "stars", "words", "tags"])


def declared(folder, lines, columns, ending="csv", kind="classification", **fields):
    """The path of a task's declaration, beside which each split's file has these lines."""
    for split, found in lines.items():
        text = "".join(f"{line}\n" for line in found)
        (folder / f"{split}.{ending}").write_text(text, encoding="utf-8")
    files = {split: f"{split}.{ending}" for split in lines}
    path = folder / "own.json"
    path.write_text(json.dumps({"kind": kind, "files": files, "columns": columns, **fields}))
    return str(path)


def declared_reviews(folder, *counts, **fields):
    """The path of a declared task on `reviews`, so many in each split."""
    lines = {}
    for seed, (split, count) in enumerate(zip(("train", "dev", "test"), counts)):
        table = reviews(count, seed)[["verdict", "review"]]
        table["review"] = table["review"].str.replace(" ", ", ", n=1, regex=False)  # quoted
        lines[split] = table.to_csv(index=False).splitlines()
    return declared(folder, lines, REVIEW, **fields)


def task_of(kind, *metrics, labels=("no", "yes"), **fields):
    """A declared task, whose files are named by split and format."""
    fields = dict(zip(("format", "columns"), _LAYOUT[kind])) | {"test": ()} | fields
    splits = ("train", "dev", *fields["test"])
    fields = {"files": {split: f"{split}.{fields['format']}" for split in splits}, **fields}
    labels = () if kind in ("regression", "span") else labels
    scaled = {"label_range": (0.0, 5.0)} if kind == "regression" else {}
    fields = {**scaled, "labels": labels, **fields}
    return Task("toy", kind, metrics=metrics or kinds.get(kind).default_metrics[-1:], **fields)


def read_predictions(path):
    return [json.loads(line) for line in pathlib.Path(path).read_text("utf-8").splitlines()]


def texts(labels):
    return [TextExample(str(i), "a", None, label) for i, label in enumerate(labels)]


def sentences(*tags):
    return [TaggedExample(str(i), ("w",) * len(t), tuple(t)) for i, t in enumerate(tags)]


def model_directory(folder, vocabulary, **fields):
    """A model directory as pre-training leaves it, of an encoder that has learned nothing."""
    folder.mkdir()
    config = TINY.replace(vocab_size=vocabulary.size, num_hidden_layers=1, **fields)
    config.save(str(folder))
    vocabulary.save(folder)
    saved = tf.train.Checkpoint(objective=tf.train.Checkpoint(encoder=build_backbone(config)))
    tf.train.CheckpointManager(saved, str(folder / "checkpoints"), 1).save()
    hparams = {"model_size": "convbert-tiny", "max_seq_length": 24}
    hparams["vocabulary"] = vocabulary.digest
    (folder / "hparams.json").write_text(json.dumps({"hparams": hparams}))
    return folder


def random_sequences(kind, sizes, longest=40, seed=0):
    """Encoded examples of so many windows each; labels and tags can be read off the tokens."""
    draw, n = np.random.default_rng(seed), sum(sizes)
    splits = np.concatenate([[0], np.cumsum(draw.integers(4, longest, n))])
    ids = draw.integers(5, 31, splits[-1]).astype(np.int32)
    tokens = {"input_ids": ids, "segment_ids": np.zeros_like(ids)}
    columns = {"example": np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)}
    first = ids[splits[:-1]]
    if kind == "classification":
        columns["label"] = first % 3
    elif kind == "regression":
        columns["label"] = (first / 31).astype(np.float32)
    else:
        columns["window"] = np.concatenate([np.arange(size, dtype=np.int32) for size in sizes])
        tokens |= {"tags": ids % 3, "tag_weight": np.ones(len(ids), np.float32)}
        tokens["tag_weight"][splits[:-1]] = 0
    return Encoded(splits, tokens, columns, 0)
