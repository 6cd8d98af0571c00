"""Loads the network, task and settings of a finished fine-tuning run."""

from __future__ import annotations

import json
import os
from typing import Any, NamedTuple

import tensorflow as tf

from convbert.common.errors import InputError, located
from convbert.common.files import read_json
from convbert.common.settings import differences, field_names
from convbert.data.vocabulary import Vocabulary
from convbert.finetune import declaration
from convbert.finetune.declaration import Task
from convbert.finetune.hparams import DROPOUT, FinetuningHParams, resolve_hparams
from convbert.finetune.objective import FineTuning
from convbert.model import build_backbone, load_config
from convbert.model.config import CONFIG_FILE
from convbert.pretrain.load import recorded_vocabulary, restore
from convbert.training.run_record import TASK_FILE, read_record


class TaskModel(NamedTuple):
    """A fine-tuned model."""

    objective: FineTuning  # the encoder and the task's head, with the weights of the run
    task: Task  # with its labels
    hparams: FinetuningHParams
    vocabulary: Vocabulary
    record: dict[str, Any]  # content of `hparams.json`: settings, package versions, git commit


def load_fine_tuned(model_dir: str, **changes: Any) -> TaskModel:
    """Loads a run of run_finetuning.py, `OUTPUT_DIR/TASK/SETTING/trial_N`.

    `changes` are hyper-parameters that differ from the run's, such as `max_seq_length`. InputError
    if files do not fit together, or the checkpoint holds another network.
    """
    path = os.path.join(model_dir, TASK_FILE)
    task = declaration.parse(read_json(path), path)
    config = load_config(model_dir)
    record = read_record(model_dir)
    saved = record["hparams"]
    trained = dict(saved)  # "encoder" is the pre-trained one, before the run's dropout
    if "encoder" in saved:
        dropout = {name: saved[name] for name in DROPOUT if name in saved}
        trained["encoder"] = {**saved["encoder"], **dropout}
    now = json.loads(json.dumps({"task": task.to_json(), "encoder": config.to_json()}))
    now["task"].pop("folders", None)  # the data may move
    # Converted models have no record of them.
    for name, file in (("task", TASK_FILE), ("encoder", CONFIG_FILE)):
        if name in trained and (changed := differences(trained[name], now[name])):
            raise InputError(f"{model_dir}/{file}: differs from the run's: {'; '.join(changed)}")
    vocabulary = recorded_vocabulary(model_dir)
    values = {name: saved[name] for name in field_names(task.plugin.hparams) if name in saved}
    length, asked = changes.get("max_seq_length"), values.get("max_query_length")
    if length and asked and length < values["max_seq_length"]:
        values["max_query_length"] = min(asked, length // 2)
    with located(model_dir):
        hparams = resolve_hparams({**values, **changes}, task, config)
    encoder, head = build_backbone(config), task.plugin.head(task, config, hparams)
    objective = FineTuning(encoder, head, hparams.loss_reduction)
    restore(tf.train.Checkpoint(objective=objective), model_dir)
    return TaskModel(objective, task, hparams, vocabulary, record)
