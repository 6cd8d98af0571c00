"""What the names of tensors show, and what a `config.json` or a named size adds."""

from __future__ import annotations

import pytest

from checkpoints.tf1_config import (
    OriginalConfig,
    config_fields,
    read_architecture,
    unwritten_settings,
)
from checkpoints.tf1_file import TensorFile
from errors import InputError
from model import named_size
from pretrain.hparams import encoder_config, parse_hparams, resolve_hparams
from tests.golden_support import CHECKPOINT, GOLDEN, read_config
from tests.tf1_support import random_tensors, write_original

UNTIED = {"untied_generator": True, "uniform_generator": False}
DETECTION = {"objective": "replaced_token_detection"}


@pytest.mark.parametrize(
    ("networks", "changes", "expected"),
    [
        (["encoder"], {}, {}),
        (["encoder", "head"], {}, DETECTION),
        (None, {}, {**DETECTION, **UNTIED, "untied_generator_embeddings": False}),
        (
            None,
            {"untied_generator_embeddings": True},
            {**DETECTION, **UNTIED, "untied_generator_embeddings": True},
        ),
        (None, {"untied_generator": False}, {**DETECTION, **UNTIED, "untied_generator": False}),
        (None, {"objective": "masked_lm"}, {"objective": "masked_lm"}),
        (None, {"uniform_generator": True}, DETECTION),
    ],
    ids=str,
)
def test_names_show_which_networks_there_are(tmp_path, networks, changes, expected):
    overrides = {"num_hidden_layers": 1, "max_position_embeddings": 32}
    values = {"model_size": "convbert-tiny", "vocab_size": 97, "max_seq_length": 16}
    values |= {"generator_hidden_size": 0.5, "model_hparam_overrides": overrides}
    hparams = resolve_hparams({**values, **changes}, 97)
    config = encoder_config(hparams, 97).replace(mask_padding=False)
    write_original(tmp_path, random_tensors(hparams, config, networks))
    said = OriginalConfig("config.json", overrides)
    file = TensorFile(str(tmp_path / "model.ckpt-1234"))
    found = read_architecture(file, said, 97, "convbert-tiny")
    assert found.config == config
    assert found.objective == expected
    assert {*found.networks} >= {*(networks or hparams.objective.own_networks())}


@pytest.mark.parametrize("size", [None, "xlnet-tiny", "convbert-huge"])
def test_a_size_that_is_not_known(size):
    with pytest.raises(InputError):
        read_architecture(
            TensorFile(str(GOLDEN / "sdconv" / CHECKPOINT)), OriginalConfig(), 97, size
        )


def test_a_named_size_is_enough():
    file = TensorFile(str(GOLDEN / "sdconv" / CHECKPOINT))
    config = read_architecture(file, OriginalConfig(), 97, "electra-base").config
    expected = named_size("electra-base")
    assert config == expected.replace(vocab_size=97, mask_padding=False)


def test_names_show_self_attention_alone():
    """As in a `config.json` of ELECTRA, which has none of ConvBERT's fields."""
    fields = {"hidden_size": 32, "embedding_size": 16, "num_attention_heads": 4}
    file = TensorFile(str(GOLDEN / "electra" / CHECKPOINT))
    config = read_architecture(file, OriginalConfig("config.json", fields), 97).config
    assert (config.token_mixer, config.head_ratio, config.num_heads) == ("attention", 1, 4)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"generator_hidden_size": 0.25}, {"generator_hidden_size": 0.25}),
        ({"generator_hidden_size": 64}, {"generator_hidden_size": 0.5}),
        ({"generator_hidden_size_multiplier": 0.25}, {"generator_hidden_size": 0.25}),
        ({"uniform_generator": True, "hidden_act": "relu"}, {"uniform_generator": True}),
    ],
    ids=str,
)
def test_a_config_gives_the_generator(fields, expected):
    assert OriginalConfig("config.json", fields).objective(128) == expected


def test_settings_of_training_are_written(tmp_path):
    """Those that are not the defaults; what the original has no name for is listed."""
    settings = {"mask_prob": 0.25, "temperature": 0.7, "learning_rate": 1e-4, "gen_weight": 2.0}
    hparams = parse_hparams({**settings, "train_batch_size": 16, "random_token_prob": 0.1})
    fields = config_fields(read_config(str(GOLDEN / "sdconv")), None, hparams)
    write_original(tmp_path, {}, config={**fields, "colour": "red"})
    said = OriginalConfig.load(str(tmp_path / "config.json"))
    assert said.training == {**settings, "train_batch_size": 16, "disc_weight": 50.0}
    assert said.unknown == ("colour",)
    assert unwritten_settings(hparams) == {"random_token_prob": 0.1}
