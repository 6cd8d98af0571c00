"""Conversions to and from a model directory: the parts common to all formats."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection
from typing import Any

import tensorflow as tf

from convbert.common import files, storage
from convbert.common.errors import InputError, reason
from convbert.data.vocabulary import Vocabulary
from convbert.finetune.load import TaskModel
from convbert.model import SIZES, Backbone, BackboneConfig, EncoderConfig, load_config
from convbert.pretrain.hparams import (
    CONTINUE_FLAGS,
    PretrainingHParams,
    RunSettings,
    encoder_config,
    resolve_hparams,
)
from convbert.pretrain.load import (
    DATA_OFFSET,
    SpecialIds,
    is_fine_tuned,
    load_encoder,
    load_hparams,
    recorded_vocabulary,
    restore,
    stored_parts,
)
from convbert.training.checkpointing import latest_checkpoint, step_of
from convbert.training.objective import Objective
from convbert.training.optimizer import AdamWeightDecay
from convbert.training.run_record import (
    CHECKPOINT_FOLDER,
    TASK_FILE,
    describe_run,
    read_record,
    trained_length,
)

TASK_HEAD = "the head of a fine-tuned task, which run_finetuning.py creates anew"
OBJECTIVES_OF_BERT = ("masked_lm", "self_critic")  # whose encoders are BERTs, not ELECTRAs
# Architectures in other formats -> the tokenizers of their vocabularies.
TOKENIZERS = {
    "convbert": ("wordpiece",),
    "xlnet": ("sentencepiece",),
    "modern": ("bpe", "wordpiece"),
}


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of a conversion: overrides, and facts that the source lacks. None: not given."""

    vocab: str | None = None  # a `vocab.txt` or its folder
    do_lower_case: bool | None = None
    strip_accents: bool | None = None
    model_size: str | None = None  # if there is no `config.json`
    generator: str | None = None  # its folder, if separate
    task: str | None = None  # name or declaration of the head's task

    @property
    def switches(self) -> dict[str, bool | None]:
        """Returns arguments of `Vocabulary.load`."""
        return {"do_lower_case": self.do_lower_case, "strip_accents": self.strip_accents}


class Networks(tf.Module):
    """The networks of an objective that a source has, under the objective's names."""

    def __init__(self, encoder: Backbone, head=None, generator=None, generator_head=None):
        super().__init__(name="networks")
        self.encoder, self.head = encoder, head
        self.generator, self.generator_head = generator, generator_head


@dataclasses.dataclass
class Conversion:
    """A model between two formats."""

    config: BackboneConfig
    hparams: PretrainingHParams  # resolved
    vocabulary: Vocabulary  # of at most `config.vocab_size` tokens; the embeddings are padded
    objective: Objective | Networks  # `Networks` if the source lacks some
    optimizer: AdamWeightDecay | None = None  # with the source's moments
    step: int = 0  # of training; 0 when unknown
    notes: list[str] = dataclasses.field(default_factory=list)  # on inferred and left-out values
    trained_length: int | None = None  # `max_seq_length`; None when unknown, unlike in `hparams`
    data_offset: int = 0  # see `pretrain.continuation`


def describe_pretraining(
    config: BackboneConfig, vocabulary: Vocabulary, **values: Any
) -> PretrainingHParams:
    """Returns hyper-parameters with the encoder `config`, resolved as by `run_pretraining.py`.

    The size is the named one that differs in the fewest fields. `values` are the known fields.
    """
    wanted = dataclasses.asdict(config)
    del wanted["vocab_size"]  # the vocabulary's
    # Between equal sizes, BERT's unless the objective is replaced-token detection.
    bert = values.get("objective", "replaced_token_detection") != "replaced_token_detection"
    changes = {
        name: {k: v for k, v in wanted.items() if v != getattr(named, k)}
        for name, named in SIZES.items()
        if type(named) is type(config)
    }
    size = min(changes, key=lambda name: (len(changes[name]), name.startswith("bert") != bert))
    overrides = changes[size]
    if "hidden_size" in overrides:  # it would change other fields
        overrides = wanted
    if config.vocab_size != vocabulary.size:  # padded
        overrides["vocab_size"] = config.vocab_size
    values = {
        "model_size": size,
        "model_hparam_overrides": overrides,
        "do_lower_case": vocabulary.do_lower_case,
        "max_seq_length": min(PretrainingHParams.max_seq_length, config.max_position_embeddings),
        **values,
    }
    hparams = resolve_hparams(values, vocabulary.size)
    described = encoder_config(hparams, vocabulary.size)
    assert described == config, f"{described} should be {config}"
    return hparams


def build(
    config: BackboneConfig,
    vocabulary: Vocabulary,
    values: dict[str, Any],
    there: Collection[str],
    where: str,
) -> Conversion:
    """Builds the networks of an objective that are `there` in the source `where`, to be filled.

    `values` are known fields of the pre-training; see `describe_pretraining`.
    """
    hparams = describe_pretraining(config, vocabulary, **values)
    objective = hparams.build_objective(config, SpecialIds(vocabulary))
    objective, notes = _only(there, objective, hparams, where)
    return Conversion(config, hparams, vocabulary, objective, notes=notes)


def _only(
    there: Collection[str], objective: Objective, hparams: PretrainingHParams, where: str
) -> tuple[Objective | Networks, list[str]]:
    """Returns the objective, or those of its networks that are `there`, and notes on others."""
    missing = [name for name in hparams.objective.own_networks() if name not in there]
    if not missing:
        return objective, []
    own = {*hparams.objective.networks} - {*missing}
    networks = Networks(**{name: getattr(objective, name, None) for name in own})
    said = "the rest can be fine-tuned or trained further, with these from random weights"
    return networks, [f"not in {where}: {', '.join(missing)}; {said}"]


def load_vocabulary(options: Options, folder: str, file: str) -> Vocabulary:
    """Loads the vocabulary named by the options, or `file` of a folder."""
    path = options.vocab or os.path.join(folder, file)
    if not storage.exists(path):
        raise InputError(f"{path}: there is no such vocabulary; give its path with --vocab")
    return Vocabulary.load(path, **options.switches)


def check_vocabulary(vocabulary: Vocabulary, config: BackboneConfig, where: str) -> list[str]:
    """Returns notes on a vocabulary; InputError if models of other formats cannot have it."""
    if vocabulary.tokenizer not in (expected := TOKENIZERS[config.architecture]):
        raise InputError(
            f"{where}: the vocabulary should be of {' or '.join(expected)}, as in other formats."
            f" Received: {vocabulary.file} of {vocabulary.tokenizer}"
        )
    size, rows = vocabulary.size, config.vocab_size
    if size > rows:
        least = f"at least {size}, the number of tokens of {vocabulary.file}"
        raise InputError(f"{where}: `vocab_size` should be {least}. Received: {rows}")
    casing = f"do_lower_case {vocabulary.do_lower_case}, strip_accents {vocabulary.strip_accents}"
    notes = [f"vocabulary: {size} tokens, {casing}"]
    if size < rows:
        notes.append(
            f"padded vocabulary: the embeddings have {rows} rows for {size} tokens; the ids from"
            f" {size} on are never predicted, drawn or accepted as input"
        )
    return notes


def save(
    conversion: Conversion, folder: str, about: dict[str, Any], trained: str | None = None
) -> None:
    """Writes a model directory: `config.json`, vocabulary, `hparams.json` and a checkpoint.

    `about` describes the model's origin; the run settings record it as `converted`. `trained` is
    the model directory whose data the weights have seen.
    """
    described = {**conversion.hparams.as_json(), "vocabulary": conversion.vocabulary.digest}
    described |= {DATA_OFFSET: conversion.data_offset} if conversion.data_offset else {}
    settings = dataclasses.asdict(RunSettings())
    if trained is not None:
        before = read_record(trained)
        described |= {"data": before["hparams"]["data"]} if "data" in before["hparams"] else {}
        settings |= {k: v for k, v in before["run_settings"].items() if k not in CONTINUE_FLAGS}
    describe_run(folder, described, {**settings, "converted": about})
    conversion.config.save(folder)
    conversion.vocabulary.save(folder)
    checkpoint = _checkpoint(conversion.objective, conversion.optimizer)
    _save(checkpoint, folder, "model.ckpt", conversion.step)


def save_fine_tuned(model: TaskModel, folder: str, about: dict[str, Any]) -> None:
    """Writes the folder of a fine-tuned model, without scores; see `save`."""
    run_settings = {**model.record.get("run_settings", {}), "converted": about}
    describe_run(folder, model.record["hparams"], run_settings)
    model.objective.encoder.config.save(folder)
    model.vocabulary.save(folder)
    files.write_json(os.path.join(folder, TASK_FILE), model.task.to_json())
    _save(_checkpoint(model.objective), folder, "weights", 0)


def _checkpoint(
    networks: tf.Module, optimizer: AdamWeightDecay | None = None
) -> tf.train.Checkpoint:
    parts = {} if optimizer is None else {"optimizer": optimizer}
    return tf.train.Checkpoint(objective=networks, **parts)


def _save(checkpoint: tf.train.Checkpoint, folder: str, name: str, step: int) -> None:
    path = os.path.join(folder, CHECKPOINT_FOLDER)
    manager = tf.train.CheckpointManager(checkpoint, path, max_to_keep=None, checkpoint_name=name)
    try:
        manager.save(checkpoint_number=step)
    except tf.errors.OpError as error:
        raise InputError(f"{folder}: cannot be written ({reason(error)})") from error


def load(folder: str) -> Conversion:
    """Reads a model directory of run_pretraining.py or of a conversion.

    For a fine-tuned model, or an objective that no format supports, reads only the encoder.
    """
    path, config = latest_checkpoint(folder), load_config(folder)
    vocabulary = recorded_vocabulary(folder)
    if config.architecture not in TOKENIZERS:
        raise InputError(f"{folder}: no format supports the architecture {config.architecture}")
    check_vocabulary(vocabulary, config, folder)
    if why := _encoder_alone(folder, config):
        before = read_record(folder)["run_settings"].get("pretraining", {}).get("objective")
        values = {"objective": "masked_lm"} if before in OBJECTIVES_OF_BERT else {}
        values = {"objective": "permutation_lm"} if config.architecture == "xlnet" else values
        hparams = describe_pretraining(config, vocabulary, **values)
        networks = Networks(load_encoder(folder))
        length = trained_length(folder)
        return Conversion(config, hparams, vocabulary, networks, notes=[why], trained_length=length)
    hparams, _ = load_hparams(folder)
    stored = stored_parts(path)
    networks = hparams.build_objective(config, SpecialIds(vocabulary))
    optimizer = hparams.build_optimizer(networks)
    networks, notes = _only(stored, networks, hparams, folder)
    if "optimizer" not in stored or notes:
        optimizer = None
        notes.append(f"{folder} has no optimizer state")
    elif hparams.optimizer != "adam":
        optimizer = None
        notes.append(f"the state of the optimizer {hparams.optimizer} is left out")
    restore(_checkpoint(networks, optimizer), folder)
    step, length = step_of(path), trained_length(folder)
    return Conversion(config, hparams, vocabulary, networks, optimizer, step, notes, length)


def _encoder_alone(folder: str, config: BackboneConfig) -> str | None:
    """Returns the reason why only the encoder of a model can be converted, or None."""
    if is_fine_tuned(folder):
        return (
            "only the encoder of a fine-tuned model is converted: its task head is left out (to"
            " huggingface, those in docs/guide.md are converted, but ModernBERT's has none)"
        )
    objective = load_hparams(folder)[0].objective
    known = {*objective.networks} <= {*objective.converted}
    if known and (objective.name == "permutation_lm") == (config.architecture == "xlnet"):
        return None
    return f"only the encoder: no format supports {objective.name} of {config.architecture}"


def check_expressible(
    config: BackboneConfig, again: BackboneConfig, target: str, unsaid: Collection[str] = ()
) -> None:
    """Raises InputError, naming the fields, if another format describes another network.

    `again` is the configuration read back from the format; `unsaid` fields have no effect there.
    """
    said, wrong = dataclasses.asdict(again), []
    for name, value in dataclasses.asdict(config).items():
        if name not in unsaid and (name not in said or said[name] != value):
            expected = f"{said[name]!r}" if name in said else "left out"
            wrong.append(f"`{name}` should be {expected}. Received: {value!r}")
    if wrong:
        raise InputError(f"{target} has no such network: {'; '.join(wrong)}")


def unwritten(conversion: Conversion, *others: str) -> str:
    """Returns a note on what a format does not support: settings, moments, and `others`."""
    moments = ["the optimizer's moments"] if conversion.optimizer else []
    names = ", ".join(["settings of pre-training", *moments, *others])
    return f"left out, as the format does not support it: {names}"


def padding_notes(config: EncoderConfig) -> list[str]:
    """Returns a note if the encoder's outputs depend on padding in the other format."""
    if config.token_mixer != "mixed":
        return []
    if not config.mask_padding:
        return ["padding enters the convolution: here texts are padded to `max_seq_length`; do so"]
    said = "`mask_padding` is true here, but padding enters the convolution there: outputs are"
    return [f"{said} equal only for input without padding"]
