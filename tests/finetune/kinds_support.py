"""Tasks of each kind without files, and what is answered to their examples."""

from __future__ import annotations

import json

import tensorflow as tf

from finetune.kinds.predicted import Predicted
from finetune.kinds.tagging import TaggedExample
from finetune.kinds.texts import TextExample
from finetune.task import Task
from model import build_encoder
from tests.model_support import TINY

_LAYOUT = {
    "classification": ("tsv", {"text_a": 0, "label": 1}),
    "multi_label": ("tsv", {"text_a": 0, "label": 1}),
    "regression": ("tsv", {"text_a": 0, "label": 1}),
    "tagging": ("conll", {"words": 0, "tags": 1}),
    "span": ("squad", {}),
}


def task_of(kind, *metrics, labels=("no", "yes"), **fields):
    """A declared task."""
    file_format, columns = _LAYOUT[kind]
    fields = {"label_range": (0.0, 5.0), "test": (), **fields}
    files = {"train": "a", "dev": "b"}
    labels = labels if kind in ("classification", "multi_label", "tagging") else ()
    return Task(
        "toy", kind, files, file_format, columns, metrics or ("m",), labels=labels, **fields
    )


def predicted(task, examples, answers, outputs=None, **hparams):
    """Answers to examples."""
    return Predicted(task, examples, answers, task.plugin.hparams(**hparams), outputs or {})


def texts(labels):
    """An example of each label."""
    return [TextExample(str(i), "a", None, label) for i, label in enumerate(labels)]


def sentences(*tags):
    """A sentence of each tuple of tags."""
    return [TaggedExample(str(i), ("w",) * len(t), tuple(t)) for i, t in enumerate(tags)]


def model_directory(folder, vocabulary):
    """A model directory as pre-training leaves it, of an encoder that has learned nothing."""
    folder.mkdir()
    config = TINY.replace(vocab_size=vocabulary.size, num_hidden_layers=1)
    config.save(str(folder))
    vocabulary.save(folder)
    save_encoder(folder, build_encoder(config))
    hparams = {"model_size": "convbert-tiny", "max_seq_length": 24}
    hparams["vocabulary"] = vocabulary.digest
    (folder / "hparams.json").write_text(json.dumps({"hparams": hparams}))
    return folder


def save_encoder(folder, encoder):
    """Writes an encoder's weights as pre-training does."""
    saved = tf.train.Checkpoint(objective=tf.train.Checkpoint(encoder=encoder))
    tf.train.CheckpointManager(saved, str(folder / "checkpoints"), 1).save()
