"""Files of others: which is believed, and what is rejected, naming file and field."""

import json
import shutil

import numpy as np
import pytest

from convbert.checkpoints.huggingface.tokenizer import read_vocabulary
from convbert.checkpoints.model_directory import Options
from convbert.data.vocabulary import Vocabulary
from tests import huggingface_support as hf
from tests.finetune.kinds_support import rejects

CONFIG, SWITCHES, TOKENIZER = "config.json", "tokenizer_config.json", "tokenizer.json"
QUERY = "convbert.encoder.layer.1.attention.self.query.weight"


def assert_rejected(folder, *named, **options):
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


def read_words(folder, **options) -> Vocabulary:
    return read_vocabulary(str(folder), Options(**options))


@pytest.mark.parametrize("lacking", [TOKENIZER, SWITCHES])
def test_one_of_the_files_is_enough(lacking, tmp_path):
    folder, expected = hf.copied("electra", tmp_path), hf.load("electra").vocabulary
    (folder / lacking).unlink()
    if lacking == TOKENIZER:
        expected.save(tmp_path / "vocabulary")
        (tmp_path / "vocabulary" / "vocab.txt").rename(folder / "vocab.txt")
    assert read_words(folder) == expected


def test_what_the_user_says_goes_first(tmp_path):
    folder = hf.copied("electra", tmp_path)
    assert read_words(folder, do_lower_case=False).do_lower_case is False
    assert read_words(folder, strip_accents=True).strip_accents is True
    other = Vocabulary(hf.load("bert").vocabulary.tokens[:-1])
    other.save(tmp_path / "other")
    assert read_words(folder, vocab=str(tmp_path / "other")) == other


SPECIAL, NEW = hf.added_entry("[MASK]", special=True), hf.added_entry("<X>", special=True)
FILES = {
    TOKENIZER: lambda entry: {"added_tokens": [{"id": hf.V, **entry}]},
    SWITCHES: lambda entry: {"added_tokens_decoder": {str(hf.V): entry}},
    "special_tokens_map.json": lambda entry: {"additional_special_tokens": [entry["content"]]},
    "added_tokens.json": lambda entry: {entry["content"]: hf.V},
}


@pytest.mark.parametrize("name", FILES)
def test_added_tokens_are_rejected(name, tmp_path):
    folder = hf.copied("electra", tmp_path)
    for entry in (SPECIAL, NEW):
        before = json.loads((folder / name).read_text()) if (folder / name).exists() else {}
        (folder / name).write_text(json.dumps({**before, **FILES[name](entry)}))
        if entry is SPECIAL:
            assert read_words(folder) == hf.load("electra").vocabulary
    with rejects("<X>"):
        read_words(folder)
