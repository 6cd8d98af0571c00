"""XLNet from and to TensorFlow 1 and Hugging Face: every tensor, every bit, and errors."""

from __future__ import annotations

import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from checkpoints.formats import from_elsewhere, to_elsewhere
from checkpoints.model_directory import Options, load, save
from checkpoints.xlnet import huggingface
from errors import InputError
from model import load_config
from model.xlnet.config import XLNetConfig
from pretrain.load import load_encoder
from tests.model_support import random_features
from tests.tf1_support import assert_equal_tensors, read_tensors
from tests.xlnet_support import (
    TINY,
    V,
    conversion,
    original_fields,
    original_output,
    original_tensors,
    spiece_model,
    vocabulary,
    write_original,
)

TIED = {"untie_biases": False}


def convert(source, path, output, **options):
    return from_elsewhere(source, str(path), str(output), Options(**options))


def theirs_from_ours(path, config, **changes):
    """A model directory of ours, written as Hugging Face's."""
    made = conversion(config)
    save(made, str(path / "ours"), {"notes": []})
    to_elsewhere("huggingface", str(path / "ours"), str(path / "theirs"))
    return made, path / "theirs"


@pytest.mark.parametrize("changes", [{}, TIED])
def test_an_original_comes_back_to_the_bit(tmp_path, changes):
    """And what it computes is what its names and equations say."""
    tensors = original_tensors(TINY.replace(**changes)) | {"global_step": np.int64(12)}
    source = write_original(
        tmp_path / "original", tensors, untie_r=changes.get("untie_biases", True)
    )
    convert("tf1", source, tmp_path / "ours")
    assert load_config(str(tmp_path / "ours")) == TINY.replace(
        max_position_embeddings=512, **changes
    )
    assert (tmp_path / "ours" / "spiece.model").read_bytes() == spiece_model()
    encoder = load_encoder(str(tmp_path / "ours"))
    features = random_features(2, 6, [6, 4], vocab_size=V)
    found = encoder(features).sequence
    for text, length in enumerate([6, 4]):
        ids, segments = (features[n][text, :length] for n in ("input_ids", "segment_ids"))
        expected = original_output(tensors, encoder.config, ids, segments)
        np.testing.assert_allclose(found[text, :length], expected, atol=2e-5)
    to_elsewhere("tf1", str(tmp_path / "ours"), str(tmp_path / "again"))
    assert_equal_tensors(read_tensors(tmp_path / "again" / "xlnet_model.ckpt"), tensors)
    for name in ("xlnet_config.json", "spiece.model"):
        before, after = (tmp_path / part / name for part in ("original", "again"))
        read = json.loads if name.endswith("json") else bytes
        assert read(before.read_bytes()) == read(after.read_bytes())


@pytest.mark.parametrize("changes", [{}, {"clamp_length": 5, "layer_norm_eps": 1e-6, **TIED}])
def test_hugging_face_comes_back_to_the_bit(tmp_path, changes):
    made, theirs = theirs_from_ours(tmp_path, TINY.replace(**changes))
    convert("huggingface", theirs, tmp_path / "back")
    back = load(str(tmp_path / "back"))
    assert back.config == made.config.replace(max_position_embeddings=512)
    assert back.vocabulary == vocabulary()
    for part in ("encoder", "head"):
        ours, found = getattr(made.objective, part), getattr(back.objective, part)
        for one, other in zip(ours.weights, found.weights, strict=True):
            np.testing.assert_array_equal(one, other)
    features = random_features(2, 6, [6, 4], vocab_size=V)
    expected = made.objective.encoder(features).sequence
    np.testing.assert_array_equal(back.objective.encoder(features).sequence, expected)
    to_elsewhere("huggingface", str(tmp_path / "back"), str(tmp_path / "again"))
    first, second = (
        load_file(tmp_path / name / "model.safetensors") for name in ("theirs", "again")
    )
    assert_equal_tensors(second, first)
    assert len(first) == 1 + 2 * (5 + 4 + 2 + 4 + 2) + 2


def test_the_two_formats_hold_the_same(tmp_path):
    """TensorFlow 1 to Hugging Face by the table of names."""
    tensors = original_tensors()
    convert("tf1", write_original(tmp_path / "original", tensors), tmp_path / "ours")
    to_elsewhere("huggingface", str(tmp_path / "ours"), str(tmp_path / "theirs"))
    found = load_file(tmp_path / "theirs" / "model.safetensors")
    scope = "model/transformer"
    for name, expected in (
        ("transformer.word_embedding.weight", tensors[f"{scope}/word_embedding/lookup_table"]),
        ("transformer.mask_emb", tensors[f"{scope}/mask_emb/mask_emb"]),
        ("lm_loss.bias", tensors["model/lm_loss/bias"]),
        ("transformer.layer.1.rel_attn.r_w_bias", tensors[f"{scope}/r_w_bias"][1]),
        ("transformer.layer.1.rel_attn.r_r_bias", tensors[f"{scope}/r_r_bias"][1]),
        ("transformer.layer.1.rel_attn.r_s_bias", tensors[f"{scope}/r_s_bias"][1]),
        ("transformer.layer.0.rel_attn.seg_embed", tensors[f"{scope}/seg_embed"][0]),
        *(
            (f"transformer.layer.1.rel_attn.{n}", tensors[f"{scope}/layer_1/rel_attn/{n}/kernel"])
            for n in "qkvro"
        ),
        (
            "transformer.layer.1.rel_attn.layer_norm.weight",
            tensors[f"{scope}/layer_1/rel_attn/LayerNorm/gamma"],
        ),
        ("transformer.layer.0.ff.layer_norm.bias", tensors[f"{scope}/layer_0/ff/LayerNorm/beta"]),
        ("transformer.layer.0.ff.layer_1.weight", tensors[f"{scope}/layer_0/ff/layer_1/kernel"].T),
        ("transformer.layer.0.ff.layer_2.bias", tensors[f"{scope}/layer_0/ff/layer_2/bias"]),
    ):
        np.testing.assert_array_equal(found[name], expected, err_msg=name)
    fields = json.loads((tmp_path / "theirs" / "config.json").read_text())
    assert fields["ff_activation"] == "gelu_new"  # which is the original's gelu
    convert("huggingface", tmp_path / "theirs", tmp_path / "again")
    to_elsewhere("tf1", str(tmp_path / "again"), str(tmp_path / "back"))
    found = read_tensors(tmp_path / "back" / "xlnet_model.ckpt")
    assert_equal_tensors(found, tensors | {"global_step": np.int64(0)})


def test_heads_of_tasks_and_moments_are_left_out(tmp_path):
    tensors = original_tensors()
    for name in ("model/lm_loss/bias", "model/transformer/mask_emb/mask_emb"):
        del tensors[name]
    extra = ["model/sequnece_summary/summary/kernel", "logits/dense/kernel", "beta1_power"]
    extra += ["model/classification_mnli/logit/bias", "model/transformer/r_w_bias/Adam"]
    tensors |= dict.fromkeys(extra, np.zeros([2], np.float32))
    source = write_original(tmp_path / "original", tensors)
    notes = "\n".join(convert("tf1", source, tmp_path / "ours"))
    assert all(name in notes for name in extra)
    assert load(str(tmp_path / "ours")).objective.head is None
    to_elsewhere("huggingface", str(tmp_path / "ours"), str(tmp_path / "theirs"))
    names = load_file(tmp_path / "theirs" / "model.safetensors")
    assert "word_embedding.weight" in names
    assert "mask_emb" not in names
    other = {**names, "logits_proj.bias": np.zeros([2], np.float32)}
    save_file(other, tmp_path / "theirs" / "model.safetensors")
    notes = convert("huggingface", tmp_path / "theirs", tmp_path / "again")
    assert "logits_proj.bias" in "\n".join(notes)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"d_head": 5}, "d_head"),
        ({"ff_activation": "swish"}, "ff_activation"),
        ({"untie_r": None}, "untie_biases"),
        ({"n_layer": "2"}, "num_hidden_layers"),
        ({"n_layer": 3}, "layer_2/"),
        ({"n_layer": 1}, "r_w_bias"),
        ({"d_inner": 25}, "ff/layer_1"),
        ({"n_token": V + 1}, "lookup_table"),
        ({"n_token": V - 1}, "spiece.model"),
    ],
)
def test_wrong_originals(tmp_path, changes, named):
    source = write_original(tmp_path / "original", original_tensors(), **changes)
    with pytest.raises(InputError) as error:
        convert("tf1", source, tmp_path / "ours")
    assert named in str(error.value)
    assert not (tmp_path / "ours").exists()


def test_wrong_tensors(tmp_path):
    tensors = original_tensors()
    unknown = {**tensors, "model/transformer/layer_1/rel_attn/x/kernel": np.zeros([2], np.float32)}
    bad = {
        **tensors,
        "model/transformer/seg_embed": tensors["model/transformer/seg_embed"] * np.nan,
    }
    for number, (held, named) in enumerate([(unknown, "rel_attn/x"), (bad, "seg_embed")]):
        source = write_original(tmp_path / str(number), held)
        with pytest.raises(InputError) as error:
            convert("tf1", source, tmp_path / "ours")
        assert named in str(error.value)
    source = write_original(tmp_path / "other", tensors)
    with pytest.raises(InputError):
        convert("tf1", source, tmp_path / "ours", model_size="xlnet-base")
    (tmp_path / "other" / "spiece.model").unlink()
    with pytest.raises(InputError):
        convert("tf1", source, tmp_path / "ours")


@pytest.mark.parametrize("weight", [None, np.zeros([V, TINY.hidden_size], np.float32)])
def test_of_an_untied_xlnet_the_encoder_is_read(tmp_path, weight):
    made, theirs = theirs_from_ours(tmp_path, TINY)
    fields = json.loads((theirs / "config.json").read_text()) | {"tie_word_embeddings": False}
    (theirs / "config.json").write_text(json.dumps(fields))
    held = load_file(theirs / "model.safetensors")
    save_file(
        held if weight is None else held | {"lm_loss.weight": weight}, theirs / "model.safetensors"
    )
    notes = "\n".join(convert("huggingface", theirs, tmp_path / "back"))
    assert all(name in notes for name in ("lm_loss.bias", "mask_emb"))
    back = load(str(tmp_path / "back")).objective
    assert back.head is None
    for one, other in zip(made.objective.encoder.weights, back.encoder.weights, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("attn_type", "uni"),
        ("bi_data", True),
        ("same_length", True),
        ("d_head", 3),
        ("ff_activation", "mish"),
        ("d_model", 17),
    ],
)
def test_what_hugging_face_computes_and_we_do_not(field, value):
    fields = {**_fields(), field: value}
    with pytest.raises(InputError):
        huggingface._config(fields, "config.json")


def _fields():
    sizes = {"d_model": 16, "n_layer": 2, "n_head": 4, "d_inner": 24, "vocab_size": V}
    return {"model_type": "xlnet", "ff_activation": "gelu", **sizes}


def test_what_hugging_face_says_besides():
    """The released file's fields: its gelu is the exact one, and memory is not used."""
    config, notes = huggingface._config(
        {**_fields(), "mem_len": 512, "end_n_top": 5}, "config.json"
    )
    assert config == XLNetConfig(
        vocab_size=V,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=24,
        hidden_act="gelu",
    )
    said = "\n".join(notes)
    assert all(name in said for name in ("mem_len", "end_n_top", "gelu_new", "dropout"))


def test_other_vocabularies_are_rejected(tmp_path):
    source = write_original(tmp_path / "original", original_tensors())
    words = tmp_path / "vocab.txt"
    words.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"]) + "\n")
    with pytest.raises(InputError):
        convert("tf1", source, tmp_path / "ours", vocab=str(words))
    assert original_fields()["n_token"] == V
