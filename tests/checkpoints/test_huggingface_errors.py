"""Folders that are not read and models that are not written: file and field are named."""

import json
import shutil

import numpy as np
import pytest

from tests import huggingface_support as hf
from tests.finetune.kinds_support import rejects

CONFIG, SWITCHES, TOKENIZER = "config.json", "tokenizer_config.json", "tokenizer.json"
QUERY = "convbert.encoder.layer.1.attention.self.query.weight"


def assert_rejected(folder, *named, **options):
    """Reading raises InputError, whose sentence names all of these."""
    with rejects(*named):
        hf.read(folder, **options)


FIELDS = {
    CONFIG: [
        ({"model_type": "roberta"}, "xlnet"),  # among all that are converted
        ({"position_embedding_type": "relative_key"}, "position_embedding_type"),
        ({"auto_map": {"AutoModel": "own.Model"}}, "auto_map"),
        ({"hidden_act": "quick_gelu"}, "hidden_act"),
        ({"tokenizer_class": "BertJapaneseTokenizer"}, "BertJapaneseTokenizer"),
    ],
    SWITCHES: [
        ({"tokenize_chinese_chars": False}, "tokenize_chinese_chars"),
        ({"tokenizer_class": "BertJapaneseTokenizer"}, "BertJapaneseTokenizer"),
        # Contradictions with tokenizer.json, and the flag that decides.
        ({"do_lower_case": True}, "--nodo_lower_case"),
        ({"strip_accents": True}, "--nostrip_accents"),
        ({"added_tokens_decoder": {"137": hf.added_entry("<Z>")}}, "<Z>"),
        ({"added_tokens_decoder": {"20": 1}}, "added tokens"),
    ],
    TOKENIZER: [  # fields of a section
        ({"model": {"type": "BPE"}}, "type"),
        ({"model": {"vocab": {"gap": 500}}}, "ids"),
        ({"pre_tokenizer": {"type": "Whitespace"}}, "pre_tokenizer"),
        ({"post_processor": {"type": "ByteLevel"}}, "post_processor"),
        ({"normalizer": {"handle_chinese_chars": False}}, "handle_chinese_chars"),
    ],
}


@pytest.mark.parametrize(
    ("file", "changes", "field"),
    [(file, *row) for file, rows in FIELDS.items() for row in rows],
    ids=str,
)
def test_fields(file, changes, field, tmp_path):
    folder = hf.copied("convbert" if file == CONFIG else "bert", tmp_path)
    if file == CONFIG:  # whose class of tokenizer counts where no other file has one
        hf.change_json(folder / SWITCHES, tokenizer_class="absent")
    elif file == TOKENIZER:
        whole = json.loads((folder / TOKENIZER).read_text(encoding="utf-8"))
        changes = {section: whole[section] | values for section, values in changes.items()}
    hf.change_json(folder / file, **changes)
    assert_rejected(folder, str(folder), field)


def test_files_that_are_missing(tmp_path):
    assert_rejected(tmp_path / "nothing", "nothing")
    folder = hf.copied("bert", tmp_path)
    (folder / hf.WEIGHTS).rename(folder / "pytorch_model.bin")  # pickles are not read
    assert_rejected(folder, "pytorch_model.bin", "save_pretrained")
    (folder / "pytorch_model.bin").unlink()
    assert_rejected(folder, hf.WEIGHTS)
    shutil.copy(hf.FOLDER / "bert" / hf.WEIGHTS, folder)
    (folder / TOKENIZER).unlink()
    assert_rejected(folder, str(folder), "--vocab")


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

    folder = hf.copied("convbert", tmp_path)
    hf.change_tensors(folder, change)
    assert_rejected(folder, str(folder), name)
