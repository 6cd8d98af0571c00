"""XLNet from and to TensorFlow 1 and Hugging Face: every tensor, every bit, and errors."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file

from convbert.checkpoints.formats import from_elsewhere, to_elsewhere
from convbert.checkpoints.model_directory import Options, load, save
from convbert.model import load_config
from tests import xlnet_support as xlnets
from tests.finetune.kinds_support import rejects
from tests.huggingface_support import WEIGHTS, change_json, change_tensors
from tests.model_support import random_features
from tests.tf1_support import GOLDEN, assert_equal_tensors, read_tensors


def convert(source, path, output, **options):
    return from_elsewhere(source, str(path), str(output), Options(**options))


def theirs_from_ours(path, config):
    made = xlnets.conversion(config)
    save(made, str(path / "ours"), {"notes": []})
    notes = to_elsewhere("huggingface", str(path / "ours"), str(path / "theirs"))
    assert any("max_position_embeddings" in note for note in notes)
    return made, path / "theirs"


def test_an_original_comes_back_to_the_bit(tmp_path):
    """And what it computes is what its names and equations say, in one stream and in two."""
    tensors = xlnets.original_tensors() | {"global_step": np.int64(12)}
    source = xlnets.write_original(tmp_path / "original", tensors)
    convert("tf1", source, tmp_path / "ours")
    assert load_config(str(tmp_path / "ours")) == xlnets.TINY.replace(max_position_embeddings=512)
    assert (tmp_path / "ours" / "spiece.model").read_bytes() == xlnets.WORDS.model
    objective, lengths = load(str(tmp_path / "ours")).objective, (6, 4)
    features = random_features(2, 6, lengths, vocab_size=xlnets.V)
    features["segment_ids"][[0, 1], [5, 3]] = 2  # the last token's is a third
    draw, P = np.random.default_rng(3), 3
    ranks = [np.r_[draw.permutation(n), n:6] for n in lengths]  # of padding the last ones
    permitted = np.stack([(rank[:, None] > rank) | (rank == 0) for rank in ranks])
    targets = np.stack([draw.choice(n, P, replace=False) for n in lengths]).astype(np.int32)
    encoder, mask = objective.encoder, objective.head.mask_embedding
    plain, both = encoder(features), encoder.two_streams(features, permitted, targets, mask)
    for text, n in enumerate(lengths):
        rows = [features[name][text, :n] for name in ("input_ids", "segment_ids")]
        seen = permitted[text, :n, :n], targets[text]
        states, _ = xlnets.original_output(tensors, encoder.config, *rows)
        np.testing.assert_allclose(plain.sequence[text, :n], states, atol=2e-5)
        np.testing.assert_array_equal(plain.pooled[text], plain.sequence[text, n - 1])
        states, queries = xlnets.original_output(tensors, encoder.config, *rows, *seen)
        np.testing.assert_allclose(both.content.sequence[text, :n], states, atol=2e-5)
        np.testing.assert_allclose(both.queries[text], queries, atol=2e-5)
    to_elsewhere("tf1", str(tmp_path / "ours"), str(tmp_path / "again"))
    assert_equal_tensors(read_tensors(tmp_path / "again" / "xlnet_model.ckpt"), tensors)
    for name in ("xlnet_config.json", "spiece.model"):
        before, after = (tmp_path / part / name for part in ("original", "again"))
        read = json.loads if name.endswith("json") else bytes
        assert read(before.read_bytes()) == read(after.read_bytes())


@pytest.mark.parametrize("changes", [{}, {"layer_norm_eps": 1e-6}])
def test_hugging_face_comes_back_to_the_bit(tmp_path, changes):
    made, theirs = theirs_from_ours(tmp_path, xlnets.TINY.replace(**changes))
    convert("huggingface", theirs, tmp_path / "back")
    back = load(str(tmp_path / "back"))
    assert back.config == made.config.replace(max_position_embeddings=512)
    assert back.vocabulary == xlnets.WORDS
    for part in ("encoder", "head"):
        ours, found = (getattr(of.objective, part).get_weights() for of in (made, back))
        np.testing.assert_equal(found, ours)
    to_elsewhere("huggingface", str(tmp_path / "back"), str(tmp_path / "again"))
    first, second = (load_file(tmp_path / name / WEIGHTS) for name in ("theirs", "again"))
    assert_equal_tensors(second, first)
    assert len(first) == 1 + 2 * (5 + 4 + 2 + 4 + 2) + 2


def test_the_two_formats_hold_the_same(tmp_path):
    tensors = xlnets.original_tensors()
    convert("tf1", xlnets.write_original(tmp_path / "original", tensors), tmp_path / "ours")
    to_elsewhere("huggingface", str(tmp_path / "ours"), str(tmp_path / "theirs"))
    found = load_file(tmp_path / "theirs" / WEIGHTS)
    ours = {name.removeprefix("model/transformer/"): value for name, value in tensors.items()}
    expected = {
        "word_embedding.weight": ours["word_embedding/lookup_table"],
        "mask_emb": ours["mask_emb/mask_emb"],
        **{f"layer.1.rel_attn.r_{n}_bias": ours[f"r_{n}_bias"][1] for n in "wrs"},
        "layer.0.rel_attn.seg_embed": ours["seg_embed"][0],
        **{f"layer.1.rel_attn.{n}": ours[f"layer_1/rel_attn/{n}/kernel"] for n in "qkvro"},
        "layer.1.rel_attn.layer_norm.weight": ours["layer_1/rel_attn/LayerNorm/gamma"],
        "layer.0.ff.layer_norm.bias": ours["layer_0/ff/LayerNorm/beta"],
        "layer.0.ff.layer_1.weight": ours["layer_0/ff/layer_1/kernel"].T,
        "layer.0.ff.layer_2.bias": ours["layer_0/ff/layer_2/bias"],
    }
    for name, value in expected.items():
        np.testing.assert_array_equal(found[f"transformer.{name}"], value, err_msg=name)
    np.testing.assert_array_equal(found["lm_loss.bias"], tensors["model/lm_loss/bias"])
    fields = json.loads((tmp_path / "theirs" / "config.json").read_text())
    assert fields["ff_activation"] == "gelu_new"  # which is the original's gelu


def test_heads_of_tasks_and_moments_are_left_out(tmp_path):
    tensors = xlnets.original_tensors()
    for name in ("model/lm_loss/bias", "model/transformer/mask_emb/mask_emb"):
        del tensors[name]
    extra = ["model/sequnece_summary/summary/kernel", "logits/dense/kernel", "beta1_power"]
    extra += ["model/classification_mnli/logit/bias", "model/transformer/r_w_bias/Adam"]
    tensors |= dict.fromkeys(extra, np.zeros([2], np.float32))
    source = xlnets.write_original(tmp_path / "original", tensors)
    notes = "\n".join(convert("tf1", source, tmp_path / "ours"))
    assert all(name in notes for name in extra)
    assert load(str(tmp_path / "ours")).objective.head is None
    to_elsewhere("huggingface", str(tmp_path / "ours"), str(tmp_path / "theirs"))
    names = load_file(tmp_path / "theirs" / WEIGHTS)
    assert "word_embedding.weight" in names
    assert "mask_emb" not in names

    def of_a_task(held):
        held = {f"transformer.{name}": tensor for name, tensor in held.items()}
        return held | {"logits_proj.bias": np.zeros([2], np.float32)}

    change_tensors(tmp_path / "theirs", of_a_task)
    notes = convert("huggingface", tmp_path / "theirs", tmp_path / "again")
    assert "logits_proj.bias" in "\n".join(notes)


@pytest.mark.parametrize(
    ("fields", "options", "named"),
    [
        ({"ff_activation": "swish"}, {}, "ff_activation"),
        ({"n_layer": 3}, {}, "layer_2/"),
        ({"n_token": xlnets.V - 1}, {}, "spiece.model"),
        ({}, {"model_size": "xlnet-base"}, "model_size"),
        ({}, {"vocab": str(GOLDEN / "electra")}, "vocab.txt"),
    ],
)
def test_wrong_originals(tmp_path, fields, options, named):
    source = xlnets.write_original(tmp_path / "original", xlnets.original_tensors(), **fields)
    with rejects(named):
        convert("tf1", source, tmp_path / "ours", **options)
    assert not (tmp_path / "ours").exists()


@pytest.mark.parametrize("added", [{}, {"lm_loss.weight": np.zeros([xlnets.V, 16], np.float32)}])
def test_of_an_untied_xlnet_the_encoder_is_read(tmp_path, added):
    made, theirs = theirs_from_ours(tmp_path, xlnets.TINY)
    change_json(theirs / "config.json", tie_word_embeddings=False)
    change_tensors(theirs, lambda held: held | added)
    notes = "\n".join(convert("huggingface", theirs, tmp_path / "back"))
    assert all(name in notes for name in ("lm_loss.bias", "mask_emb"))
    back = load(str(tmp_path / "back")).objective
    assert back.head is None
    np.testing.assert_equal(back.encoder.get_weights(), made.objective.encoder.get_weights())


OTHERWISE = [("attn_type", "uni"), ("bi_data", True), ("same_length", True)]
OTHERWISE += [("ff_activation", "mish"), ("d_model", 17)]


def test_fields_of_hugging_face(tmp_path):
    """Rejects fields that change the computation; reads the released file's (exact gelu)."""
    _, theirs = theirs_from_ours(tmp_path, xlnets.TINY)
    path = theirs / "config.json"
    ours = json.loads(path.read_text())
    for field, value in OTHERWISE:
        change_json(path, **{field: value})
        with rejects(str(path)):
            convert("huggingface", theirs, tmp_path / "back")
        change_json(path, **{field: ours[field]})
    change_json(path, mem_len=512, end_n_top=5, ff_activation="gelu", dropout="absent")
    notes = "\n".join(convert("huggingface", theirs, tmp_path / "back"))
    expected = xlnets.TINY.replace(hidden_act="gelu", max_position_embeddings=512)
    assert load_config(str(tmp_path / "back")) == expected
    assert all(name in notes for name in ("mem_len", "end_n_top", "gelu_new", "dropout"))
