"""Original TensorFlow 1 checkpoints to a model and back: weights, optimizer's moments, step."""

from __future__ import annotations

import os
from collections.abc import Collection

import numpy as np
import tensorflow as tf

import files
from checkpoints import tf1
from checkpoints.model_directory import (
    INCOMPLETE,
    TASK_HEAD,
    Conversion,
    Options,
    check_vocabulary,
    describe_pretraining,
    load_vocabulary,
    only_networks,
    padding_notes,
)
from checkpoints.slots import Slot, fill
from checkpoints.tf1_config import (
    OriginalConfig,
    check_known,
    config_fields,
    read_architecture,
    unwritten_settings,
)
from checkpoints.tf1_file import GLOBAL_STEP, TensorFile, find_checkpoint, write_checkpoint
from data.vocabulary import VOCABULARY_FILE
from errors import InputError, located
from model import EncoderConfig
from model.config import CONFIG_FILE
from pretrain.load import SpecialIds
from training.optimizer import AdamWeightDecay
from training.stored_shapes import no_larger_than

_SCOPES = (tf1.ENCODER, tf1.GENERATOR, tf1.DISCRIMINATOR_HEAD, tf1.MASKED_LM_HEAD)
_MOMENTS = tuple(f"/{slot}" for slot in tf1.SLOTS)


def read(path: str, options: Options) -> Conversion:
    """Reads an original checkpoint of ConvBERT or ELECTRA.

    Args:
        path: the checkpoint without `.index`, or its folder.
        options: where `config.json` and `vocab.txt` are, if not there; the `model_size`.
    """
    prefix, notes = find_checkpoint(path)
    file, folder = TensorFile(prefix), os.path.dirname(prefix)
    said = OriginalConfig.find(folder, options.config)
    vocabulary = load_vocabulary(options, folder, VOCABULARY_FILE)
    found = read_architecture(file, said, vocabulary.size, options.model_size)
    config = found.config
    with located(said.path or prefix):
        notes += check_vocabulary(vocabulary, config, prefix)
        hparams = describe_pretraining(config, vocabulary, **said.training, **found.objective)
        with no_larger_than(file.shapes.values(), prefix):
            objective = hparams.build_objective(config, SpecialIds(vocabulary))
        generator = _generator_config(objective)
        check_known(config, generator, hparams)
    optimizer, moments = None, {}
    missing = [name for name in hparams.objective.own_networks() if name not in found.networks]
    if not missing:
        optimizer = hparams.build_optimizer(objective)
    else:
        objective = only_networks(objective, found.networks)
        notes.append(f"not in the checkpoint: {', '.join(missing)}; {INCOMPLETE}")
        notes.append("left out: the optimizer's moments, as not all networks are there")
    variables = tf1.objective_variables(objective, found.scope, found.embeddings_scope)
    if optimizer is not None:
        moments, note = _stored_moments(file, _moments(variables, optimizer))
        optimizer = optimizer if moments else None
        notes.append(note)
    slots = {name: Slot.of(variable) for name, variable in {**variables, **moments}.items()}
    notes += fill(slots, file, lambda name: _left_out(name, found.scope, variables))
    for name, moment in moments.items():
        if name.endswith(_MOMENTS[1]) and np.min(moment) < 0:
            raise InputError(f"{prefix}: {name}, a mean of squares, should be at least 0")
    if generator is not None:  # no shape shows the heads of self-attention alone
        said.check({"generator_num_attention_heads": generator.num_attention_heads}, prefix)
    step, note = file.step()
    if optimizer is not None:
        optimizer.iterations.assign(step)
    size, overrides = hparams.model_size, hparams.model_hparam_overrides
    notes += [f"nearest named size: {size}, changed in {overrides}", note]
    if found.scope == tf1.GENERATOR:
        notes.append("a generator without a discriminator: a masked language model here")
    if said.unknown:
        notes.append(f"not used of {said.path}: {', '.join(said.unknown)}")
    length = said.training.get("max_seq_length")
    return Conversion(config, hparams, vocabulary, objective, optimizer, step, notes, length)


def write(conversion: Conversion, folder: str) -> list[str]:
    """Writes `model.ckpt-STEP`, `config.json` and `vocab.txt`, as the original would have.

    Returns notes on what the original computes otherwise, and what was left out.
    """
    config, step = conversion.config, conversion.step
    generator = _generator_config(conversion.objective)
    fields = config_fields(config, generator, conversion.hparams)
    variables = tf1.objective_variables(conversion.objective)
    if conversion.optimizer is not None:
        variables |= _moments(variables, conversion.optimizer)
    tensors = {name: variable.numpy() for name, variable in variables.items()}
    tensors[GLOBAL_STEP] = np.int64(step)
    write_checkpoint(os.path.join(folder, f"model.ckpt-{step}"), tensors)
    if conversion.trained_length is not None:
        fields["max_seq_length"] = conversion.trained_length
    files.write_json(os.path.join(folder, CONFIG_FILE), fields)
    conversion.vocabulary.save(folder)
    notes = [f"{len(tensors)} tensors, step {step}", *padding_notes(config)]
    if config.token_mixer == "mixed" and config.head_ratio != 2:
        notes.append(f"`head_ratio` is {config.head_ratio}; the original's code works with 2 only")
    if added := [token.content for token in conversion.vocabulary.added_tokens]:
        notes.append(f"the original cuts the added tokens {', '.join(added)} of a text into pieces")
    if unwritten := unwritten_settings(conversion.hparams):
        notes.append(f"left out, as the original does not know them: {unwritten}")
    return notes


def _generator_config(objective) -> EncoderConfig | None:
    """The configuration of an objective's generator, if it is a network of its own."""
    generator = getattr(objective, "generator", None)
    return None if generator in (None, objective.encoder) else generator.config


def _moments(
    variables: dict[str, tf.Variable], optimizer: AdamWeightDecay
) -> dict[str, tf.Variable]:
    """The optimizer's moments under the original's names."""
    return {
        name + ending: moment
        for name, variable in variables.items()
        for ending, moment in zip(_MOMENTS, optimizer.slots(variable))
    }


def _stored_moments(
    file: TensorFile, moments: dict[str, tf.Variable]
) -> tuple[dict[str, tf.Variable], str]:
    """Those moments that a file holds, and a note."""
    stored = {name: moment for name, moment in moments.items() if name in file.shapes}
    if not stored:
        return {}, "the checkpoint holds no moments of the optimizer: it starts afresh"
    if missing := [name for name in moments if name not in stored]:
        return stored, f"moments not in the checkpoint are zero: {', '.join(missing)}"
    return stored, "the optimizer's moments are carried"


def _left_out(name: str, scope: str, variables: Collection[str]) -> str | None:
    """See `fill`; None for a tensor of a network, which is then another one."""
    if name.startswith("task_specific/"):
        return TASK_HEAD
    if name == GLOBAL_STEP or (name.endswith(_MOMENTS) and os.path.dirname(name) in variables):
        return ""
    if scope == tf1.GENERATOR and name.startswith(f"{tf1.ENCODER}/"):
        return "a discriminator's, whose layers are not there"
    if name.split("/")[0] not in _SCOPES or name.endswith(_MOMENTS):
        return "pre-training has no such tensors"
    return None
