"""Tokenizer files: which of them is believed, what is written, and added tokens."""

from __future__ import annotations

import json

import pytest
import tensorflow as tf

from checkpoints.huggingface.tokenizer import read_vocabulary, write_tokenizer
from checkpoints.model_directory import Options
from data.added_tokens import AddedToken
from data.tokenization import Tokenizer
from data.vocabulary import Vocabulary
from tests.huggingface_support import V, added_entry, change_json, copied, load, rejected

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


ADDED = (
    AddedToken("<X>", normalized=False, special=True, lstrip=True),
    AddedToken("<Y>", rstrip=True),
)


@pytest.mark.parametrize("added", [(), ADDED], ids=["plain", "added"])
@pytest.mark.parametrize("switches", [(True, True), (True, False), (False, True), (False, False)])
def test_saved_and_written(switches, added, tmp_path):
    plain = load("bert").vocabulary.tokens
    tokens = (*plain, *(token.content for token in added))
    vocabulary = Vocabulary(tokens, *switches, added)
    assert (vocabulary.digest == Vocabulary(tokens, *switches).digest) == (added == ())
    vocabulary.save(tmp_path / "ours")
    (tmp_path / "theirs").mkdir()
    write_tokenizer(vocabulary, str(tmp_path / "theirs"), 24)
    assert read(tmp_path / "theirs") == vocabulary
    for name in ("ours", "theirs"):
        assert Vocabulary.load(tmp_path / name) == vocabulary
        settings = json.loads((tmp_path / name / CONFIG).read_text())
        assert ("added_tokens_decoder" in settings) == (added != ())
    assert (settings["model_max_length"], settings["mask_token"]) == (24, "[MASK]")


X = added_entry("<X>", normalized=False, special=True)
Y = added_entry("<Yé>")


def add(folder, *tokens, where):
    """Says the tokens, from id 137 on, in one of the files."""
    by_id = dict(enumerate(tokens, V))
    if where == TOKENIZER:
        stored = json.loads((folder / TOKENIZER).read_text())["added_tokens"]
        stored += [{"id": number, **token} for number, token in by_id.items()]
        change_json(folder / TOKENIZER, added_tokens=stored)
    elif where == CONFIG:
        change_json(folder / CONFIG, added_tokens_decoder=by_id)
    else:
        ids = {token["content"]: number for number, token in by_id.items()}
        special = [token["content"] for token in tokens if token["special"]]
        special = {"additional_special_tokens": special}
        (folder / "added_tokens.json").write_text(json.dumps(ids))
        (folder / "special_tokens_map.json").write_text(json.dumps(special))


def ids_of(vocabulary: Vocabulary, text: str) -> list[int]:
    return Tokenizer(vocabulary).tokenize([text])[0].tolist()


@pytest.mark.parametrize(
    ("name", "where"),
    [("electra", TOKENIZER), ("electra", CONFIG), ("convbert", CONFIG)],
)
def test_ids_exist_and_texts_hold_them(name, where, tmp_path):
    folder = copied(name, tmp_path)
    add(folder, X, {**Y, "content": "<Y>"}, where=where)
    vocabulary = read(folder)
    plain = load(name).vocabulary
    assert vocabulary.tokens == (*plain.tokens, "<X>", "<Y>")
    assert [token.content for token in vocabulary.added_tokens] == ["<X>", "<Y>"]
    the, of = ids_of(plain, "the"), ids_of(plain, "of")
    assert ids_of(vocabulary, "the<X>of <X><Y>") == [*the, 137, *of, 137, 138]
    assert ids_of(vocabulary, "<x> the") == ids_of(plain, "<x> the")  # not the text as it is
    assert ids_of(vocabulary, "the<y>the") == [*the, 138, *the]  # normalised, as it is said
    assert ids_of(vocabulary, "the of") == [*the, *of]


@pytest.mark.parametrize("name", ["electra", "convbert"])
def test_files_of_old_versions(name, tmp_path):
    """They repeat what newer files say, and say nothing more."""
    folder = copied(name, tmp_path)
    add(folder, X, where="added_tokens.json")
    with rejected("<X>", "save_pretrained"):
        read(folder)
    add(folder, X, where=CONFIG)
    assert [token.content for token in read(folder).added_tokens] == ["<X>"]


def test_the_files_of_a_folder_agree(tmp_path):
    folder = copied("electra", tmp_path)
    add(folder, X, where=TOKENIZER)
    change_json(folder / CONFIG, extra_special_tokens=["<X>", "[CLS]"])
    assert [token.content for token in read(folder).added_tokens] == ["<X>"]
    add(folder, {**X, "special": False}, where=CONFIG)
    with rejected("<X>"):
        read(folder)
    (folder / "special_tokens_map.json").write_text('{"unk_token": "<unk>"}')
    with rejected("unk_token"):
        read(folder)


@pytest.mark.parametrize(
    "tokens", [[Y], [added_entry("<x>"), added_entry("<X>", normalized=False)]], ids=str
)
def test_tokens_that_lower_case_would_change(tokens, tmp_path):
    folder = copied("electra", tmp_path)
    add(folder, *tokens, where=TOKENIZER)
    with rejected(str(folder)):
        read(folder)


def test_added_tokens_in_a_graph(tmp_path):
    """With a cased vocabulary; spans of texts are not supported."""
    folder = copied("bert", tmp_path)
    add(folder, {**Y, "content": "<Y>"}, where=TOKENIZER)
    vocabulary = read(folder)
    assert ids_of(vocabulary, "<Y>") == [V]
    assert ids_of(vocabulary, "<y>") == ids_of(load("bert").vocabulary, "<y>")
    tokenizer, texts = Tokenizer(vocabulary), ["the <Y>", "", "<Y><Y>the"]
    found = tf.function(tokenizer.tokenize_ragged)(tf.constant(texts))
    assert found.to_list() == [ids_of(vocabulary, text) for text in texts]
    with rejected():
        tokenizer.tokenize_ragged_with_offsets(tf.constant(["the"]))
