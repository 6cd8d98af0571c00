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
from errors import InputError
from model import EncoderConfig, architectures, build_encoder
from model.token_mixing import Convolution
from pretrain.objectives.masked_lm_loss import MaskedLM
from tests import xlnet_support
from tests.huggingface_support import SPAN, conversion, hparams_of, load


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


@pytest.mark.parametrize("target", ["tf1", "huggingface"])
def test_a_plug_in_whose_configuration_is_a_subclass(target, tmp_path, monkeypatch):
    known = dict(architectures._REGISTRY._entries)
    monkeypatch.setattr(architectures._REGISTRY, "_entries", known)
    architectures.register_architecture(SigmoidConfig, lambda config, *_: build_encoder(config))
    config, vocabulary = SigmoidConfig(**dataclasses.asdict(SPAN)), load("bert").vocabulary
    encoder = with_sigmoid(build_encoder(config))
    hparams = describe_pretraining(SPAN, vocabulary)
    made = Conversion(config, hparams, vocabulary, Networks(encoder))
    save(made, str(tmp_path / "model"), {})
    with pytest.raises(InputError) as error:
        to_elsewhere(target, str(tmp_path / "model"), str(tmp_path / "theirs"))
    assert SigmoidConfig.architecture in str(error.value)
    assert not (tmp_path / "theirs").exists()


@pytest.mark.parametrize("write", [tf1_convert.write, huggingface.write])
@pytest.mark.parametrize(
    ("change", "named"),
    [(with_sigmoid, "SigmoidConvolution"), (with_layer, "added"), (with_variable, "gate")],
)
def test_a_changed_network(write, change, named, tmp_path):
    made = conversion(MaskedLM, hparams_of(SPAN, objective="masked_lm"), SPAN)
    change(made.objective.encoder)
    with pytest.raises(InputError) as error:
        write(made, str(tmp_path))
    assert named in str(error.value)


@pytest.mark.parametrize("write", [tf1_convert.write, huggingface.write])
def test_a_changed_head(write, tmp_path):
    made = conversion(MaskedLM, hparams_of(SPAN, objective="masked_lm"), SPAN)
    made.objective.head.scale = made.objective.head.add_weight("scale", [1])
    with pytest.raises(InputError):
        write(made, str(tmp_path))


@pytest.mark.parametrize("write", [xlnet_tf1.write, xlnet_huggingface.write])
@pytest.mark.parametrize("part", ["encoder", "head"])
def test_a_changed_xlnet(write, part, tmp_path):
    made = xlnet_support.conversion()
    network = getattr(made.objective, part)
    network.scale = network.add_weight("scale", [1])
    with pytest.raises(InputError):
        write(made, str(tmp_path))


@pytest.mark.parametrize(
    "changes", [{"layer_norm_eps": 1e-6}, {"hidden_act": "gelu"}, {"hidden_act": "silu"}]
)
def test_an_xlnet_that_the_original_lacks(changes, tmp_path):
    made = xlnet_support.conversion(xlnet_support.TINY.replace(**changes))
    with pytest.raises(InputError):
        xlnet_tf1.write(made, str(tmp_path))


def test_a_field_without_a_name():
    """As one that somebody adds to EncoderConfig."""
    config = SigmoidConfig(**dataclasses.asdict(SPAN))
    hparams = hparams_of(SPAN, objective="masked_lm")
    with pytest.raises(InputError):
        huggingface_fields(config, "convbert")
    with pytest.raises(InputError):
        config_fields(config, None, hparams)
