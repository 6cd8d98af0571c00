"""Tokenizer files: which of them is believed, what is written, and added tokens."""

from __future__ import annotations

import json

import pytest
import tensorflow as tf

from checkpoints.huggingface.tokenizer import read_vocabulary, write_tokenizer
from data.added_tokens import AddedToken
from data.tokenization import Tokenizer
from data.vocabulary import Vocabulary
from errors import InputError
from tests.huggingface_support import FOLDER, added_entry, change_json, copied, load

CONFIG, TOKENIZER = "tokenizer_config.json", "tokenizer.json"
V = 137


def read(folder, **options) -> Vocabulary:
    return read_vocabulary(str(folder), **options)[0]


def change_normalizer(folder, **changes):
    tokenizer = json.loads((folder / TOKENIZER).read_text(encoding="utf-8"))
    change_json(folder / TOKENIZER, normalizer={**tokenizer["normalizer"], **changes})


@pytest.mark.parametrize(
    ("name", "switches"),
    [
        ("convbert", (True, True)),
        ("convbert_grouped", (False, False)),
        ("electra", (True, False)),
        ("bert", (False, False)),
    ],
)
def test_switches(name, switches):
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
    assert "added_tokens_decoder" not in settings  # nor in our own files, or in the digest
    vocabulary.save(tmp_path / "ours")
    ours = json.loads((tmp_path / "ours" / CONFIG).read_text())
    assert ours.keys() == {"do_lower_case", "strip_accents"}


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
        change_json(folder / CONFIG, added_tokens_decoder={str(n): t for n, t in by_id.items()})
    else:
        ids = {token["content"]: number for number, token in by_id.items()}
        (folder / "added_tokens.json").write_text(json.dumps(ids))
        special = [token["content"] for token in tokens if token["special"]]
        (folder / "special_tokens_map.json").write_text(
            json.dumps({"additional_special_tokens": special})
        )


def ids_of(vocabulary: Vocabulary, text: str) -> list[int]:
    return Tokenizer(vocabulary).tokenize([text])[0].tolist()


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("electra", TOKENIZER),
        ("electra", CONFIG),
        ("convbert", CONFIG),
        ("convbert", "added_tokens.json"),
    ],
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


def test_the_longest_is_found_and_marks_of_texts_are_none(tmp_path):
    folder = copied("electra", tmp_path)
    tokens = [added_entry("<A"), added_entry("<AB>"), added_entry("word")]
    add(folder, *tokens, where=TOKENIZER)
    vocabulary = read(folder)
    plain = load("electra").vocabulary
    assert ids_of(vocabulary, "<ab><a") == [V + 1, V]
    assert ids_of(vocabulary, "theWords") == [
        *ids_of(plain, "the"),
        V + 2,
        *ids_of(plain, "s"),
    ]
    # Characters of private use stand for nothing.
    assert ids_of(vocabulary, "the \U000f0000\U000f0001") == ids_of(plain, "the \U000f0000")


@pytest.mark.parametrize("lower", [True, False])
def test_saved_and_written(lower, tmp_path):
    tokens = (*load("bert").vocabulary.tokens, "<X>", "<Y>")
    added = (
        AddedToken("<X>", normalized=False, special=True, lstrip=True),
        AddedToken("<Y>", rstrip=True),
    )
    vocabulary = Vocabulary(tokens, lower, lower, added)
    assert vocabulary.digest != Vocabulary(tokens, lower, lower).digest
    vocabulary.save(tmp_path / "model")
    assert Vocabulary.load(tmp_path / "model") == vocabulary
    (tmp_path / "theirs").mkdir()
    write_tokenizer(vocabulary, str(tmp_path / "theirs"), 24)
    assert read(tmp_path / "theirs") == vocabulary
    assert Vocabulary.load(tmp_path / "theirs") == vocabulary


def test_the_files_of_a_folder_agree(tmp_path):
    folder = copied("electra", tmp_path)
    add(folder, X, where=TOKENIZER)
    change_json(folder / CONFIG, extra_special_tokens=["<X>", "[CLS]"])
    assert [token.content for token in read(folder).added_tokens] == ["<X>"]
    add(folder, {**X, "special": False}, where=CONFIG)
    with pytest.raises(InputError):
        read(folder)
    (folder / "special_tokens_map.json").write_text('{"unk_token": "<unk>"}')
    with pytest.raises(InputError):
        read(folder)


@pytest.mark.parametrize(
    "lists", [[Y], [added_entry("<x>"), added_entry("<X>", normalized=False)]], ids=str
)
def test_tokens_that_lower_case_would_change(lists, tmp_path):
    folder = copied("electra", tmp_path)
    add(folder, *lists, where=TOKENIZER)
    with pytest.raises(InputError) as error:
        read(folder)
    assert str(folder) in str(error.value)


def test_a_post_processor_by_its_older_name(tmp_path):
    folder = copied("bert", tmp_path)
    older = {"type": "BertProcessing", "sep": ["[SEP]", 4], "cls": ["[CLS]", 3]}
    change_json(folder / TOKENIZER, post_processor=older)
    assert read(folder) == load("bert").vocabulary


def test_added_tokens_in_a_graph(tmp_path):
    """With a cased vocabulary; spans of texts are not supported."""
    folder = copied("bert", tmp_path)
    add(folder, {**Y, "content": "<Y>"}, where=TOKENIZER)
    vocabulary = read(folder)
    assert ids_of(vocabulary, "<Y>") == [V]
    assert ids_of(vocabulary, "<y>") == ids_of(load("bert").vocabulary, "<y>")
    tokenizer = Tokenizer(vocabulary)
    function = tf.function(
        tokenizer.tokenize_ragged, input_signature=[tf.TensorSpec([None], tf.string)]
    )
    texts = ["the <Y>", "", "<Y><Y>the"]
    assert function(tf.constant(texts)).to_list() == [ids_of(vocabulary, text) for text in texts]
    with pytest.raises(InputError):
        tokenizer.tokenize_ragged_with_offsets(tf.constant(["the"]))
