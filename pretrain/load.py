"""Loads the settings, vocabulary and networks of a model directory."""

from __future__ import annotations

import dataclasses
import functools
import os
from typing import Any

import tensorflow as tf

from convbert.common import storage
from convbert.common.errors import InputError, located
from convbert.data.manifest import read_manifest
from convbert.data.vocabulary import SWITCHES_FILE, Vocabulary, warn_of_capitals, word_starts
from convbert.model import Backbone, build_backbone, load_config
from convbert.pretrain.hparams import PretrainingHParams, parse_hparams
from convbert.training.checkpointing import latest_checkpoint, restore
from convbert.training.objective import Objective
from convbert.training.run_record import HPARAMS_FILE, TASK_FILE, read_record

DATA_OFFSET = "data_offset"  # in a run's record, unless 0


class SpecialIds(dict[str, int]):
    """The ids `cls`, `sep` and `mask` of a vocabulary, and its tokens that begin a word."""

    def __init__(self, vocabulary: Vocabulary):
        super().__init__(cls=vocabulary.cls_id, sep=vocabulary.sep_id, mask=vocabulary.mask_id)
        self._vocabulary = vocabulary

    @functools.cached_property
    def word_starts(self) -> list[bool]:
        """For each token of the vocabulary, True if it begins a word."""
        return word_starts(self._vocabulary)


def is_fine_tuned(model_dir: str) -> bool:
    """Returns True for the folder of a fine-tuning run."""
    return storage.exists(os.path.join(model_dir, TASK_FILE))


def recorded_offset(model_dir: str) -> int:
    """Returns the recorded `pretrain.continuation.data_offset` of a model directory."""
    return read_record(model_dir)["hparams"].get(DATA_OFFSET, 0)


def load_hparams(model_dir: str) -> tuple[PretrainingHParams, dict[str, Any]]:
    """Returns the hyper-parameters and run settings a model directory was trained with."""
    saved = read_record(model_dir)
    described = ("vocabulary", "data", DATA_OFFSET, "plugins")
    values = {name: value for name, value in saved["hparams"].items() if name not in described}
    with located(f"{os.path.join(model_dir, HPARAMS_FILE)}, which should be of a pre-training"):
        return parse_hparams(values), saved["run_settings"]


def data_vocabulary(data_dir: str, do_lower_case: bool | None = None) -> Vocabulary:
    """Returns the vocabulary of a data folder, checked against its records.

    `do_lower_case` is needed for folders built by ELECTRA, which do not record their casing.
    InputError if it differs in others, or the file has changed since.
    """
    vocabulary = Vocabulary.load(data_dir)
    recorded = storage.exists(os.path.join(data_dir, SWITCHES_FILE))
    if do_lower_case is None and not recorded:
        warn_of_capitals(vocabulary, data_dir, "`do_lower_case`")
    if do_lower_case not in (None, vocabulary.do_lower_case):
        if recorded:
            raise InputError(
                f"`do_lower_case` should be {vocabulary.do_lower_case}, as for building {data_dir}."
                f" Received: {do_lower_case}"
            )
        switches = {"do_lower_case": do_lower_case, "strip_accents": do_lower_case}
        vocabulary = Vocabulary.load(data_dir, **switches)
    built_with = (read_manifest(data_dir) or {}).get("vocabulary_digest", vocabulary.digest)
    if built_with != vocabulary.digest:
        raise InputError(
            f"{data_dir}: {vocabulary.file} is not the one the records were built with"
        )
    return vocabulary


def recorded_vocabulary(model_dir: str) -> Vocabulary:
    """Returns the vocabulary of a model directory; InputError if it is not the training's.

    It may have fewer tokens than the embeddings have rows if the recorded digest matches.
    """
    vocabulary, rows = Vocabulary.load(model_dir), load_config(model_dir).vocab_size
    digest = read_record(model_dir)["hparams"].get("vocabulary")
    same = vocabulary.size == rows if digest is None else vocabulary.digest == digest
    if not same or vocabulary.size > rows:
        raise InputError(
            f"{model_dir}: {vocabulary.file}, with the casing in {SWITCHES_FILE}, should be what"
            f" the model of {rows} tokens was trained with. Received: {vocabulary.size}"
        )
    return vocabulary


def stored_parts(prefix: str) -> set[str]:
    """Returns the parts of a training checkpoint: names of networks, and "optimizer".

    Omits networks that share all variables with another one, such as a generator that is the
    encoder.
    """
    names = [name.split("/") for name, _ in tf.train.list_variables(prefix)]
    networks = {name[1] for name in names if name[0] == "objective" and len(name) > 1}
    return networks | {name[0] for name in names if name[0] == "optimizer"}


def load_objective(model_dir: str, **settings: Any) -> Objective:
    """Returns the whole pre-training graph of a model directory, with its last weights.

    `settings` replace those of the objective, such as `mask_prob`. Raises InputError without a
    checkpoint, or where it lacks a network, as after a conversion.
    """
    hparams, _ = load_hparams(model_dir)
    objective = dataclasses.replace(hparams.objective, **settings)
    hparams = dataclasses.replace(hparams, objective=objective)
    special_ids = SpecialIds(recorded_vocabulary(model_dir))
    path = latest_checkpoint(model_dir)
    built = hparams.objective.build(hparams, load_config(model_dir), special_ids)
    stored = stored_parts(path)
    missing = [name for name in hparams.objective.own_networks() if name not in stored]
    if missing:
        raise InputError(f"{path}: the {' and the '.join(missing)} of the objective is not in it")
    restore(tf.train.Checkpoint(objective=built), model_dir)  # the optimizer is left out
    return built


def load_encoder(model_dir: str, step: int | None = None) -> Backbone:
    """Returns the backbone of a pre-trained or fine-tuned model directory.

    `step` is that of an earlier checkpoint. Raises InputError if there is no such checkpoint.
    """
    encoder = build_backbone(load_config(model_dir))
    restore_encoder(encoder, model_dir, step)
    return encoder


def restore_encoder(encoder: Backbone, model_dir: str, step: int | None = None) -> None:
    """Restores a backbone from a model directory; raises the errors of `load_encoder`."""
    restore(tf.train.Checkpoint(objective=tf.train.Checkpoint(encoder=encoder)), model_dir, step)
