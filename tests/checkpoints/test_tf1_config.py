"""The original's `config.json`, by itself."""

from __future__ import annotations

import json

import pytest

from checkpoints.tf1_config import OriginalConfig, config_fields, read_config, unwritten_settings
from errors import InputError
from pretrain.hparams import PretrainingHParams, parse_hparams
from tests.golden_support import GOLDEN, MODELS, generator_config
from tests.tf1_support import golden_fields


def test_config():
    config = read_config(str(GOLDEN / "sdconv_grouped"))
    assert (config.token_mixer, config.convolution, config.linear_groups) == ("mixed", "span", 2)
    assert (config.hidden_size, config.embedding_size, config.max_position_embeddings) == (
        32,
        16,
        40,
    )
    assert config.mask_padding is False
    bottleneck = read_config(str(GOLDEN / "bottleneck"))
    assert (bottleneck.token_mixer, bottleneck.head_ratio) == ("attention", 2)


@pytest.mark.parametrize("name", MODELS)
def test_written_as_it_was_read(name):
    fields = config_fields(
        read_config(str(GOLDEN / name)), generator_config(name), PretrainingHParams()
    )
    expected = golden_fields(name)
    assert {key: fields[key] for key in expected} == expected


def test_settings_of_training_are_written(tmp_path):
    """Those that are not the defaults; what the original has no name for is listed."""
    settings = {"mask_prob": 0.25, "temperature": 0.7, "learning_rate": 1e-4, "gen_weight": 2.0}
    hparams = parse_hparams({**settings, "train_batch_size": 16, "random_token_prob": 0.1})
    fields = config_fields(read_config(str(GOLDEN / "sdconv")), None, hparams)
    (tmp_path / "config.json").write_text(json.dumps(fields))
    said = OriginalConfig.load(str(tmp_path / "config.json"))
    assert said.training == {**settings, "train_batch_size": 16, "disc_weight": 50.0}
    assert unwritten_settings(hparams) == {"random_token_prob": 0.1}


def test_fields_of_training_and_of_nothing(tmp_path):
    fields = {**golden_fields("sdconv"), "mask_prob": 0.2, "colour": "red"}
    (tmp_path / "config.json").write_text(json.dumps(fields))
    said = OriginalConfig.load(str(tmp_path / "config.json"))
    assert said.training == {"mask_prob": 0.2, "gen_weight": 1.0, "disc_weight": 50.0}
    assert said.unknown == ("colour",)
    expected = {"hidden_size": 16, "intermediate_size": 64, "num_attention_heads": 2}
    assert said.generator == expected
    assert said.objective == {"generator_hidden_size": 0.5}


def test_the_generators_width_may_be_a_share(tmp_path):
    fields = {"generator_hidden_size": 0.25, "untied_generator": True}
    original = {**fields, "electra_objective": False}
    (tmp_path / "config.json").write_text(json.dumps(original))
    said = OriginalConfig.load(str(tmp_path / "config.json"))
    assert (said.generator, said.objective) == ({}, {**fields, "objective": "masked_lm"})
    assert not said.unknown


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"conv_type": "lightconv"}, "`conv_type` should be one of sdconv, noconv"),
        ({"hidden_size": None}, "`hidden_size` should be of type int"),
        ({"hidden_size": "absent"}, "the fields hidden_size are missing"),
    ],
)
def test_bad_config_is_refused(tmp_path, changes, complaint):
    fields = {k: v for k, v in {**golden_fields("sdconv"), **changes}.items() if v != "absent"}
    (tmp_path / "config.json").write_text(json.dumps(fields))
    with pytest.raises(InputError) as error:
        read_config(str(tmp_path))
    assert str(tmp_path / "config.json") in str(error.value)
    assert complaint in str(error.value)


def test_missing_config_is_refused(tmp_path):
    with pytest.raises(InputError, match="no encoder configuration here"):
        read_config(str(tmp_path))
