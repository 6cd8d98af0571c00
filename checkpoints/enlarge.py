"""Writes a larger model whose first weights are those of a smaller one, tiled from the centre.

    convbert enlarge --input runs/models/small --model_size ettin-68m --output runs/models/start
    convbert pretrain --data_dir DATA --model_name large --continue_from runs/models/start

As ModernBERT-large starts from ModernBERT-base (arXiv 2412.13663, section 2.1, and its code): along
an axis, index i of N is index (i - (N - n) // 2) mod n of n, and layer i of N is layer round(i n /
N) of n. Heads and the parts of a projection stay whole; tokens, positions and taps keep their
places. Unlike there, a kernel is divided by the growth of its inputs, so that a network of twice
the widths computes the same (not with --norescale), and a share of random weights is added, as
copies with equal weights have equal gradients and stay copies. Widths, heads and layers are those
of the named size, other fields those of the smaller model, but for --overrides. The objective's
other networks are tiled, too. There is no optimizer state, and steps count from 0. The output is
written atomically.
"""

from __future__ import annotations

import convbert.common.startup  # noqa: F401  TensorFlow reads the environment when it is imported

# isort: split

import collections
import math
import re
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras
from absl import app, flags

from convbert.checkpoints.model_directory import Conversion, describe_pretraining, save
from convbert.common import plugins, storage
from convbert.common.errors import InputError, located, main_with_clear_errors
from convbert.common.files import check_new_folder, new_folder
from convbert.common.settings import check_setting, checked_values, read_json_object
from convbert.model import load_config, named_size
from convbert.model.config import DEFAULT_ARCHITECTURE
from convbert.pretrain.load import SpecialIds, load_hparams, load_objective, recorded_vocabulary
from convbert.training.run_record import trained_length

FLAGS = flags.FLAGS
flags.DEFINE_string("input", None, "Model directory of a pre-training.")
flags.DEFINE_string("output", None, "Model directory to create; it must be empty or not exist.")
flags.DEFINE_string("model_size", None, "Named size with the widths, heads and layers.")
flags.DEFINE_string("overrides", "", "JSON, text or file: fields of the larger encoder.")
flags.DEFINE_boolean("rescale", True, "Division of kernels by the growth of their inputs.")
flags.DEFINE_float("noise", 0.1, "Share of random initial kernels to add.", lower_bound=0.0)
flags.DEFINE_list("plugins", [], "Python files or modules to import first, comma-separated.")

_FIELDS = (
    *("embedding_size", "hidden_size", "num_hidden_layers", "num_attention_heads"),
    "intermediate_size",
)
# Axes of variables, as letters of `_axes`, by the ends of the names; products sum over those
# before ">". The vocabulary's product sums over the channels that the norm of its head scales.
_VARIABLES = {
    r"/word_embeddings": "VFE",
    r"/token_type_embeddings": "TFE",
    r"/position_embeddings": "SFE",
    r"/embeddings/(LayerNorm|norm)/\w+|(generator|next_token)_predictions/dense/bias": "FE",
    r"/embeddings_project/kernel": "FE>GD",
    r"/(query|key|value|conv_attn_point)/kernel|/pointwise_kernel": "GD>NH",
    r"/(query|key|value|conv_attn_point|conv_attn_key)/bias": "NH",
    r"/conv_attn_key/depthwise_kernel": "KGD",
    r"/conv_attn_kernel/kernel": "QNH>NK",
    r"/conv_attn_kernel/bias": "NK",
    r"/convolution/depthwise_kernel": "KNH",
    r"/mixer/projection/kernel": "D>3D",  # the gated convolution's
    r"/mixer/convolution/kernel": "KD",
    r"/canon/kernel": "CD",
    r"/mixer_output/kernel": "MNH>GD",
    r"/intermediate/kernel": "GD>UI",  # GroupedDense: [G, D / G, I / G]
    r"/intermediate/bias": "GI",
    r"/output_dense/kernel": "GI>D",
    r"/(embeddings_project|mixer_output|output_dense)/bias|_norm/\w+": "GD",
    r"discriminator_predictions/dense/bias": "GD",
    r"discriminator_predictions/dense/kernel": "GD>GD",
    r"discriminator_predictions/dense_1/kernel": "GD>",
    r"(generator|next_token)_predictions/dense/kernel": "GD>FE",
    r"(generator|next_token)_predictions/LayerNorm/\w+": "FE>",
}
_SIZES = {"V": "vocab_size", "T": "type_vocab_size", "S": "max_position_embeddings"}
_SIZES |= {"N": "num_heads", "H": "head_size", "G": "linear_groups"}
_SIZES |= {"K": "conv_kernel_size", "C": "canon_kernel_size"}
_GATED_OUTPUT = "D>D"  # mixer_output/kernel after a gated convolution, which has no heads
_NETWORK = "((encoder|generator).*)?"  # what precedes the end of a name that begins with "/"
_LAYER = re.compile(r"/layer_(\d+)(?=/)")
_GROW = {"convbert": "DEINH", "modern": "DEIN"}  # rotations depend on the width of heads


def main(_: list[str]) -> None:
    """Enlarges as the flags say."""
    check_new_folder(FLAGS.output)
    plugins.load(FLAGS.plugins)
    overrides = read_json_object(FLAGS.overrides, "--overrides")
    options = {"rescale": FLAGS.rescale, "noise": FLAGS.noise}
    enlarge(FLAGS.input, FLAGS.model_size, overrides, FLAGS.output, **options)
    print(f"written: {FLAGS.output}")


def enlarge(
    model_dir: str, size: str, overrides: dict[str, Any], output: str, **options: float
) -> None:
    """Writes the larger model; `options` are `rescale` and `noise`.

    InputError if it is smaller somewhere, or of another structure.
    """
    vocabulary, recorded = recorded_vocabulary(model_dir), load_hparams(model_dir)[0]
    with located(f"--model_size {size}"):
        config = _larger(load_config(model_dir), size, overrides)
    values, small = recorded.as_json(), load_objective(model_dir)
    del values["model_size"], values["model_hparam_overrides"]
    hparams = describe_pretraining(config, vocabulary, **values)
    tf_keras.utils.set_random_seed(hparams.seed)
    large = hparams.build_objective(config, SpecialIds(vocabulary))
    for name in hparams.objective.own_networks():
        _fill(large, small, name, **options)
    about: dict[str, Any] = {"source": "enlarge", "input": storage.abspath(model_dir)}
    about |= {"max_seq_length": trained_length(model_dir), **options}
    with new_folder(output) as folder:
        save(Conversion(config, hparams, vocabulary, large), folder, about, model_dir)


def _larger(small: Any, size: str, overrides: dict[str, Any]) -> Any:
    named: Any = named_size(size)
    if small.architecture not in _GROW or type(named) is not type(small):
        expected = f"both models should be of one architecture, {' or '.join(_GROW)}"
        raise InputError(f"{expected}. Received: {small.architecture} to {named.architecture}")
    changes = checked_values(type(named), overrides)
    if small.architecture == DEFAULT_ARCHITECTURE:  # these are those of the smaller model
        named = named.replace(linear_groups=1, head_ratio=1)
    named = named.overridden({name: changes[name] for name in _FIELDS if name in changes})
    large = small.replace(**{name: getattr(named, name) for name in _FIELDS} | changes)
    for name in _FIELDS:
        least = getattr(small, name)
        check_setting(large, getattr(large, name) >= least, name, f"at least {least}")
    D, narrow = large.hidden_size, small.embedding_size != small.hidden_size
    expected = f"{'other than ' if narrow else ''}hidden_size ({D})"
    check_setting(large, (large.embedding_size != D) == narrow, "embedding_size", expected)
    return large


def _axes(config: Any, F: int) -> dict[str, int]:
    """Returns the sizes of axes; D, E and I are widths within groups, F those of embeddings."""
    sizes = {letter: getattr(config, name, 1) for letter, name in _SIZES.items()}
    G, sizes["F"], sizes["E"] = sizes["G"], F, config.embedding_size // F
    sizes |= {"D": config.hidden_size // G, "I": config.intermediate_size // G}
    sizes["M"] = 1 + (config.token_mixer == "mixed")  # attention, convolution
    sizes["Q"] = 1 + (getattr(config, "span_kernel", "") == "concatenation")  # query, key
    sizes["U"] = 1 + (config.architecture == "modern")  # halves of the gated feed-forward block
    return sizes | {"3": 3}


def _fill(large: Any, small: Any, name: str, rescale: float, noise: float) -> None:
    """Assigns the variables of the network `name`.

    A layer with a variable that the one at its place lacks, as ModernBERT's first layer lacks a
    norm, is taken from the nearest one that has it.
    """
    there, here = (_by_layer(getattr(model, name)) for model in (small, large))
    n, N = max(there) + 1, max(here) + 1  # 0 for heads
    only = {key for i in there for key in there[i]} ^ {key for i in here for key in here[i]}
    of = "generator" if name.startswith("generator") else "encoder"
    configs = [getattr(model, of).config for model in (small, large)]
    for i, variables in here.items():
        like = [j for j in there if there[j].keys() >= variables.keys() and (j < 0) == (i < 0)]
        if only or n > N or not like:
            differ = f"{n} layers and {N}" + "".join(f", {key}" for key in sorted(only))
            raise InputError(f"{name}: the models should have the same structure: {differ}")
        place = round(i * n / max(N, 1))
        source = there[min(like, key=lambda j: abs(j - place))]
        gated = any("/mixer/projection/" in key for key in variables)
        for key, variable in variables.items():
            found = [
                axes for end, axes in _VARIABLES.items() if re.match(_NETWORK + f"({end}):", key)
            ]
            axes = _GATED_OUTPUT if gated and "/mixer_output/" in key else "".join(found)
            value, growth = _tiled(source[key], variable, axes, *configs)
            share = noise if ">" in axes and len(variable.shape) > 1 else 0.0  # not of norms
            variable.assign((value / growth if rescale else value) + share * variable.numpy())


def _tiled(
    source: tf.Variable, variable: tf.Variable, axes: str, *configs: Any
) -> tuple[np.ndarray, float]:
    """Returns the larger variable's value, and the growth of the inputs that it multiplies."""
    letters, inputs = axes.replace(">", ""), axes.split(">")[0] if ">" in axes else ""
    # The groups of all layers, if the embeddings are as wide.
    groups = getattr(configs[0], _SIZES["G"], 1)
    F = math.gcd(groups, *(of.embedding_size for of in configs))
    before, after = (_axes(of, F) for of in configs)
    old, new = ([sizes[x] for x in letters] for sizes in (before, after))
    may = _GROW[configs[0].architecture]
    grows = [n == N or (n < N and x in may) for x, n, N in zip(letters, old, new)]
    if not all(grows) or (not axes and source.shape != variable.shape):
        raise InputError(
            f"{variable.name}: {old or source.shape} cannot become {new or variable.shape}: only"
            " layers, widths and heads grow; heads with rotary positions keep their width"
        )
    value = source.numpy().reshape(old or source.shape)
    for axis, (n, N) in enumerate(zip(old, new)):
        value = np.take(value, (np.arange(N) - (N - n) // 2) % n, axis)
    growth = math.prod(after[x] / before[x] for x in inputs)
    if "/key/" in variable.name:  # scores are sums over H, divided by its root
        growth *= (after["H"] / before["H"]) ** 0.5
    return value.reshape(variable.shape), growth


def _by_layer(network: tf.Module) -> dict[int, dict[str, tf.Variable]]:
    """Returns variables by number of the layer, -1 outside, and by the rest of the name."""
    found: dict[int, dict[str, tf.Variable]] = collections.defaultdict(dict)
    for variable in network.variables:
        layer = _LAYER.search(variable.name)
        found[int(layer[1]) if layer else -1][_LAYER.sub("", variable.name)] = variable
    return found


if __name__ == "__main__":
    flags.mark_flags_as_required(["input", "output", "model_size"])
    app.run(main_with_clear_errors(main))
