"""Architectures that are inferred from tensors, and what a `config.json` may add."""

from __future__ import annotations

import pytest

from checkpoints.tf1_architecture import infer_architecture
from checkpoints.tf1_config import OriginalConfig, config_fields, unwritten_settings
from checkpoints.tf1_file import TensorFile
from errors import InputError
from pretrain.hparams import encoder_config, parse_hparams, resolve_hparams
from tests.golden_support import CHECKPOINT, GOLDEN, MODELS, read_config
from tests.golden_support import generator_config as golden_generator
from tests.tf1_support import random_tensors, write_original

BASE = {"model_size": "convbert-tiny", "vocab_size": 97, "max_seq_length": 32}
SMALL = {"num_hidden_layers": 1, "max_position_embeddings": 32}


def infer(folder, heads=None, said=None):
    return infer_architecture(TensorFile(folder), said or OriginalConfig(), heads)


@pytest.mark.parametrize("name", MODELS)
def test_golden_folders_without_their_config(name):
    """Tensors show it all, but for the number of heads where there is no convolution."""
    expected = read_config(str(GOLDEN / name))
    asked = None if expected.token_mixer == "mixed" else 4
    found = infer(str(GOLDEN / name / CHECKPOINT), asked)
    assert found.config == expected.replace(conv_kernel_size=found.config.conv_kernel_size)
    if asked is None:
        assert found.config.conv_kernel_size == expected.conv_kernel_size
    kernel = found.config.conv_kernel_size  # without a convolution, any
    assert found.generator == golden_generator(name).replace(conv_kernel_size=kernel)
    assert found.networks == ["encoder", "head", "generator", "generator_head"]
    assert found.objective == {
        "objective": "replaced_token_detection",
        "untied_generator": True,
        "uniform_generator": False,
        "generator_hidden_size": 0.5,
        "generator_layers": 1.0,
        "untied_generator_embeddings": False,
    }


def make(folder, networks=None, **changes):
    """A checkpoint of random weights, and the configurations that it should be taken for."""
    overrides = {**SMALL, **changes.pop("overrides", {})}
    values = {**BASE, "generator_hidden_size": 0.5, "model_hparam_overrides": overrides, **changes}
    hparams = resolve_hparams({**values, "max_seq_length": 16}, 97)
    config = encoder_config(hparams, 97).replace(mask_padding=False)
    write_original(folder, random_tensors(hparams, config, networks))
    return str(folder / "model.ckpt-1234"), hparams, config


@pytest.mark.parametrize(
    "changes",
    [
        {"head_ratio": 4},
        {"overrides": {"num_attention_heads": 2}, "head_ratio": 4},  # one head is left
        {"conv_kernel_size": 3, "linear_groups": 4},
        {"embedding_size": 32},
        {"generator_layers": 2.0},
        {"overrides": {"type_vocab_size": 3, "intermediate_size": 96}},
        {"untied_generator_embeddings": True},
        {"conv_type": "noconv", "head_ratio": 1, "overrides": {"num_attention_heads": 2}},
        {"model_size": "small", "generator_hidden_size": None},  # the generator has one head
    ],
    ids=str,
)
def test_what_tensors_show(tmp_path, changes):
    prefix, hparams, config = make(tmp_path, **changes)
    found = infer(prefix)
    assert found.config.num_heads == config.num_heads
    assert found.config.head_size == config.head_size
    same = {name: getattr(config, name) for name in ("num_attention_heads", "head_ratio")}
    assert found.config.replace(**same) == config
    expected = hparams.objective.generator_config(config)
    assert (found.generator.num_heads, found.generator.head_size) == (
        expected.num_heads,
        expected.head_size,
    )
    assert found.generator.num_hidden_layers == expected.num_hidden_layers
    assert (
        found.objective["untied_generator_embeddings"]
        is hparams.objective.untied_generator_embeddings
    )


@pytest.mark.parametrize(
    ("networks", "changes", "expected"),
    [
        (["encoder"], {}, {}),
        (["encoder", "head"], {}, {"objective": "replaced_token_detection"}),
        (
            None,
            {"untied_generator": False},
            {
                "objective": "replaced_token_detection",
                "untied_generator": False,
                "uniform_generator": False,
            },
        ),
        (None, {"objective": "masked_lm"}, {"objective": "masked_lm"}),
        (None, {"uniform_generator": True}, {"objective": "replaced_token_detection"}),
    ],
    ids=str,
)
def test_which_networks_there_are(tmp_path, networks, changes, expected):
    prefix, _, config = make(tmp_path, networks, **changes)
    found = infer(prefix)
    assert found.config == config
    assert found.generator is None
    assert found.objective == expected
    assert found.networks[0] == "encoder"


def test_heads_that_nothing_shows_are_asked_for(tmp_path):
    prefix = str(GOLDEN / "electra" / CHECKPOINT)
    with pytest.raises(InputError):
        infer(prefix)
    assert infer(prefix, 8).config.num_attention_heads == 8
    said = OriginalConfig.load(str(GOLDEN / "electra" / "config.json"))
    found = infer(prefix, said=said)
    assert found.config.num_attention_heads == 4
    with pytest.raises(InputError):
        infer(prefix, 8, said)


def test_a_config_adds_what_tensors_do_not_show(tmp_path):
    fields = {"hidden_act": "relu", "hidden_dropout_prob": 0.2, "mask_prob": 0.2, "colour": "red"}
    write_original(tmp_path, {}, config=fields)
    said = OriginalConfig.load(str(tmp_path / "config.json"))
    found = infer(str(GOLDEN / "sdconv" / CHECKPOINT), said=said)
    assert (found.config.hidden_act, found.generator.hidden_act) == ("relu", "relu")
    assert found.config.hidden_dropout_prob == 0.2
    assert "attention_probs_dropout_prob 0.1" in "\n".join(found.notes)
    assert (said.training, said.unknown) == ({"mask_prob": 0.2}, ("colour",))


def test_a_uniform_generator_is_told_by_the_config_alone(tmp_path):
    prefix, _, _ = make(tmp_path, uniform_generator=True)
    said = OriginalConfig(fields={"uniform_generator": True, "untied_generator": True})
    assert infer(prefix, said=said).objective["uniform_generator"] is True


def test_the_generators_width_may_be_a_share():
    said = OriginalConfig(fields={"generator_hidden_size": 0.25})
    assert said.objective == {"generator_hidden_size": 0.25}
    assert OriginalConfig(fields={"generator_hidden_size": 64}).objective == {}


def test_settings_of_training_are_written(tmp_path):
    """Those that are not the defaults; what the original has no name for is listed."""
    settings = {"mask_prob": 0.25, "temperature": 0.7, "learning_rate": 1e-4, "gen_weight": 2.0}
    hparams = parse_hparams({**settings, "train_batch_size": 16, "random_token_prob": 0.1})
    fields = config_fields(read_config(str(GOLDEN / "sdconv")), None, hparams)
    write_original(tmp_path, {}, config=fields)
    said = OriginalConfig.load(str(tmp_path / "config.json"))
    assert said.training == {**settings, "train_batch_size": 16, "disc_weight": 50.0}
    assert unwritten_settings(hparams) == {"random_token_prob": 0.1}
