"""Writes a larger model that begins with the weights of a smaller one, tiled from the centre.

    convbert enlarge --input runs/models/small --model_size ettin-68m --output runs/models/start
    convbert pretrain --continue_from runs/models/start --additional_steps 100000 ...

Along every axis, and along the layers, index i of n becomes index (i - (N - n) // 2) mod n of N, as
ModernBERT-large begins with ModernBERT-base (arXiv 2412.13663, section 2.1; Rae et al. 2021). Both
have one architecture and one vocabulary. The output is written atomically.
Exit status 0: done; 1: an error; 130: stopped by Ctrl-C; 129, 143 (SIGHUP, SIGTERM): run it again.
"""

from __future__ import annotations

import convbert.common.legacy_keras  # noqa: F401  TensorFlow reads the environment when it is imported

# isort: split

import re
from typing import Any

import numpy as np
import tensorflow as tf
from absl import app, flags

from convbert.checkpoints.model_directory import Conversion, save
from convbert.common import storage
from convbert.common.errors import InputError, main_with_clear_errors
from convbert.common.files import check_new_folder, new_folder, parse_json
from convbert.data.vocabulary import Vocabulary
from convbert.model import load_config
from convbert.pretrain.hparams import encoder_config, resolve_hparams
from convbert.pretrain.load import SpecialIds, load_hparams, load_objective

FLAGS = flags.FLAGS
flags.DEFINE_string("input", None, "Model directory of a pre-training.")
flags.DEFINE_string("output", None, "Model directory to create; it must be empty or not exist.")
flags.DEFINE_string("model_size", None, "Named size of the larger encoder.")
flags.DEFINE_string("overrides", "{}", "JSON of its fields that differ from the named size.")

# Kernels whose outputs are several parts that are used apart.
_PARTS = {"modern": {"intermediate/kernel:0": 2, "mixer/projection/kernel:0": 3}}
_LAYER = re.compile(r"(?<=/layer_)\d+(?=/)")


def main(_: list[str]) -> None:
    """Enlarges as the flags say."""
    check_new_folder(FLAGS.output)
    overrides = parse_json(FLAGS.overrides, "--overrides")
    notes = enlarge(FLAGS.input, FLAGS.model_size, overrides, FLAGS.output)
    print(*notes, f"written: {FLAGS.output}", sep="\n")


def enlarge(model_dir: str, size: str, overrides: dict[str, Any], output: str) -> list[str]:
    """Writes the larger model; returns notes on variables that keep their random weights.

    InputError if it is smaller somewhere, or of another architecture.
    """
    small, vocabulary = load_objective(model_dir), Vocabulary.load(model_dir)
    given = {"model_size": size, "model_hparam_overrides": overrides}
    before = load_hparams(model_dir)[0].as_json()
    hparams = resolve_hparams({**before, **given}, vocabulary.size)
    config, of_small = encoder_config(hparams, vocabulary.size), load_config(model_dir)
    if type(config) is not type(of_small):
        raise InputError(
            f"--model_size should be of the architecture {of_small.architecture}. Received: {size}"
        )
    large = hparams.build_objective(config, SpecialIds(vocabulary))
    parts, new = _PARTS.get(config.architecture, {}), []
    for name in hparams.objective.networks:
        if (source := getattr(small, name, None)) is not None:
            new += _fill(getattr(large, name), source, parts)
    notes = [f"from random weights: {', '.join(dict.fromkeys(new))}"] if new else []
    about = {"source": "enlarge", "input": storage.abspath(model_dir)}
    with new_folder(output) as folder:
        save(Conversion(config, hparams, vocabulary, large, notes=notes), folder, about)
    return notes


def tiled(value: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Returns an array of a larger shape: the smaller one repeated, with a copy at the centre."""
    for axis, (size, larger) in enumerate(zip(value.shape, shape, strict=True)):
        value = np.take(value, _places(size, larger), axis)
    return value


def _places(size: int, larger: int) -> np.ndarray:
    return (np.arange(larger) - (larger - size) // 2) % size


def _fill(large: tf.Module, small: tf.Module, parts: dict[str, int]) -> list[str]:
    """Assigns the variables of a network; returns the names of those that the smaller lacks."""
    sources = {variable.name: variable for variable in small.variables}
    depths = [_depth(network) for network in (small, large)]
    layers, new = _places(*depths) if depths[0] else [], []
    for variable in large.variables:
        name = _LAYER.sub(lambda found: str(layers[int(found[0])]), variable.name)
        source = sources.get(name)
        if source is None:
            new.append(variable.name)
            continue
        if any(larger < size for size, larger in zip(source.shape, variable.shape)):
            raise InputError(
                f"--model_size should be larger: {variable.name} has the shape"
                f" {variable.shape.as_list()}, that of the smaller model {source.shape.as_list()}"
            )
        count = next((n for ending, n in parts.items() if name.endswith(ending)), 1)
        value, shape = source.numpy(), tuple(variable.shape)
        if shape:  # the last axis consists of `count` parts
            value = value.reshape([*value.shape[:-1], count, -1])
            value = tiled(value, (*shape[:-1], count, shape[-1] // count))
        variable.assign(value.reshape(shape))
    return new


def _depth(network: tf.Module) -> int:
    """Returns the number of layers, 0 for a head."""
    numbers = [_LAYER.search(variable.name) for variable in network.variables]
    return 1 + max((int(found[0]) for found in numbers if found), default=-1)


if __name__ == "__main__":
    flags.mark_flags_as_required(["input", "output", "model_size"])
    app.run(main_with_clear_errors(main))
