"""The original's names of our variables: complete, and refused where there are none."""

from __future__ import annotations

import pytest
import tensorflow as tf

from checkpoints import tf1
from errors import InputError
from model import build_encoder
from tests.golden_support import CHECKPOINT, GOLDEN, load_golden
from tests.model_support import TINY


def test_every_network_variable_has_a_name():
    golden = load_golden("sdconv_grouped")
    for network, names in (
        (golden.discriminator, tf1.encoder_variables(golden.discriminator)),
        (golden.generator, tf1.encoder_variables(golden.generator, "generator")),
        (golden.discriminator_head, tf1.discriminator_head_variables(golden.discriminator_head)),
    ):
        assert {v.ref() for v in names.values()} == {v.ref() for v in network.variables}
        assert len(names) == len(network.variables)


def test_every_tensor_has_a_variable_and_two_moments():
    stored = dict(tf.train.list_variables(str(GOLDEN / "sdconv" / CHECKPOINT)))
    names = load_golden("sdconv").variables
    moments = {f"{name}/{slot}" for name in names for slot in tf1.SLOTS}
    assert set(stored) == {*names, *moments, tf1.GLOBAL_STEP}


def test_scopes():
    names = tf1.encoder_variables(build_encoder(TINY), "generator", embeddings_scope="generator")
    assert all(name.startswith("generator/") for name in names)
    assert "generator/embeddings/word_embeddings" in names


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
