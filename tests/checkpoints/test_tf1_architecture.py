"""Architectures that are inferred from tensors, and tensors that are of another model."""

from __future__ import annotations

import numpy as np
import pytest

from checkpoints.tf1_architecture import infer_architecture
from checkpoints.tf1_config import OriginalConfig, read_config
from checkpoints.tf1_file import TensorFile
from errors import InputError
from pretrain.hparams import encoder_config, resolve_hparams
from tests.golden_support import CHECKPOINT, GOLDEN, MODELS
from tests.golden_support import generator_config as golden_generator
from tests.tf1_support import golden_fields, golden_tensors, random_tensors, write_original

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
    with pytest.raises(InputError, match=r"query/kernel of shape \[32, 32\] .* --num_attention_h"):
        infer(prefix)
    assert infer(prefix, 8).config.num_attention_heads == 8
    said = OriginalConfig.load(str(GOLDEN / "electra" / "config.json"))
    found = infer(prefix, said=said)
    assert found.config.num_attention_heads == 4
    assert any("num_attention_heads 4, as" in note for note in found.notes)
    with pytest.raises(InputError, match=r"--num_attention_heads should be 4, as .* Received: 8"):
        infer(prefix, 8, said)


def test_heads_that_tensors_contradict():
    with pytest.raises(InputError, match=r"query/kernel should have shape \[32, 32\]"):
        infer(str(GOLDEN / "bottleneck" / CHECKPOINT), 1)
    with pytest.raises(InputError, match=r"conv_attn_kernel/kernel should have .*_heads` 2"):
        infer(str(GOLDEN / "sdconv" / CHECKPOINT), 2)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"hidden_size": 64}, "`hidden_size` should be 32, as electra/encoder/layer_0/.*/query"),
        ({"num_hidden_layers": 3}, "`num_hidden_layers` should be 2"),
        ({"conv_type": "noconv"}, "`token_mixer` should be mixed, as .*depthwise_kernel"),
        ({"conv_kernel_size": 5}, "`conv_kernel_size` should be 9"),
        ({"linear_groups": 2}, "`linear_groups` should be 1"),
        ({"vocab_size": 30522}, "`vocab_size` should be 97"),
        ({"head_ratio": 1}, r"query/kernel should have shape \[32, 32\]"),
        ({"generator_hidden_size": 8}, "`hidden_size` should be 16, as generator/encoder"),
        (
            {"generator_hidden_size": 0.25, "generator_hidden_size_multiplier": None},
            "`generator_hidden_size` should be 0.5, as the tensors",
        ),
        ({"generator_layers": 0.5}, "`generator_layers` should be 1.0, as the tensors"),
        ({"untied_generator": False}, "`untied_generator` should be True, as the tensors"),
        ({"uniform_generator": True}, "`uniform_generator` should be False, as the tensors"),
        ({"objective": "masked_lm"}, "`objective` should be replaced_token_detection, as the"),
        ({"generator_num_attention_heads": 16}, "generator/.*/conv_attn_kernel/kernel should have"),
        ({"hidden_act": "swish"}, "`hidden_act` should be one of"),
    ],
    ids=str,
)
def test_config_that_tensors_contradict(tmp_path, changes, complaint):
    write_original(tmp_path, {}, config={**golden_fields("sdconv"), **changes})
    said = OriginalConfig.load(str(tmp_path / "config.json"))
    with pytest.raises(InputError, match=complaint) as error:
        infer(str(GOLDEN / "sdconv" / CHECKPOINT), said=said)
    assert "Received" in str(error.value)


def test_a_config_may_say_what_tensors_do_not_show(tmp_path):
    fields = {"hidden_act": "relu", "hidden_dropout_prob": 0.2}
    write_original(tmp_path, {}, config=fields)
    found = infer(
        str(GOLDEN / "sdconv" / CHECKPOINT),
        said=OriginalConfig.load(str(tmp_path / "config.json")),
    )
    assert (found.config.hidden_act, found.generator.hidden_act) == ("relu", "relu")
    assert found.config.hidden_dropout_prob == 0.2
    notes = "\n".join(found.notes)
    assert "as published: attention_probs_dropout_prob 0.1" in notes


def test_a_uniform_generator_is_told_by_the_config_alone(tmp_path):
    prefix, _, _ = make(tmp_path, uniform_generator=True)
    said = OriginalConfig(objective={"uniform_generator": True, "untied_generator": True})
    assert infer(prefix, said=said).objective["uniform_generator"] is True


@pytest.mark.parametrize(
    ("names", "complaint"),
    [
        (["bert/embeddings/word_embeddings", "cls/x"], "of BERT; .* Received: bert/embeddings"),
        (["bert/encoder/transformer/group_0/inner_group_0/x"], "of ALBERT; .* begin with electra/"),
        (["_CHECKPOINTABLE_OBJECT_GRAPH", "model/a"], "TensorFlow 2, .* Received: model/a"),
        (["resnet/conv1"], "of another model; .* Received: resnet/conv1"),
    ],
)
def test_other_models_are_refused(tmp_path, names, complaint):
    write_original(tmp_path, {name: np.float32([1]) for name in names})
    with pytest.raises(InputError, match=complaint):
        infer(str(tmp_path / "model.ckpt-1234"))


@pytest.mark.parametrize(
    ("removed", "complaint"),
    [
        ("electra/embeddings/word_embeddings", "tensor electra/embeddings/word_embeddings is miss"),
        ("electra/encoder/layer_0/intermediate/dense/kernel", "layer_0/intermediate/dense/kernel"),
        ("electra/encoder/layer_0/attention/self/conv_attn_kernel/kernel", "conv_attn_kernel/kern"),
        ("generator/encoder/layer_0/attention/self/query/kernel", "generator/encoder/layer_0/att"),
    ],
)
def test_tensors_that_inference_misses_are_named(tmp_path, removed, complaint):
    tensors = golden_tensors("sdconv")
    del tensors[removed]
    write_original(tmp_path, tensors)
    with pytest.raises(InputError, match=complaint):
        infer(str(tmp_path / "model.ckpt-1234"))


def test_a_generator_of_other_proportions_is_refused(tmp_path):
    """One that the original cannot have made: its inner width is not four times its width."""
    tensors = golden_tensors("sdconv")
    for name in list(tensors):
        if name.startswith("generator/encoder") and "/intermediate/dense/kernel" in name:
            tensors[name] = tensors[name][:, :48]
    write_original(tmp_path, tensors)
    with pytest.raises(InputError, match=r"0\.5 times as wide .* `intermediate_size` 64 \(rec"):
        infer(str(tmp_path / "model.ckpt-1234"))
