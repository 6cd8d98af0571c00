"""What is not read and not written: a sentence that names file, tensor or field."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from checkpoints import huggingface
from checkpoints.huggingface.tensors import write_tensors
from checkpoints.model_directory import Options
from errors import InputError
from pretrain.objectives.masked_lm_loss import MaskedLM
from pretrain.objectives.replaced_token_detection_loss import ReplacedTokenDetection
from tests.huggingface_support import (
    FOLDER,
    PLAIN,
    SPAN,
    WEIGHTS,
    change_json,
    change_tensors,
    conversion,
    copied,
    hparams_of,
    load,
)

QUERY = "convbert.encoder.layer.1.attention.self.query.weight"


def refused(folder, **options) -> str:
    """The error's sentence."""
    with pytest.raises(InputError) as error:
        huggingface.read(str(folder), Options(**options))
    return str(error.value)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"model_type": "roberta"}, "`model_type` should be one of convbert, electra, bert"),
        ({"layer_norm_eps": 0}, "`layer_norm_eps` should be in (0, 1)"),
        ({"position_embedding_type": "relative_key"}, "`position_embedding_type` should be 'abso"),
        ({"is_decoder": True}, "`is_decoder` should be False"),
        ({"add_cross_attention": True}, "`add_cross_attention` should be False"),
        ({"pruned_heads": {"0": [1]}}, "`pruned_heads` should be {}"),
        ({"quantization_config": {"bits": 4}}, "`quantization_config` should be None"),
        ({"tie_word_embeddings": False}, "`tie_word_embeddings` should be True"),
        ({"hidden_act": "quick_gelu"}, "`hidden_act` should be one of gelu, gelu_new, silu, relu"),
        ({"model_type": ["bert"]}, "Received: ['bert']"),
        ({"hidden_act": {}}, "`hidden_act` should be one of gelu, gelu_new, silu, relu"),
        ({"head_ratio": 0}, "`head_ratio` should be an integer of at least 1"),
        ({"num_hidden_layers": 10**6}, "config.json: `num_hidden_layers` should be 2, as the ten"),
        ({"hidden_size": 15}, "`hidden_size` should be divisible by 4"),
        ({"hidden_size": None}, "`hidden_size` should be of type int"),
        ({"vocab_size": 136}, "the number of tokens of the vocabulary, 137. Received: 136"),
    ],
)
def test_configuration(changes, complaint, tmp_path):
    folder = copied("convbert", tmp_path)
    change_json(folder / "config.json", **changes)
    sentence = refused(folder)
    assert complaint in sentence
    assert str(folder) in sentence


def test_no_configuration(tmp_path):
    assert "there is no such folder" in refused(tmp_path / "nothing")
    folder = copied("bert", tmp_path)
    (folder / "config.json").write_text("{")
    assert "config.json, line 1: not JSON" in refused(folder)
    (folder / "config.json").unlink()
    assert "config.json: no encoder configuration here" in refused(folder)
    # One that lies elsewhere does as well.
    given = str(FOLDER / "bert" / "config.json")
    assert huggingface.read(str(folder), Options(config=given)).config == load("bert").config


def test_option_of_the_other_source():
    assert "--num_attention_heads is for --source tf1" in refused(
        FOLDER / "bert", num_attention_heads=4
    )


def renamed(held):
    return {name.replace("query", "quest"): tensor for name, tensor in held.items()}


def with_value(value):
    def change(held):
        held[QUERY][3, 5] = value
        return held

    return change


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda held: {k: v for k, v in held.items() if k != QUERY}, f"are missing: {QUERY}"),
        (renamed, "are missing: convbert.encoder.layer.0.attention.self.query.bias, "),
        (lambda held: {**held, "lm.extra": held[QUERY]}, "no variable takes: lm.extra"),
        (
            lambda held: {**held, QUERY: held[QUERY][:, :6]},
            f"{QUERY} should have shape [8, 16], as its config.json says. Received: [8, 6]",
        ),
        (with_value(np.nan), f"{QUERY} should be finite. Received: nan at [3, 5], 1 such"),
        (with_value(-np.inf), f"{QUERY} should be finite. Received: -inf at [3, 5], 1 such"),
        (
            lambda held: {**held, QUERY: held[QUERY].astype(np.int8)},
            f"{QUERY} should be of type F32, F16, BF16. Received: I8",
        ),
        (
            lambda held: {**held, "generator_lm_head.weight": np.zeros([137, 12], np.float32)},
            "generator_lm_head.weight should be equal to convbert.embeddings.word_embeddings",
        ),
        (
            lambda held: {
                **held,
                "convbert.embeddings.LayerNorm.gamma": held["convbert.embeddings.LayerNorm.weight"],
            },
            "are the same tensor",
        ),
    ],
)
def test_tensors(change, complaint, tmp_path):
    folder = copied("convbert", tmp_path)
    change_tensors(folder, change)
    sentence = refused(folder)
    assert complaint in sentence
    assert str(folder) in sentence


@pytest.mark.parametrize("length", [0, 7, 2000, -1])
def test_truncated_file(length, tmp_path):
    path = copied("convbert", tmp_path) / WEIGHTS
    path.write_bytes(path.read_bytes()[:length])
    assert f"{path}: not a readable safetensors file" in refused(path.parent)


def test_shards(tmp_path):
    folder = copied("convbert_grouped", tmp_path)
    index = folder / "model.safetensors.index.json"
    shard_of = json.loads(index.read_text())["weight_map"]
    name = next(name for name, shard in shard_of.items() if "00002" in shard)
    shard = folder / shard_of[name]

    change_json(index, weight_map={**shard_of, "pooler.weight": shard.name})
    assert f"{index}: pooler.weight should be in {shard.name}" in refused(folder)
    change_json(index, weight_map={**shard_of, name: f"../{shard.name}"})
    assert f"the shard ../{shard.name} should be beside it" in refused(folder)
    change_json(index, weight_map={**shard_of, name: 2})
    assert "the shard 2 should be beside it" in refused(folder)
    change_json(index, weight_map=[])
    assert f"{index}: `weight_map` should map tensors to files" in refused(folder)
    change_json(index, weight_map=shard_of)
    shutil.copy(shard, folder / "twice.safetensors")
    change_json(index, weight_map={**shard_of, "extra": "twice.safetensors"})
    assert "is in" in refused(folder)
    change_json(index, weight_map=shard_of)
    shard.unlink()
    assert f"{index}: the shard {shard.name} should be beside it" in refused(folder)


def test_pickles_are_not_read(tmp_path):
    folder = copied("bert", tmp_path)
    (folder / WEIGHTS).rename(folder / "pytorch_model.bin")
    sentence = refused(folder)
    assert "pickled (pytorch_model.bin)" in sentence
    assert "save_pretrained" in sentence
    (folder / "pytorch_model.bin").unlink()
    assert "there should be a model.safetensors or a model.safetensors.index.json" in refused(
        folder
    )


def test_generators_that_do_not_belong(tmp_path):
    inside = FOLDER / "electra" / "generator"
    assert "should be a electra with a masked-LM head" not in refused(
        FOLDER / "bert", generator=str(inside)
    )
    assert "should be a discriminator" in refused(FOLDER / "bert", generator=str(inside))
    folder = copied("electra", tmp_path)
    small = folder / "generator"

    assert "electra, with no masked-LM head" in refused(folder, generator=str(FOLDER / "electra"))
    assert "convbert, with a masked-LM" in refused(folder, generator=str(FOLDER / "convbert"))

    change_json(small / "config.json", num_attention_heads=4)
    assert "`num_attention_heads` 2 (received: 4)" in refused(folder)
    change_json(small / "config.json", num_attention_heads=2)

    def other_embeddings(held):
        held["electra.embeddings.position_embeddings.weight"][0, 0] += 1
        return held

    change_tensors(small, other_embeddings)
    sentence = refused(folder)
    assert str(small) in sentence
    assert "`embedding_size` 8 (received: 12); its embeddings are its own" in sentence

    shutil.rmtree(small)
    shutil.copytree(inside, small)
    shutil.copy(FOLDER / "bert" / "tokenizer.json", small)
    assert "the generator's vocabulary should be that of" in refused(folder)


def test_dropout_of_a_generator_is_said_not_refused(tmp_path):
    folder = copied("electra", tmp_path)
    change_json(folder / "generator" / "config.json", hidden_dropout_prob=0.3)
    notes = huggingface.read(str(folder), Options()).notes
    assert any("`hidden_dropout_prob` 0.3 becomes the discriminator's, 0.1" in n for n in notes)


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        (SPAN.replace(share_layers=True), "`share_layers` should be False"),
        (SPAN.replace(token_mixer="convolution"), "`token_mixer` should be 'mixed'"),
        (SPAN.replace(convolution="dynamic"), "`convolution` should be 'span'"),
        (SPAN.replace(convolution="static"), "`convolution` should be 'span'"),
        (SPAN.replace(head_ratio=4), "Received: 2 heads of width 4, from"),
        (SPAN.replace(head_ratio=1), "Received: 8 heads of width 4, from"),
        (SPAN.replace(hidden_act="relu"), "its `hidden_act` is always gelu"),
        (PLAIN.replace(share_layers=True), "`share_layers` should be False"),
        (PLAIN.replace(head_ratio=2), "`head_ratio` should be 1"),
        (PLAIN.replace(linear_groups=2), "`linear_groups` should be 1"),
        (PLAIN.replace(hidden_act="tanh"), "its `hidden_act` is always gelu"),
    ],
)
def test_architectures_without_a_name(config, complaint, tmp_path):
    ours = conversion(MaskedLM, hparams_of(config, objective="masked_lm"), config)
    with pytest.raises(InputError) as error:
        huggingface.write(ours, str(tmp_path))
    assert complaint in str(error.value)
    assert "Hugging Face's" in str(error.value)


def test_discriminator_without_a_name(tmp_path):
    config = PLAIN.replace(share_layers=True)
    hparams = hparams_of(config, generator_hidden_size=0.5)
    with pytest.raises(InputError, match="electra has no such encoder: `share_layers`"):
        huggingface.write(conversion(ReplacedTokenDetection, hparams, config), str(tmp_path))


def test_other_activation_leaves_the_generator_out(tmp_path):
    config = PLAIN.replace(hidden_act="relu")
    hparams = hparams_of(config, generator_hidden_size=0.5)
    notes = huggingface.write(conversion(ReplacedTokenDetection, hparams, config), str(tmp_path))
    assert any(n.startswith("left out: the generator") and "always gelu" in n for n in notes)
    assert not (tmp_path / "generator").exists()


def test_folder_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match=r"nowhere.*cannot be written"):
        write_tensors(str(tmp_path / "nowhere" / WEIGHTS), {"a": np.zeros(2, np.float32)})


def test_vocabulary_of_another_size(tmp_path):
    ours = load("bert")
    vocabulary = type(ours.vocabulary)(ours.vocabulary.tokens[:-1])
    other = type(ours)(ours.config, ours.hparams, vocabulary, ours.objective)
    with pytest.raises(InputError, match="`vocab_size` should be 136"):
        huggingface.write(other, str(tmp_path))
