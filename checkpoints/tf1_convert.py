"""Original TensorFlow 1 checkpoints to a model and back: weights, optimizer's moments, step."""

from __future__ import annotations

import functools
import os

import numpy as np
import tensorflow as tf

import files
import storage
from checkpoints import tf1
from checkpoints.model_directory import (
    INCOMPLETE,
    TASK_HEAD,
    Conversion,
    Options,
    describe_pretraining,
    load_vocabulary,
    only_networks,
    padding_notes,
)
from checkpoints.slots import Slot, fill
from checkpoints.tf1_architecture import read_architecture
from checkpoints.tf1_config import (
    OriginalConfig,
    check_known,
    config_fields,
    unwritten_settings,
)
from checkpoints.tf1_file import TensorFile, find_checkpoint, write_checkpoint
from errors import InputError, located
from model import EncoderConfig
from model.config import CONFIG_FILE
from pretrain.hparams import PretrainingHParams
from pretrain.load import SpecialIds
from training.checkpointing import step_of
from training.optimizer import AdamWeightDecay
from training.stored_shapes import no_larger_than

_SCOPES = (tf1.ENCODER, tf1.GENERATOR, tf1.DISCRIMINATOR_HEAD, tf1.MASKED_LM_HEAD)
_TASK_HEADS = "task_specific/"


def read(path: str, options: Options) -> Conversion:
    """Reads an original checkpoint of ConvBERT or ELECTRA.

    Args:
        path: the checkpoint without `.index`, or its folder.
        options: where `config.json` and `vocab.txt` are, if not there; the `model_size`.

    Raises:
        InputError: no such checkpoint, one of another architecture, a damaged file, a tensor that
            is missing, has another shape or is not finite, a vocabulary of another size.
    """
    prefix, notes = find_checkpoint(path)
    file, folder = TensorFile(prefix), os.path.dirname(prefix)
    said = _read_config(options.config, folder)
    found = read_architecture(file, said, options.model_size)
    config = found.config
    words = f"{found.embeddings_scope}/embeddings/word_embeddings in {prefix}"
    vocabulary = load_vocabulary(options, folder, config.vocab_size, words)
    with located(said.path or prefix):
        hparams = describe_pretraining(config, vocabulary, **said.training, **found.objective)
        with no_larger_than(file.shapes.values(), said.path or prefix):
            objective = hparams.build_objective(config, SpecialIds(vocabulary))
        generator = _generator_config(objective)
        check_known(config, generator, hparams)
    missing = [name for name in hparams.objective.own_networks() if name not in found.networks]
    if missing:
        objective = only_networks(objective, found.networks)
    variables = tf1.objective_variables(objective, found.scope, found.embeddings_scope)
    slots = {name: Slot.of(variable) for name, variable in variables.items()}
    carried = {tf1.GLOBAL_STEP, *(f"{name}/{slot}" for name in variables for slot in tf1.SLOTS)}
    shapes = {name: shape for name, shape in file.shapes.items() if name not in carried}
    unused = fill(
        slots,
        shapes,
        lambda name: file.read(name, slots[name].shape),
        functools.partial(_left_out, found.scope),
        prefix,
    )
    if generator is not None:  # no shape shows the heads of self-attention alone
        said.check({"generator_num_attention_heads": generator.num_attention_heads}, prefix)
    step, origin = _read_step(file)
    optimizer, state = None, "left out: the optimizer's moments, as not all networks are there"
    if not missing:
        optimizer = hparams.build_optimizer(objective)
        optimizer, state = _read_moments(file, variables, optimizer)
    if optimizer is not None:
        optimizer.iterations.assign(step)
    notes += [*found.notes, *_describe(hparams, said, vocabulary)]
    if missing:
        notes.append(f"not in the checkpoint: {', '.join(missing)}; {INCOMPLETE}")
    notes += [*unused, state, f"step {step}, {origin}"]
    length = said.training.get("max_seq_length")
    return Conversion(config, hparams, vocabulary, objective, optimizer, step, notes, length)


def write(conversion: Conversion, folder: str) -> list[str]:
    """Writes `model.ckpt-STEP`, `config.json` and `vocab.txt`, as the original would have.

    Returns:
        Notes on what the original computes otherwise, and what was left out.

    Raises:
        InputError: the original has no such architecture, or the folder cannot be written.
    """
    generator = _generator_config(conversion.objective)
    fields = config_fields(conversion.config, generator, conversion.hparams)
    variables = tf1.objective_variables(conversion.objective)
    tensors = {name: variable.numpy() for name, variable in variables.items()}
    if conversion.optimizer is not None:
        for name, variable in variables.items():
            for slot, moment in zip(tf1.SLOTS, conversion.optimizer.slots(variable)):
                tensors[f"{name}/{slot}"] = moment.numpy()
    tensors[tf1.GLOBAL_STEP] = np.int64(conversion.step)
    write_checkpoint(os.path.join(folder, f"model.ckpt-{conversion.step}"), tensors)
    if conversion.trained_length is not None:
        fields["max_seq_length"] = conversion.trained_length
    files.write_json(os.path.join(folder, CONFIG_FILE), fields)
    conversion.vocabulary.save(folder)
    return [f"{len(tensors)} tensors, step {conversion.step}", *_otherwise(conversion)]


def _generator_config(objective) -> EncoderConfig | None:
    """The configuration of an objective's generator, if it is a network of its own."""
    generator = getattr(objective, "generator", None)
    return None if generator in (None, objective.encoder) else generator.config


def _otherwise(conversion: Conversion) -> list[str]:
    """What the original computes otherwise, and what it has no place for."""
    config = conversion.config
    notes = padding_notes(config)
    if config.token_mixer == "mixed" and config.head_ratio != 2:
        notes.append(f"`head_ratio` is {config.head_ratio}; the original's code works with 2 only")
    if added := [token.content for token in conversion.vocabulary.added_tokens]:
        notes.append(f"the original cuts the added tokens {', '.join(added)} of a text into pieces")
    if unwritten := unwritten_settings(conversion.hparams):
        notes.append(f"left out, as the original does not know them: {unwritten}")
    return notes


def _read_config(path: str | None, folder: str) -> OriginalConfig:
    """The `config.json` that the user names, or the one beside the checkpoint if there is one."""
    if path is not None:
        path = os.path.join(path, CONFIG_FILE) if storage.isdir(path) else path
    elif storage.exists(os.path.join(folder, CONFIG_FILE)):
        path = os.path.join(folder, CONFIG_FILE)
    return OriginalConfig.load(path) if path is not None else OriginalConfig()


def _describe(hparams: PretrainingHParams, said: OriginalConfig, vocabulary) -> list[str]:
    """What is to be said about the settings."""
    cased = "lower-cased" if vocabulary.do_lower_case else "cased"
    accents = "stripped" if vocabulary.strip_accents else "kept"
    notes = [
        f"nearest named size: {hparams.model_size}, changed in {hparams.model_hparam_overrides}",
        f"vocabulary: {vocabulary.size} tokens, {cased}, accents {accents}"
        " (--do_lower_case and --strip_accents say otherwise)",
    ]
    if said.unknown:
        notes.append(f"not used of {said.path}: {', '.join(said.unknown)}")
    return notes


def _left_out(scope: str, name: str) -> str | None:
    """Why nothing takes a tensor; None where it is of a network, which is then another one."""
    if name.startswith(_TASK_HEADS):
        return TASK_HEAD
    if scope == tf1.GENERATOR and name.startswith(f"{tf1.ENCODER}/"):
        return "a discriminator's, whose layers are not there"
    if name.split("/")[0] not in _SCOPES or name.endswith(tuple(f"/{s}" for s in tf1.SLOTS)):
        return "pre-training has no such tensors"
    return None


def _read_step(file: TensorFile) -> tuple[int, str]:
    """The number of updates made, and where it stands."""
    if tf1.GLOBAL_STEP in file.shapes:
        return file.read_step(tf1.GLOBAL_STEP), f"as {tf1.GLOBAL_STEP} says"
    origin, step = f"as there is no {tf1.GLOBAL_STEP}", step_of(file.prefix)
    return (step, f"from the name, {origin}") if step >= 0 else (0, origin)


def _read_moments(
    file: TensorFile, variables: dict[str, tf.Variable], optimizer: AdamWeightDecay
) -> tuple[AdamWeightDecay | None, str]:
    """The optimizer with the file's moments and what is to be said; None without any there."""
    moments = {
        f"{name}/{slot}": moment
        for name, variable in variables.items()
        for slot, moment in zip(tf1.SLOTS, optimizer.slots(variable))
    }
    missing = [name for name in moments if name not in file.shapes]
    if len(missing) == len(moments):
        return None, "the checkpoint holds no moments of the optimizer: it starts afresh"
    for name, moment in moments.items():
        if name not in file.shapes:
            continue
        value = file.read(name, moment.shape)
        if name.endswith(f"/{tf1.SLOTS[1]}") and value.min() < 0:
            raise InputError(
                f"{file.prefix}: {name}, a mean of squares, should be at least 0."
                f" Received: {value.min():g}"
            )
        moment.assign(value)
    if missing:
        return optimizer, f"moments not in the checkpoint are zero: {', '.join(missing)}"
    return optimizer, "the optimizer's moments are carried"
