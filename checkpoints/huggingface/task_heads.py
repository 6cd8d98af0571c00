"""Fine-tuned models in Hugging Face's files: encoders with the head of a task, both directions.

transformers has a class for tags, for spans whose start and end are chosen apart, and for labels
and scores by two layers: our setting `classifier` "dense" is the head of its ConvBERT and ELECTRA,
"pooler" that of its BERT.
"""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import tensorflow as tf

from checkpoints.huggingface import config, names
from checkpoints.huggingface.source import Source
from checkpoints.slots import Slot
from data.vocabulary import Vocabulary
from errors import InputError, located
from files import read_json
from finetune import declaration
from finetune.hparams import resolve_hparams
from finetune.load import FineTuned
from finetune.objective import FineTuning
from finetune.task import Task
from model import EncoderConfig, build_encoder
from model.config import CONFIG_FILE

# Kind -> the end of the class's name.
_SEQUENCE = "ForSequenceClassification"
_CLASSES = {"classification": _SEQUENCE, "multi_label": _SEQUENCE, "regression": _SEQUENCE}
_CLASSES |= {"tagging": "ForTokenClassification", "span": "ForQuestionAnswering"}
_PROBLEMS = {
    "classification": "single_label_classification",
    "multi_label": "multi_label_classification",
}
_GENERIC = "LABEL_"  # what transformers calls labels without names
# Settings of which there is a class.
_TAGGING = {"head": "softmax"}
_SPAN = {"joint_prediction": False, "answerable_classifier": False}


def class_ending(task: Task, hparams: Any) -> str | None:
    """The class's end for a task and its settings; None where transformers has none."""
    kind = task.plugin.name
    needed = {"tagging": _TAGGING, "span": _SPAN}.get(kind, {})
    if kind == "span" and not task.version_2:
        needed = {"joint_prediction": False}
    fits = all(getattr(hparams, name) == value for name, value in needed.items())
    fits = fits and getattr(hparams, "classifier", None) != "linear"
    return _CLASSES.get(kind) if fits else None


def model_type(encoder: EncoderConfig, hparams: Any, bert: bool) -> str:
    """Hugging Face's type; `bert` where the pre-training is BERT's."""
    form = getattr(hparams, "classifier", None)
    bert = form == "pooler" or (bert and form != "dense")
    found = config.model_type_of(encoder, bert)
    if form == "pooler" and found != "bert":
        raise InputError(
            'Only Hugging Face\'s bert has a `classifier` "pooler", for self-attention and'
            f' embeddings of the width of its layers; train with "dense". Received: {found}'
        )
    return found


def slots(objective: FineTuning, task: Task, model_type: str) -> dict[str, Slot]:
    """Hugging Face's names of a head, and our variables."""
    head, kind = objective.head, task.plugin.name
    if kind == "span":
        layers = (head.start_logit, head.end_logit)
        return {
            "qa_outputs.weight": _rows(*(layer.kernel for layer in layers)),
            "qa_outputs.bias": _rows(*(layer.bias for layer in layers)),
        }
    if kind == "tagging":
        return names.layer_slots("classifier", head.dense)
    pooler = model_type == "bert"
    first = "bert.pooler.dense" if pooler else "classifier.dense"
    last = "classifier" if pooler else "classifier.out_proj"
    found = names.layer_slots(first, head.summary)
    if kind != "regression":
        return found | names.layer_slots(last, head.dense)
    low, high = task.label_range  # theirs says it in the unit of the labels
    return found | {
        f"{last}.weight": _rows(head.dense.kernel, factor=high - low),
        f"{last}.bias": _rows(head.dense.bias, factor=high - low, offset=low),
    }


def _rows(*variables: tf.Variable, **scale: float) -> Slot:
    """Variables [D, 1] or [1] that are the rows of one tensor [n, D] or [n]."""
    shape = (len(variables), *variables[0].shape[:-1])
    return Slot(variables, shape, None if len(shape) == 1 else (1, 0), **scale)


def fields(task: Task) -> dict[str, Any]:
    """What `config.json` says of a task."""
    if task.plugin.name == "regression":
        return {"problem_type": "regression", "id2label": {"0": _GENERIC + "0"}}
    if not task.labels:
        return {}
    numbers = {str(number): label for number, label in enumerate(task.labels)}
    found = {"id2label": numbers, "label2id": {label: int(n) for n, label in numbers.items()}}
    if (problem := _PROBLEMS.get(task.plugin.name)) is not None:
        found["problem_type"] = problem
    return found


def filled(source: Source, vocabulary: Vocabulary, task_path: str) -> FineTuned:
    """The encoder of a folder with the head of a task.

    Args:
        task_path: name or declaration of the task. Without labels there, those of `config.json`;
            where both name them, they are the same, in any order.
    """
    task, order = declaration.load_task(task_path), None
    if task.plugin.name not in _CLASSES:
        raise InputError(
            f"--task should be of the kind {', '.join(_CLASSES)}, of which transformers has heads."
            f" Received: {task.plugin.name}"
        )
    if task.plugin.has_labels:
        path = os.path.join(source.folder, CONFIG_FILE)
        with located(path):
            task, order = _labels(task, read_json(path))
    hparams = resolve_hparams(_settings(task, source), task, source.config)
    head = task.plugin.head(task, source.config, hparams)
    objective = FineTuning(build_encoder(source.config), head, hparams.loss_reduction)
    own = slots(objective, task, source.model_type)
    with located(f"{source.folder} should have the head of a {task.plugin.name} task for --task"):
        encoder = names.encoder_slots(objective.encoder, source.prefix)
        source.fill({**encoder, **own}, of_task=True)
    for variable in (head.dense.kernel, head.dense.bias) if order is not None else ():
        variable.assign(tf.gather(variable, order, axis=-1))
    described = {**dataclasses.asdict(hparams), "vocabulary": vocabulary.digest}
    return FineTuned(objective, task, hparams, vocabulary, {"hparams": described})


def _settings(task: Task, source: Source) -> dict[str, Any]:
    """The hyper-parameters of the head that transformers has; lengths fit the positions."""
    positions = source.config.max_position_embeddings
    values: dict[str, Any] = {"max_seq_length": positions}
    if _CLASSES[task.plugin.name] == _SEQUENCE:
        values["classifier"] = "pooler" if source.model_type == "bert" else "dense"
    elif task.plugin.name == "span":
        default = task.plugin.hparams()
        asked = max(1, min(default.max_query_length, (positions - 3) // 2))
        stride = max(1, min(default.doc_stride, (positions - 3 - asked) // 2))
        values |= {**_SPAN, "max_query_length": asked, "doc_stride": stride}
        source.notes.append(f"max_query_length {asked}, doc_stride {stride}: {positions} positions")
    return values


def _labels(task: Task, said: dict[str, Any]) -> tuple[Task, list[int] | None]:
    """The task with its labels, and their places in the file where those are others."""
    numbered = said.get("id2label") or {}
    theirs = [str(numbered[number]) for number in sorted(numbered, key=int)]
    count = len(theirs) or int(said.get("num_labels", 2))  # transformers leaves two out
    generic = not theirs or all(label.startswith(_GENERIC) for label in theirs)
    if generic and not task.labels:
        raise InputError(f"`id2label` should name the {count} labels, or --task should")
    if not task.labels:
        return dataclasses.replace(task, labels=tuple(theirs)), None
    if (len(task.labels) != count) if generic else ({*task.labels} != {*theirs}):
        raise InputError(
            f"`id2label` should be the labels of the task, {', '.join(task.labels)}. Received:"
            f" {', '.join(theirs) or count}"
        )
    return task, None if generic else [theirs.index(label) for label in task.labels]
