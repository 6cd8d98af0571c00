"""Tokenizer files: which of them is believed, and what is written."""

from __future__ import annotations

import json

import pytest

from checkpoints.huggingface.tokenizer import read_vocabulary, write_tokenizer
from data.vocabulary import Vocabulary
from tests.huggingface_support import FOLDER, change_json, copied, load

CONFIG, TOKENIZER = "tokenizer_config.json", "tokenizer.json"


def read(folder, **options) -> Vocabulary:
    return read_vocabulary(str(folder), **options)[0]


def change_normalizer(folder, **changes):
    tokenizer = json.loads((folder / TOKENIZER).read_text(encoding="utf-8"))
    change_json(folder / TOKENIZER, normalizer={**tokenizer["normalizer"], **changes})


def test_switches():
    expected = {
        "convbert": (True, True),
        "convbert_grouped": (False, False),
        "electra": (True, False),
        "bert": (False, False),
    }
    for name, switches in expected.items():
        vocabulary, (note,) = read_vocabulary(str(FOLDER / name))
        assert (vocabulary.do_lower_case, vocabulary.strip_accents) == switches
        assert f"do_lower_case {switches[0]}, strip_accents {switches[1]}" in note
        assert ("vocab.txt" in note) == (name == "convbert")


def test_the_files_of_one_vocabulary_agree(tmp_path):
    folder = copied("electra", tmp_path)
    for files in ((TOKENIZER,), (CONFIG,)):  # what transformers writes today, then what it wrote
        for file in files:
            (folder / file).rename(folder / f"{file}.away")
        if TOKENIZER in files:
            load("electra").vocabulary.save(tmp_path / "vocabulary")
            (tmp_path / "vocabulary" / "vocab.txt").rename(folder / "vocab.txt")
        else:
            (folder / "vocab.txt").unlink(missing_ok=True)
        assert read(folder) == load("electra").vocabulary
        for file in files:
            (folder / f"{file}.away").rename(folder / file)


def test_what_the_user_says_goes_first(tmp_path):
    folder = copied("electra", tmp_path)
    assert read(folder, do_lower_case=False).do_lower_case is False
    assert read(folder, strip_accents=True).strip_accents is True
    other = Vocabulary(load("bert").vocabulary.tokens[:-1])
    other.save(tmp_path / "other")
    given, notes = read_vocabulary(str(folder), vocab=str(tmp_path / "other"))
    assert given == other
    assert "136 tokens" in notes[0]


def test_null_is_as_the_casing(tmp_path):
    folder = copied("bert", tmp_path)
    change_json(folder / CONFIG, strip_accents=None, do_lower_case="absent")
    change_normalizer(folder, strip_accents=None, lowercase=True)
    assert read(folder).strip_accents is True
    assert read(folder, do_lower_case=False).strip_accents is False
    # Of two files that seem to disagree, null and false are the same where case is kept.
    change_json(folder / CONFIG, strip_accents=False)
    assert read(folder, do_lower_case=False).strip_accents is False


def test_class_named_by_the_model(tmp_path):
    folder = copied("convbert", tmp_path)
    change_json(folder / CONFIG, tokenizer_class="absent")
    assert read(folder) == load("convbert").vocabulary
    change_json(folder / "config.json", tokenizer_class="BertJapaneseTokenizer")
    assert read(folder, vocab=str(folder)).size == 137
    (folder / "config.json").unlink()
    assert read(folder) == load("convbert").vocabulary
    change_json(folder / CONFIG, tokenizer_class="BertTokenizerFast")
    assert read(folder) == load("convbert").vocabulary
    change_json(folder / CONFIG, mask_token={"content": "[MASK]", "lstrip": False})
    assert read(folder) == load("convbert").vocabulary


@pytest.mark.parametrize("switches", [(True, True), (True, False), (False, True), (False, False)])
def test_written_files(switches, tmp_path):
    tokens = load("bert").vocabulary.tokens
    vocabulary = Vocabulary(tokens, do_lower_case=switches[0], strip_accents=switches[1])
    write_tokenizer(vocabulary, str(tmp_path), 24)
    assert read(tmp_path) == vocabulary
    assert Vocabulary.load(tmp_path) == vocabulary
    settings = json.loads((tmp_path / CONFIG).read_text())
    assert settings["model_max_length"] == 24
    assert settings["mask_token"] == "[MASK]"
    assert not (tmp_path / TOKENIZER).exists()


def test_pieces_that_transformers_would_strip_are_said(tmp_path):
    vocabulary = Vocabulary((*load("bert").vocabulary.tokens, "edge\u00a0"))
    (note,) = write_tokenizer(vocabulary, str(tmp_path), 24)
    assert "edge" in note
