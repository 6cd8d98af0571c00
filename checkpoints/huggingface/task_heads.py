"""Conversion from and to Hugging Face's files of encoders with the head of a task.

transformers has classes for labels, with two layers, and for tags: our `classifier` "dense" is the
head of its ConvBERT and ELECTRA, "pooler" that of its BERT.
"""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import tensorflow as tf
import tf_keras

from convbert.checkpoints import names
from convbert.checkpoints.huggingface.config import model_type_of
from convbert.checkpoints.huggingface.reading import open_source
from convbert.checkpoints.huggingface.tokenizer import read_length
from convbert.checkpoints.huggingface.writing import write_model
from convbert.checkpoints.model_directory import OBJECTIVES_OF_BERT, Options, check_vocabulary
from convbert.checkpoints.slots import Slot
from convbert.common.errors import InputError, located
from convbert.common.files import read_json
from convbert.common.settings import present, typed
from convbert.finetune import declaration
from convbert.finetune.hparams import resolve_hparams
from convbert.finetune.load import TaskModel
from convbert.finetune.objective import FineTuning
from convbert.model import EncoderConfig, build_backbone
from convbert.model.config import CONFIG_FILE
from convbert.model.heads.task import TaggingHead

_SEQUENCE, _TOKENS = "ForSequenceClassification", "ForTokenClassification"
# Kind of task -> ending of transformers' class, and `problem_type` in its config.json.
_CLASSES = {
    "classification": (_SEQUENCE, "single_label_classification"),
    "multi_label": (_SEQUENCE, "multi_label_classification"),
    "tagging": (_TOKENS, None),
}


def read_fine_tuned(path: str, options: Options) -> tuple[TaskModel, list[str]]:
    """Reads a model with a task's head; returns it and notes; see `checkpoints.huggingface.read`.

    The labels of `options.task`, if declared, must be those of `config.json`, in any order.
    """
    source, vocabulary = open_source(path, options)
    task = declaration.load_task(present(options.task))
    if task.plugin.name not in _CLASSES:
        kinds = " or ".join(_CLASSES)
        raise InputError(f"--task should be of the kind {kinds}. Received: {task.plugin.name}")
    file, problem = os.path.join(source.folder, CONFIG_FILE), _CLASSES[task.plugin.name][1]
    theirs, said = _labels(file), read_json(file).get("problem_type")
    if problem and said not in (None, problem):
        raise InputError(f"{file}: `problem_type` should be {problem}. Received: {said!r}")
    with located(source.folder):
        task = task if task.labels else dataclasses.replace(task, labels=tuple(theirs))
    if sorted(theirs) != sorted(task.labels):
        expected = f"`id2label` should be the task's labels, {', '.join(task.labels)}"
        raise InputError(f"{source.folder}: {expected}. Received: {', '.join(theirs)}")
    order = [theirs.index(label) for label in task.labels]
    longest = read_length(path, source.config) or source.config.max_position_embeddings
    values: dict[str, Any] = {"max_seq_length": longest}
    if _CLASSES[task.plugin.name][0] == _SEQUENCE:
        values["classifier"] = "pooler" if source.model_type == "bert" else "dense"
    hparams = resolve_hparams(values, task, source.config)
    head = task.plugin.head(task, source.config, hparams)
    objective = FineTuning(build_backbone(source.config), head, hparams.loss_reduction)
    with located(f"{source.folder} should have the head of a {task.plugin.name} task for --task"):
        encoder = names.huggingface_encoder(objective.encoder, source.prefix)
        source.fill({**encoder, **_slots(head, source.model_type)}, of_task=True)
    for variable in (head.dense.kernel, head.dense.bias):
        variable.assign(tf.gather(variable, order, axis=-1))
    digest = {"vocabulary": vocabulary.digest}
    record = {"hparams": {**dataclasses.asdict(hparams), **digest}}
    if source.model_type == "bert":
        record["run_settings"] = {"pretraining": {"objective": "masked_lm", **digest}}
    return TaskModel(objective, task, hparams, vocabulary, record), source.notes


def write_fine_tuned(model: TaskModel, folder: str) -> list[str] | None:
    """Writes a fine-tuned model; returns notes, or None if transformers has no such head."""
    encoder, task, hparams = model.objective.encoder, model.task, model.hparams
    form = getattr(hparams, "classifier", None)
    chained = getattr(hparams, "head", "softmax") != "softmax"
    if task.plugin.name not in _CLASSES or form == "linear" or chained:
        return None
    if type(encoder.config) is not EncoderConfig:
        return None
    check_vocabulary(model.vocabulary, encoder.config, "a fine-tuned model")
    before = model.record.get("run_settings", {}).get("pretraining", {})
    bert = before.get("objective") in OBJECTIVES_OF_BERT
    model_type = model_type_of(encoder.config, form == "pooler" or (bert and form != "dense"))
    if form == "pooler" and model_type != "bert":
        raise InputError(
            'Only Hugging Face\'s bert has a `classifier` "pooler", for self-attention and'
            f' embeddings of the width of its layers; train with "dense". Received: {model_type}'
        )
    ending, problem = _CLASSES[task.plugin.name]
    fields: dict[str, Any] = {"problem_type": problem} if problem else {}
    fields["id2label"] = {str(number): label for number, label in enumerate(task.labels)}
    fields["label2id"] = {label: number for number, label in enumerate(task.labels)}
    own = _slots(model.objective.head, model_type)
    longest, vocabulary = hparams.max_seq_length, model.vocabulary
    return write_model(ending, model_type, encoder, None, vocabulary, folder, longest, own, fields)


def _slots(head: tf_keras.layers.Layer, model_type: str) -> dict[str, Slot]:
    """Returns Hugging Face's names of a head, and our variables."""
    if isinstance(head, TaggingHead):
        return names.huggingface_layer("classifier", head.dense)
    summary, last = "classifier.dense", "classifier.out_proj"
    if model_type == "bert":
        summary, last = "bert.pooler.dense", "classifier"
    slots = names.huggingface_layer(summary, head.summary)
    return slots | names.huggingface_layer(last, head.dense)


def _labels(path: str) -> list[str]:
    """Returns the names of a head's outputs in a `config.json`."""
    default = {"0": "LABEL_0", "1": "LABEL_1"}  # which transformers does not write
    numbered = read_json(path).get("id2label") or default
    with located(path):
        numbered = typed("id2label", numbered, dict[str, Any])
        if {*numbered} != {*map(str, range(len(numbered)))}:
            raise InputError(f"`id2label` should be of the numbers from 0. Received: {numbered}")
    return [str(numbered[str(number)]) for number in range(len(numbered))]
