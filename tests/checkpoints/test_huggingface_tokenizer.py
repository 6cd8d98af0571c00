"""Tokenizer files: which of them is believed, what is written and what is rejected."""

import json

import pytest

from convbert.checkpoints.huggingface.tokenizer import read_vocabulary
from convbert.checkpoints.model_directory import Options
from convbert.data.vocabulary import Vocabulary
from tests.finetune.kinds_support import rejects
from tests.huggingface_support import V, added_entry, copied, load

CONFIG, TOKENIZER = "tokenizer_config.json", "tokenizer.json"


def read(folder, **options) -> Vocabulary:
    return read_vocabulary(str(folder), Options(**options))


@pytest.mark.parametrize("lacking", [TOKENIZER, CONFIG])
def test_one_of_the_files_is_enough(lacking, tmp_path):
    folder, expected = copied("electra", tmp_path), load("electra").vocabulary
    (folder / lacking).unlink()
    if lacking == TOKENIZER:
        expected.save(tmp_path / "vocabulary")
        (tmp_path / "vocabulary" / "vocab.txt").rename(folder / "vocab.txt")
    assert read(folder) == expected


def test_what_the_user_says_goes_first(tmp_path):
    folder = copied("electra", tmp_path)
    assert read(folder, do_lower_case=False).do_lower_case is False
    assert read(folder, strip_accents=True).strip_accents is True
    other = Vocabulary(load("bert").vocabulary.tokens[:-1])
    other.save(tmp_path / "other")
    assert read(folder, vocab=str(tmp_path / "other")) == other


SPECIAL, NEW = added_entry("[MASK]", special=True), added_entry("<X>", special=True)
FILES = {
    TOKENIZER: lambda entry: {"added_tokens": [{"id": V, **entry}]},
    CONFIG: lambda entry: {"added_tokens_decoder": {str(V): entry}},
    "special_tokens_map.json": lambda entry: {"additional_special_tokens": [entry["content"]]},
    "added_tokens.json": lambda entry: {entry["content"]: V},
}


@pytest.mark.parametrize("name", FILES)
def test_added_tokens_are_rejected(name, tmp_path):
    folder = copied("electra", tmp_path)
    for entry in (SPECIAL, NEW):
        before = json.loads((folder / name).read_text()) if (folder / name).exists() else {}
        (folder / name).write_text(json.dumps({**before, **FILES[name](entry)}))
        if entry is SPECIAL:
            assert read(folder) == load("electra").vocabulary
    with rejects("<X>"):
        read(folder)
