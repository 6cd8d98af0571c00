"""Fine-tuned models in Hugging Face's files: encoders with the head of a task, both directions.

transformers has a class for tags, for spans whose start and end are chosen apart, and for labels
and scores by two layers: our setting `classifier` "dense" is the head of its ConvBERT and ELECTRA,
"pooler" that of its BERT.
"""

from __future__ import annotations

import dataclasses
import os
from typing import Any, NamedTuple

import tensorflow as tf

from checkpoints import names
from checkpoints.huggingface.config import model_type_of
from checkpoints.huggingface.reading import open_source
from checkpoints.huggingface.writing import write_model
from checkpoints.model_directory import Options
from checkpoints.slots import TRANSPOSED, Slot
from common.errors import InputError, located
from common.files import read_json
from common.settings import present
from finetune import declaration
from finetune.declaration import Task
from finetune.hparams import resolve_hparams
from finetune.load import TaskModel
from finetune.objective import FineTuning
from model import EncoderConfig, build_encoder
from model.config import CONFIG_FILE

_SEQUENCE, _TOKENS = "ForSequenceClassification", "ForTokenClassification"
_SPANS = "ForQuestionAnswering"
_OBJECTIVES_OF_BERT = ("masked_lm", "self_critic")
_GENERIC = "LABEL_"  # what transformers calls labels without names


class _Class(NamedTuple):
    """The class of transformers for a kind of task.

    Attributes:
        ending: suffix of the class name.
        problem: `problem_type` of config.json.
        settings: hyper-parameters of the only head that transformers has for the kind.
    """

    ending: str
    problem: str | None = None
    settings: dict[str, Any] = {}  # noqa: RUF012


_CLASSIFIES = "answerable_classifier"  # of version 2 alone
_CLASSES = {
    "classification": _Class(_SEQUENCE, "single_label_classification"),
    "multi_label": _Class(_SEQUENCE, "multi_label_classification"),
    "regression": _Class(_SEQUENCE, "regression"),
    "tagging": _Class(_TOKENS, settings={"head": "softmax"}),
    "span": _Class(_SPANS, settings={"joint_prediction": False, _CLASSIFIES: False}),
}


def read_fine_tuned(path: str, options: Options) -> tuple[TaskModel, list[str]]:
    """A model with the head of a task, and notes; see `checkpoints.huggingface.read`.

    `options.task` is the name or the declaration of the task. Without labels there, those of
    `config.json`; where both name them, they are the same, in any order.
    """
    source, vocabulary = open_source(path, options)
    task = declaration.load_task(present(options.task))
    if task.plugin.name not in _CLASSES:
        raise InputError(
            f"--task should be of the kind {', '.join(_CLASSES)}, of which transformers has heads."
            f" Received: {task.plugin.name}"
        )
    outputs: tuple[str, ...] = ()  # of the file, in its order
    if task.plugin.has_labels:
        described = os.path.join(source.folder, CONFIG_FILE)
        with located(described):
            outputs = _labels(task, read_json(described))
        task = dataclasses.replace(task, labels=task.labels or outputs)
    kind = _CLASSES[task.plugin.name]
    values = {"max_seq_length": source.config.max_position_embeddings, **kind.settings}
    if kind.ending == _SEQUENCE:
        values["classifier"] = "pooler" if source.model_type == "bert" else "dense"
    hparams = resolve_hparams(values, task, source.config)
    head = task.plugin.head(task, source.config, hparams)
    objective = FineTuning(build_encoder(source.config), head, hparams.loss_reduction)
    own = _slots(objective, task, source.model_type)
    with located(f"{source.folder} should have the head of a {task.plugin.name} task for --task"):
        encoder = names.huggingface_encoder(objective.encoder, source.prefix)
        source.fill({**encoder, **own}, of_task=True)
    order = [outputs.index(label) for label in task.labels]
    for variable in (head.dense.kernel, head.dense.bias) if order else ():
        variable.assign(tf.gather(variable, order, axis=-1))
    record = {"hparams": {**dataclasses.asdict(hparams), "vocabulary": vocabulary.digest}}
    return TaskModel(objective, task, hparams, vocabulary, record), source.notes


def write_fine_tuned(model: TaskModel, folder: str) -> list[str] | None:
    """Writes a fine-tuned model with its head; returns notes.

    Returns None, and writes nothing, where transformers has no such head.
    """
    config, task, hparams = model.objective.encoder.config, model.task, model.hparams
    kind, form = _CLASSES.get(task.plugin.name), getattr(hparams, "classifier", None)
    if kind is None or form == "linear" or type(config) is not EncoderConfig:
        return None
    for name, value in kind.settings.items():
        if getattr(hparams, name) != value and (task.version_2 or name != _CLASSIFIES):
            return None
    before = model.record.get("run_settings", {}).get("pretraining", {})
    bert = before.get("objective") in _OBJECTIVES_OF_BERT
    model_type = model_type_of(config, form == "pooler" or (bert and form != "dense"))
    if form == "pooler" and model_type != "bert":
        raise InputError(
            'Only Hugging Face\'s bert has a `classifier` "pooler", for self-attention and'
            f' embeddings of the width of its layers; train with "dense". Received: {model_type}'
        )
    fields: dict[str, Any] = {"problem_type": kind.problem} if kind.problem else {}
    labels = task.labels
    if labels:
        fields["id2label"] = {str(number): label for number, label in enumerate(labels)}
        fields["label2id"] = {label: number for number, label in enumerate(labels)}
    elif kind.problem:  # a score
        fields["id2label"] = {"0": _GENERIC + "0"}
    own, encoder = _slots(model.objective, task, model_type), model.objective.encoder
    return write_model(
        kind.ending, model_type, encoder, None, model.vocabulary, folder, own, fields
    )


def _slots(objective: FineTuning, task: Task, model_type: str) -> dict[str, Slot]:
    """Hugging Face's names of a head, and our variables."""
    head, ending = objective.head, _CLASSES[task.plugin.name].ending
    if ending == _SPANS:
        layers = (head.start_logit, head.end_logit)
        return {
            "qa_outputs.weight": _rows(*(layer.kernel for layer in layers)),
            "qa_outputs.bias": _rows(*(layer.bias for layer in layers)),
        }
    if ending == _TOKENS:
        return names.huggingface_layer("classifier", head.dense)
    pooler = model_type == "bert"
    last = "classifier" if pooler else "classifier.out_proj"
    slots = names.huggingface_layer(
        "bert.pooler.dense" if pooler else "classifier.dense", head.summary
    )
    slots |= names.huggingface_layer(last, head.dense)
    if not task.labels:  # a score, which theirs says in the unit of the labels
        low, high = task.label_range
        weight, bias = slots[f"{last}.weight"], slots[f"{last}.bias"]
        slots[f"{last}.weight"] = dataclasses.replace(weight, factor=high - low)
        slots[f"{last}.bias"] = dataclasses.replace(bias, factor=high - low, offset=low)
    return slots


def _rows(*variables: tf.Variable) -> Slot:
    """Variables [D, 1] or [1] that are the rows of one tensor [n, D] or [n]."""
    shape = (len(variables), *variables[0].shape[:-1])
    return Slot(variables, shape, None if len(shape) == 1 else TRANSPOSED)


def _labels(task: Task, said: dict[str, Any]) -> tuple[str, ...]:
    """The labels in the order of the file's outputs; `said` is `config.json`."""
    numbered = said.get("id2label") or {}
    theirs = tuple(str(numbered[number]) for number in sorted(numbered, key=int))
    count = len(theirs) or int(said.get("num_labels", 2))  # transformers leaves two out
    generic = all(label.startswith(_GENERIC) for label in theirs)
    if generic and not task.labels:
        raise InputError(f"`id2label` should name the {count} labels, or --task should")
    differ = len(task.labels) != count if generic else {*task.labels} != {*theirs}
    if task.labels and differ:
        raise InputError(
            f"`id2label` should be the labels of the task, {', '.join(task.labels)}. Received:"
            f" {', '.join(theirs) or count}"
        )
    return task.labels if generic else theirs
