"""Folders that are not read and models that are not written: file and field are named."""

from __future__ import annotations

import dataclasses
import json
import shutil

import numpy as np
import pytest

from checkpoints import huggingface
from data.vocabulary import Vocabulary
from tests.huggingface_support import (
    FOLDER,
    WEIGHTS,
    V,
    added_entry,
    change_json,
    change_tensors,
    copied,
    load,
    read,
    rejected,
)

CONFIG, SWITCHES, TOKENIZER = "config.json", "tokenizer_config.json", "tokenizer.json"
INDEX = "model.safetensors.index.json"
QUERY = "convbert.encoder.layer.1.attention.self.query.weight"


def assert_rejected(folder, *named, **options):
    """Reading raises InputError, whose sentence names all of these."""
    with rejected(*named):
        read(folder, **options)


def added(*entries, first=V, **flags):
    """`added_tokens_decoder` with these entries, or with one of this text and these flags."""
    entries = [added_entry(e, **flags) if isinstance(e, str) else e for e in entries]
    return {"added_tokens_decoder": dict(enumerate(entries, first))}


FIELDS = {
    CONFIG: [
        ({"model_type": "roberta"}, "xlnet"),  # among all that are converted
        ({"model_type": ["bert"]}, "model_type"),
        ({"layer_norm_eps": 0}, "layer_norm_eps"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type"),
        ({"is_decoder": True}, "is_decoder"),
        ({"add_cross_attention": True}, "add_cross_attention"),
        ({"pruned_heads": {"0": [1]}}, "pruned_heads"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"auto_map": {"AutoModel": "own.Model"}}, "auto_map"),
        ({"hidden_act": "quick_gelu"}, "hidden_act"),
        ({"hidden_act": {}}, "hidden_act"),
        ({"head_ratio": 0}, "head_ratio"),
        ({"hidden_size": 15}, "hidden_size"),
        ({"hidden_size": None}, "hidden_size"),
        ({"vocab_size": 136}, "vocab_size"),
        ({"tokenizer_class": "BertJapaneseTokenizer"}, "BertJapaneseTokenizer"),
    ],
    SWITCHES: [
        ({"tokenize_chinese_chars": False}, "tokenize_chinese_chars"),
        ({"do_basic_tokenize": False}, "do_basic_tokenize"),
        ({"wordpieces_prefix": "@@"}, "wordpieces_prefix"),
        ({"mask_token": "<mask>"}, "mask_token"),
        ({"unk_token": {"content": "<unk>"}}, "unk_token"),
        ({"tokenizer_class": "BertJapaneseTokenizer"}, "BertJapaneseTokenizer"),
        ({"do_lower_case": "yes"}, "do_lower_case"),
        ({"max_input_chars_per_word": 50}, "max_input_chars_per_word"),
        ({"never_split": ["<Z>"]}, "never_split"),
        ({"truncation_side": "left"}, "truncation_side"),
        # Contradictions with tokenizer.json, and the flag that decides.
        ({"do_lower_case": True}, "--nodo_lower_case"),
        ({"strip_accents": True}, "--nostrip_accents"),
        # Added tokens.
        ({"added_tokens_decoder": [1]}, "added_tokens_decoder"),
        ({"added_tokens_decoder": {"x": {}}}, "added_tokens_decoder"),
        (added(1), "content"),
        (added("<Z>", first=140), "<Z>"),
        (added("[of]", first=20), "[of]"),
        (added("the"), "the"),
        (added("<X>", single_word=True), "single_word"),
        (added("<X>", special=1), "special"),
        (added(""), "content"),
        (added("a b"), "a b"),
        (added("##ings"), "##ings"),
        (added("word", normalized=False), "normalized"),
        (added("<a<", "<b>"), "<a<"),
        ({"extra_special_tokens": ["<Q>"]}, "<Q>"),
        (
            {"split_special_tokens": True, **added("<X>", special=True, normalized=False)},
            "split_special_tokens",
        ),
    ],
    TOKENIZER: [  # fields of a section
        ({"model": {"type": "BPE"}}, "type"),
        ({"model": {"continuing_subword_prefix": "@@"}}, "continuing_subword_prefix"),
        ({"model": {"unk_token": "[MASK]"}}, "unk_token"),
        ({"model": {"max_input_chars_per_word": 5}}, "max_input_chars_per_word"),
        ({"model": {"vocab": None}}, "vocab"),
        ({"model": {"vocab": {"gap": 500}}}, "ids"),
        ({"model": {"vocab": {"[CLS]": 0}}}, "[MASK]"),
        ({"pre_tokenizer": {"type": "Whitespace"}}, "pre_tokenizer"),
        ({"post_processor": {"type": "ByteLevel"}}, "post_processor"),
        ({"post_processor": {"single": []}}, "post_processor"),
        ({"normalizer": {"handle_chinese_chars": False}}, "handle_chinese_chars"),
        ({"normalizer": {"clean_text": False}}, "clean_text"),
        ({"normalizer": {"type": "Sequence"}}, "type"),
    ],
}


@pytest.mark.parametrize(
    ("file", "changes", "field"),
    [(file, *row) for file, rows in FIELDS.items() for row in rows],
    ids=str,
)
def test_fields(file, changes, field, tmp_path):
    folder = copied("convbert" if file == CONFIG else "bert", tmp_path)
    if file == CONFIG:  # whose class of tokenizer counts where no other file has one
        change_json(folder / SWITCHES, tokenizer_class="absent")
    elif file == TOKENIZER:
        whole = json.loads((folder / TOKENIZER).read_text(encoding="utf-8"))
        changes = {section: whole[section] | values for section, values in changes.items()}
    change_json(folder / file, **changes)
    assert_rejected(folder, str(folder), field)


def test_files_that_are_missing(tmp_path):
    assert_rejected(tmp_path / "nothing", "nothing")
    folder = copied("bert", tmp_path)
    (folder / CONFIG).write_text("{")
    assert_rejected(folder, CONFIG, "JSON")
    (folder / CONFIG).unlink()
    assert_rejected(folder, CONFIG)
    # One that lies elsewhere does as well.
    given = str(FOLDER / "bert" / CONFIG)
    assert read(folder, config=given).config == load("bert").config
    (folder / WEIGHTS).rename(folder / "pytorch_model.bin")  # pickles are not read
    assert_rejected(folder, "pytorch_model.bin", "save_pretrained", config=given)
    (folder / "pytorch_model.bin").unlink()
    assert_rejected(folder, WEIGHTS, config=given)
    shutil.copy(FOLDER / "bert" / WEIGHTS, folder)
    (folder / TOKENIZER).unlink()
    assert_rejected(folder, str(folder), "--vocab", config=given)


@pytest.mark.parametrize(
    ("name", "make"),  # of the query's kernel; None takes a tensor away
    [
        (QUERY, None),
        (QUERY, lambda query: query[:, :6]),
        (QUERY, lambda query: query.astype(np.int8)),
        (QUERY, lambda query: query * np.float32(np.nan)),
        ("convbert.extra", np.copy),
        ("generator_predictions.x", np.copy),
        ("convbert.embeddings.LayerNorm.gamma", lambda query: query[0]),  # beside `weight`
    ],
)
def test_tensors(name, make, tmp_path):
    def change(held):
        made = {name: make(held[QUERY])} if make else {}
        return {key: tensor for key, tensor in held.items() if key != name} | made

    folder = copied("convbert", tmp_path)
    change_tensors(folder, change)
    assert_rejected(folder, str(folder), name)


@pytest.mark.parametrize("length", [0, 7, 2000, -1])
def test_truncated_file(length, tmp_path):
    path = copied("convbert", tmp_path) / WEIGHTS
    path.write_bytes(path.read_bytes()[:length])
    assert_rejected(path.parent, str(path))


def test_shards(tmp_path):
    folder = copied("convbert_grouped", tmp_path)
    index = folder / INDEX
    shard_of = json.loads(index.read_text())["weight_map"]
    name = next(name for name, shard in shard_of.items() if "00002" in shard)
    shard = folder / shard_of[name]
    for shards, named in (
        ({**shard_of, name: f"../{shard.name}"}, f"../{shard.name}"),
        ({**shard_of, name: 2}, "shard 2"),
        ([], "weight_map"),
    ):
        change_json(index, weight_map=shards)
        assert_rejected(folder, str(index), named)
    shutil.copy(shard, folder / "twice.safetensors")
    change_json(index, weight_map={**shard_of, "extra": "twice.safetensors"})
    assert_rejected(folder, "twice.safetensors")
    change_json(index, weight_map=shard_of)
    shard.unlink()
    assert_rejected(folder, str(index), shard.name)


def test_generators_that_do_not_belong(tmp_path):
    inside = FOLDER / "electra" / "generator"
    assert_rejected(FOLDER / "bert", "discriminator", generator=str(inside))
    folder = copied("electra", tmp_path)
    small = folder / "generator"
    for other in ("electra", "convbert"):
        assert_rejected(folder, "masked-LM head", generator=str(FOLDER / other))
    change_json(small / CONFIG, num_attention_heads=4)
    assert_rejected(folder, str(small), "num_attention_heads")
    change_json(small / CONFIG, num_attention_heads=2)

    def other_embeddings(held):
        held["electra.embeddings.position_embeddings.weight"][0, 0] += 1
        return held

    change_tensors(small, other_embeddings)
    assert_rejected(folder, str(small), "embedding_size")
    shutil.rmtree(small)
    shutil.copytree(inside, small)
    shutil.copy(FOLDER / "bert" / TOKENIZER, small)
    assert_rejected(folder, str(small), "vocabulary")


def test_another_vocabulary_is_not_written(tmp_path):
    ours = load("bert")
    fewer = Vocabulary(ours.vocabulary.tokens[:-1])
    with rejected("vocab_size"):
        huggingface.write(dataclasses.replace(ours, vocabulary=fewer), str(tmp_path))
