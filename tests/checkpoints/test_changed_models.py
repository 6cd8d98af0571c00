"""Models that other formats have no names for: rejected, naming architecture, field or variable."""

from __future__ import annotations

import dataclasses

import pytest
import tensorflow as tf
import tf_keras

from checkpoints import huggingface, tf1_convert
from checkpoints.formats import to_elsewhere
from checkpoints.huggingface.config import huggingface_fields
from checkpoints.model_directory import Conversion, Networks, describe_pretraining, save
from checkpoints.tf1_config import config_fields
from checkpoints.xlnet import huggingface as xlnet_huggingface
from checkpoints.xlnet import tf1 as xlnet_tf1
from model import EncoderConfig, build_encoder
from model.config import ARCHITECTURES, register_architecture
from model.token_mixing import Convolution
from model.xlnet.config import XLNetConfig
from tests import xlnet_support
from tests.huggingface_support import PLAIN, SPAN, conversion, load, rejected

XLNET = xlnet_support.TINY
WRITERS = {
    "convbert": (tf1_convert.write, huggingface.write),
    "xlnet": (xlnet_tf1.write, xlnet_huggingface.write),
}


class SigmoidConvolution(Convolution):
    """Each tap has a weight of its own between 0 and 1, where the paper has a softmax."""


@dataclasses.dataclass(frozen=True)
class SigmoidConfig(EncoderConfig):
    """ConvBERT with that convolution."""

    architecture = "sigmoid_convbert"

    taps: str = "sigmoid"


def with_sigmoid(encoder):
    encoder.encoder_layers[0].mixer.convolution.__class__ = SigmoidConvolution
    return encoder


def with_layer(encoder):
    encoder.added = tf_keras.layers.Dense(4, name="added")
    encoder.added(tf.zeros([1, encoder.hidden_size]))


def with_variable(encoder):
    layer = encoder.encoder_layers[1].output_dense
    layer.gate = layer.add_weight("gate", [4])


def with_scale(network):
    network.scale = network.add_weight("scale", [1])


@pytest.mark.parametrize("target", ["tf1", "huggingface"])
def test_a_plug_in_whose_configuration_is_a_subclass(target, tmp_path, monkeypatch):
    known = dict(ARCHITECTURES._entries)
    monkeypatch.setattr(ARCHITECTURES, "_entries", known)
    register_architecture(SigmoidConfig, lambda config, *_: build_encoder(config))
    config, vocabulary = SigmoidConfig(**dataclasses.asdict(SPAN)), load("bert").vocabulary
    encoder = with_sigmoid(build_encoder(config))
    hparams = describe_pretraining(SPAN, vocabulary)
    save(Conversion(config, hparams, vocabulary, Networks(encoder)), str(tmp_path / "model"), {})
    with rejected(SigmoidConfig.architecture):
        to_elsewhere(target, str(tmp_path / "model"), str(tmp_path / "theirs"))
    assert not (tmp_path / "theirs").exists()


@pytest.mark.parametrize("target", [0, 1], ids=["tf1", "huggingface"])
@pytest.mark.parametrize(
    ("model", "part", "change", "named"),
    [
        ("convbert", "encoder", with_sigmoid, "SigmoidConvolution"),
        ("convbert", "encoder", with_layer, "added"),
        ("convbert", "encoder", with_variable, "gate"),
        ("convbert", "head", with_scale, "scale"),
        ("xlnet", "encoder", with_scale, "scale"),
        ("xlnet", "head", with_scale, "scale"),
    ],
)
def test_a_changed_network(target, model, part, change, named, tmp_path):
    xlnet = model == "xlnet"
    made = xlnet_support.conversion() if xlnet else conversion(SPAN, objective="masked_lm")
    change(getattr(made.objective, part))
    with rejected(named):
        WRITERS[model][target](made, str(tmp_path))


@pytest.mark.parametrize(
    ("config", "values", "field"),
    [
        (PLAIN.replace(hidden_act="gelu_new"), {}, "hidden_act"),
        (PLAIN.replace(layer_norm_eps=1e-5), {}, "layer_norm_eps"),
        (PLAIN, {"generator_intermediate_size": 40}, "generator_intermediate_size"),
        (PLAIN.replace(hidden_act="relu"), {"masked_lm_act": "gelu"}, "masked_lm_act"),
        (PLAIN.replace(token_mixer="convolution"), {}, "token_mixer"),
        (SPAN.replace(convolution="dynamic"), {}, "convolution"),
        (PLAIN.replace(share_layers=True), {}, "share_layers"),
        (PLAIN.replace(causal=True), {}, "causal"),
        (XLNET.replace(layer_norm_eps=1e-6), {}, "layer_norm_eps"),
        (XLNET.replace(hidden_act="gelu"), {}, "hidden_act"),
    ],
)
def test_networks_that_the_original_lacks(config, values, field, tmp_path):
    if isinstance(config, XLNetConfig):
        write, made = xlnet_tf1.write, xlnet_support.conversion(config)
    else:
        write = tf1_convert.write
        made = conversion(config, generator_hidden_size=0.5, **values)
    with rejected(f"`{field}`"):
        write(made, str(tmp_path))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("config", "field"),
    [
        (SPAN.replace(share_layers=True), "share_layers"),
        (SPAN.replace(token_mixer="convolution"), "token_mixer"),
        (SPAN.replace(causal=True), "causal"),
        (SPAN.replace(convolution="dynamic"), "convolution"),
        (SPAN.replace(head_ratio=4), "head_ratio"),
        (SPAN.replace(hidden_act="relu"), "hidden_act"),
        (PLAIN.replace(head_ratio=2), "head_ratio"),
        (PLAIN.replace(linear_groups=2), "linear_groups"),
        (PLAIN.replace(hidden_act="tanh"), "hidden_act"),
    ],
)
def test_networks_that_hugging_face_lacks(config, field, tmp_path):
    with rejected(f"`{field}`"):
        huggingface.write(conversion(config, objective="masked_lm"), str(tmp_path))


def test_a_field_without_a_name():
    """As one that somebody adds to EncoderConfig."""
    config = SigmoidConfig(**dataclasses.asdict(SPAN))
    with rejected("taps"):
        huggingface_fields(config, "convbert")
    with rejected("taps"):
        config_fields(config, None, conversion(SPAN).hparams)
