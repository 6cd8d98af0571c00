"""Tokenizer files: which of them is believed, what contradicts, and what is written."""

from __future__ import annotations

import json

import pytest

from checkpoints.huggingface.tokenizer import read_vocabulary, write_tokenizer
from data.vocabulary import Vocabulary
from errors import InputError
from tests.huggingface_support import FOLDER, change_json, copied, load

CONFIG, TOKENIZER = "tokenizer_config.json", "tokenizer.json"


def read(folder, **options) -> Vocabulary:
    return read_vocabulary(str(folder), **options)[0]


def refused(folder, **options) -> str:
    with pytest.raises(InputError) as error:
        read(folder, **options)
    assert str(folder) in str(error.value)
    return str(error.value)


def change_normalizer(folder, **changes):
    tokenizer = json.loads((folder / TOKENIZER).read_text(encoding="utf-8"))
    change_json(folder / TOKENIZER, normalizer={**tokenizer["normalizer"], **changes})


def change_model(folder, **changes):
    tokenizer = json.loads((folder / TOKENIZER).read_text(encoding="utf-8"))
    change_json(folder / TOKENIZER, model={**tokenizer["model"], **changes})


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


@pytest.mark.parametrize("switch", ["do_lower_case", "strip_accents"])
def test_contradiction(switch, tmp_path):
    folder = copied("bert", tmp_path)
    change_json(folder / CONFIG, **{switch: True})
    sentence = refused(folder)
    assert f"`{switch}` is True in {CONFIG} and False in {TOKENIZER}" in sentence
    assert f"--no{switch}" in sentence
    assert getattr(read(folder, **{switch: True}), switch) is True


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"tokenize_chinese_chars": False}, "`tokenize_chinese_chars` should be True"),
        ({"do_basic_tokenize": False}, "`do_basic_tokenize` should be True"),
        ({"wordpieces_prefix": "@@"}, "`wordpieces_prefix` should be '##'"),
        ({"mask_token": "<mask>"}, "`mask_token` should be '[MASK]'"),
        ({"unk_token": {"content": "<unk>"}}, "`unk_token` should be '[UNK]'"),
        ({"tokenizer_class": "BertJapaneseTokenizer"}, "Received: BertJapaneseTokenizer"),
        ({"do_lower_case": "yes"}, "`do_lower_case` should be true or false"),
    ],
)
def test_other_settings(changes, complaint, tmp_path):
    folder = copied("bert", tmp_path)
    change_json(folder / CONFIG, **changes)
    assert complaint in refused(folder)


def test_class_named_by_the_model(tmp_path):
    folder = copied("convbert", tmp_path)
    change_json(folder / CONFIG, tokenizer_class="absent")
    assert read(folder) == load("convbert").vocabulary
    change_json(folder / "config.json", tokenizer_class="BertJapaneseTokenizer")
    assert "BertJapaneseTokenizer" in refused(folder)
    assert read(folder, vocab=str(folder)).size == 137
    (folder / "config.json").unlink()
    assert read(folder) == load("convbert").vocabulary
    change_json(folder / CONFIG, tokenizer_class="BertTokenizerFast")
    assert read(folder) == load("convbert").vocabulary
    change_json(folder / CONFIG, mask_token={"content": "[MASK]", "lstrip": False})
    assert read(folder) == load("convbert").vocabulary


def test_other_tokenizers(tmp_path):
    folder = copied("bert", tmp_path)
    ids = load("bert").vocabulary.ids
    change_model(folder, type="BPE")
    assert "the model should be WordPiece. Received: 'BPE'" in refused(folder)
    change_model(folder, type="WordPiece", continuing_subword_prefix="@@")
    assert "`continuing_subword_prefix` should be '##'" in refused(folder)
    change_model(folder, continuing_subword_prefix="##", vocab={**ids, "gap": 500})
    assert "ids of its 138 tokens should count from 0" in refused(folder)
    change_model(folder, vocab={**ids, "text": "137"})
    assert "ids of its 138 tokens should count from 0" in refused(folder)
    change_model(folder, vocab={("[mask]" if t == "[MASK]" else t): i for t, i in ids.items()})
    assert "without [MASK]" in refused(folder)
    change_model(folder, vocab=ids)
    assert read(folder) == load("bert").vocabulary
    change_model(folder, unk_token="[MASK]")
    assert "`unk_token` should be '[UNK]'" in refused(folder)
    change_model(folder, unk_token="[UNK]")
    whole = json.loads((folder / TOKENIZER).read_text())
    change_json(folder / TOKENIZER, pre_tokenizer={"type": "Whitespace"})
    assert "`pre_tokenizer` should be 'BertPreTokenizer'" in refused(folder)
    added = [*(whole.get("added_tokens") or []), {"id": 20, "content": "<X>", "special": False}]
    change_json(folder / TOKENIZER, pre_tokenizer=whole["pre_tokenizer"], added_tokens=added)
    assert "the id of the added token '<X>' should be 137, the next one" in refused(folder)
    change_json(folder / TOKENIZER, added_tokens=whole.get("added_tokens"))
    change_normalizer(folder, handle_chinese_chars=False)
    assert "`handle_chinese_chars` of the normalizer should be True" in refused(folder)
    change_json(folder / TOKENIZER, normalizer=None)
    assert "`type` of the normalizer should be 'BertNormalizer'" in refused(folder)


def test_two_vocabularies_or_none(tmp_path):
    folder = copied("bert", tmp_path)
    tokens = load("bert").vocabulary.tokens
    (folder / "vocab.txt").write_text("\n".join([*tokens[:-2], tokens[-1], tokens[-2]]) + "\n")
    assert "holds other tokens than tokenizer.json" in refused(folder)
    (folder / "vocab.txt").unlink()
    (folder / TOKENIZER).unlink()
    assert "say where the vocabulary is with --vocab" in refused(folder)


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
