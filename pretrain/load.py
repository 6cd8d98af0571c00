"""From a model directory back to the networks in it; nobody repeats the architecture."""

from __future__ import annotations

import os
from typing import Any

import tensorflow as tf

import files
from data.vocabulary import Vocabulary
from errors import InputError
from model import Encoder, EncoderConfig, build_encoder
from pretrain.hparams import PretrainingHParams
from pretrain.objectives import build_objective
from training.checkpointing import HPARAMS_FILE, TASK_FILE, latest_checkpoint, restore
from training.hyperparameters import replace_checked
from training.objective import Objective

NETWORKS = ("encoder", "head", "generator", "generator_head")  # an objective's, by attribute


def special_ids(vocabulary: Vocabulary) -> dict[str, int]:
    """The ids an objective must know: `cls`, `sep`, `mask`."""
    return {"cls": vocabulary.cls_id, "sep": vocabulary.sep_id, "mask": vocabulary.mask_id}


def is_fine_tuned(model_dir: str) -> bool:
    """Whether it is the folder of a fine-tuning run, whose settings are others."""
    return os.path.exists(os.path.join(model_dir, TASK_FILE))


def load_hparams(model_dir: str) -> tuple[PretrainingHParams, dict[str, Any]]:
    """The hyper-parameters and the run settings a model directory was trained with."""
    path = os.path.join(model_dir, HPARAMS_FILE)
    if not os.path.exists(path):
        raise InputError(f"{path}: there is no such file, so this is no model directory")
    saved = files.read_json(path)
    values = {
        name: value
        for name, value in saved["hparams"].items()
        if name not in ("vocabulary", "data", "continue_optimizer")
    }
    return replace_checked(PretrainingHParams(), values), saved["run_settings"]


def stored_parts(prefix: str) -> set[str]:
    """What a checkpoint of training holds: names of the objective's networks, and "optimizer".

    A network all of whose variables are another's, as a generator that is the encoder, is not
    among them.
    """
    names = [name.split("/") for name, _ in tf.train.list_variables(prefix)]
    networks = {name[1] for name in names if name[0] == "objective" and len(name) > 1}
    return networks | {name[0] for name in names if name[0] == "optimizer"}


def needed_networks(hparams: PretrainingHParams) -> list[str]:
    """Names of the networks of the objective that have variables of their own, `encoder` first."""
    if not hparams.electra_objective or hparams.uniform_generator:
        return ["encoder", "head"]
    return [name for name in NETWORKS if name != "generator" or hparams.untied_generator]


def load_objective(model_dir: str) -> Objective:
    """The whole pre-training graph of a model directory, with its last checkpoint's weights.

    Raises:
        InputError: there is no checkpoint, or one of the networks is not in it, as after the
            conversion of a checkpoint that lacked it.
    """
    hparams, _ = load_hparams(model_dir)
    vocabulary = Vocabulary.load(model_dir)
    objective = build_objective(hparams, EncoderConfig.load(model_dir), special_ids(vocabulary))
    path = latest_checkpoint(model_dir)
    stored = stored_parts(path)
    missing = [name for name in needed_networks(hparams) if name not in stored]
    if missing:
        raise InputError(f"{path}: the {' and the '.join(missing)} of the objective is not in it")
    restore(tf.train.Checkpoint(objective=objective), model_dir)  # the optimizer is left out
    return objective


def load_encoder(model_dir: str, config: EncoderConfig | None = None) -> Encoder:
    """The pre-trained encoder of a model directory; what fine-tuning and serving start from.

    Args:
        model_dir: of run_pretraining.py or run_finetuning.py.
        config: the architecture with other dropout rates; by default that of `model_dir`.

    Raises:
        InputError: there is no checkpoint, or it holds no such encoder.
    """
    encoder = build_encoder(config or EncoderConfig.load(model_dir))
    restore(tf.train.Checkpoint(objective=tf.train.Checkpoint(encoder=encoder)), model_dir)
    return encoder


def load_vocabulary(model_dir: str, config: EncoderConfig, digest: str | None) -> Vocabulary:
    """The vocabulary of a model directory, which must be the one that the model was trained with.

    It may hold fewer tokens than the embeddings have rows, where `digest` says that it is the one:
    the rows after them are padding.

    Args:
        model_dir: the model directory.
        config: its config.json.
        digest: of the vocabulary in training, as far as hparams.json says it.

    Raises:
        InputError: another number of tokens, other tokens or another casing.
    """
    vocabulary = Vocabulary.load(model_dir)
    padded = vocabulary.size < config.vocab_size and digest == vocabulary.digest
    if vocabulary.size != config.vocab_size and not padded:
        raise InputError(
            f"{model_dir}: vocab.txt should have the {config.vocab_size} tokens of"
            f" config.json. Received: {vocabulary.size}"
        )
    if digest not in (None, vocabulary.digest):
        raise InputError(
            f"{model_dir}: vocab.txt, or its casing in tokenizer_config.json, is not what the"
            " model was trained with"
        )
    return vocabulary
