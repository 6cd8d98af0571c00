"""The reader of TensorFlow 1 checkpoints: what it reports and what it refuses."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import tensorflow as tf

from checkpoints import tf1
from errors import InputError
from model import build_encoder
from tests.golden_support import CHECKPOINT, GOLDEN, load_golden
from tests.model_support import TINY

PREFIX = str(GOLDEN / "sdconv" / CHECKPOINT)


@pytest.fixture(scope="module")
def variables():
    """Of a discriminator encoder; the checkpoint holds a generator and heads besides."""
    return tf1.encoder_variables(build_encoder(tf1.read_config(str(GOLDEN / "sdconv"))))


def test_reports_step_and_slots():
    golden = load_golden("sdconv")
    assert golden.restored.global_step == 0
    slots = {f"{name}/{slot}" for name in golden.variables for slot in ("adam_m", "adam_v")}
    assert set(golden.restored.optimizer_slots) == slots


def test_every_network_variable_has_a_name():
    golden = load_golden("sdconv_grouped")
    for network, names in (
        (golden.discriminator, tf1.encoder_variables(golden.discriminator)),
        (golden.generator, tf1.encoder_variables(golden.generator, "generator")),
        (golden.discriminator_head, tf1.discriminator_head_variables(golden.discriminator_head)),
    ):
        assert {v.ref() for v in names.values()} == {v.ref() for v in network.variables}
        assert len(names) == len(network.variables)


def test_scopes():
    names = tf1.encoder_variables(build_encoder(TINY), "generator", embeddings_scope="generator")
    assert all(name.startswith("generator/") for name in names)
    assert "generator/embeddings/word_embeddings" in names


def test_part_of_a_checkpoint(variables):
    tf1.read_checkpoint(PREFIX, variables, ignore=("generator", "discriminator_predictions"))
    stored = tf.train.load_checkpoint(PREFIX)
    for name, variable in variables.items():
        np.testing.assert_array_equal(variable, stored.get_tensor(name))


def refused(prefix, variables, **arguments) -> str:
    """The error's sentence, having checked that no variable was touched."""
    before = {name: variable.numpy() for name, variable in variables.items()}
    with pytest.raises(InputError) as error:
        tf1.read_checkpoint(str(prefix), variables, **arguments)
    for name, variable in variables.items():
        np.testing.assert_array_equal(variable, before[name])
    assert str(prefix) in str(error.value)
    return str(error.value)


def test_unused_tensor_is_refused(variables):
    sentence = refused(PREFIX, variables, ignore=("generator",))
    assert "no variable takes: discriminator_predictions/dense/bias" in sentence


def test_missing_tensor_is_refused(variables):
    extra = {**variables, "electra/encoder/layer_2/output/dense/bias": tf.Variable([0.0])}
    sentence = refused(PREFIX, extra, ignore=("generator", "discriminator"))
    assert "missing: electra/encoder/layer_2/output/dense/bias" in sentence


def test_other_shape_is_refused(variables):
    name = "electra/encoder/layer_0/attention/self/query/kernel"
    sentence = refused(PREFIX, {**variables, name: tf.Variable(tf.zeros([32, 8]))})
    assert f"{name} should have shape [32, 8]. Received: [32, 16]" in sentence


def test_no_checkpoint_is_refused(variables, tmp_path):
    refused(tmp_path / "model.ckpt-0", variables)
    refused(tmp_path, variables)


def test_damaged_checkpoint_is_refused(variables, tmp_path):
    for part in (".index", ".data-00000-of-00001"):
        shutil.copyfile(PREFIX + part, tmp_path / f"{CHECKPOINT}{part}")
    data = tmp_path / f"{CHECKPOINT}.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:100_000])
    refused(tmp_path / CHECKPOINT, variables, ignore=("generator", "discriminator"))


@pytest.mark.parametrize(
    "changes",
    [
        {"token_mixer": "convolution"},
        {"convolution": "static"},
        {"convolution": "dynamic"},
        {"share_layers": True},
    ],
)
def test_architecture_without_names_is_refused(changes):
    with pytest.raises(InputError, match="share_layers"):
        tf1.encoder_variables(build_encoder(TINY.replace(**changes)))


def test_config():
    config = tf1.read_config(str(GOLDEN / "sdconv_grouped"))
    assert (config.token_mixer, config.convolution, config.linear_groups) == ("mixed", "span", 2)
    assert (config.hidden_size, config.embedding_size, config.max_position_embeddings) == (
        32,
        16,
        40,
    )
    assert config.mask_padding is False
    bottleneck = tf1.read_config(str(GOLDEN / "bottleneck"))
    assert (bottleneck.token_mixer, bottleneck.head_ratio) == ("attention", 2)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"conv_type": "lightconv"}, "`conv_type` should be one of sdconv, noconv"),
        ({"hidden_size": None}, "`hidden_size` should be of type int"),
        ({"hidden_size": "absent"}, "the fields hidden_size are missing"),
    ],
)
def test_bad_config_is_refused(tmp_path, changes, complaint):
    fields = json.loads((GOLDEN / "sdconv" / "config.json").read_text())
    fields = {k: v for k, v in {**fields, **changes}.items() if v != "absent"}
    (tmp_path / "config.json").write_text(json.dumps(fields))
    with pytest.raises(InputError) as error:
        tf1.read_config(str(tmp_path))
    assert str(tmp_path / "config.json") in str(error.value)
    assert complaint in str(error.value)


def test_missing_config_is_refused(tmp_path):
    with pytest.raises(InputError, match="no encoder configuration here"):
        tf1.read_config(str(tmp_path))
