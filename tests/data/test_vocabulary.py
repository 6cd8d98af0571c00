# ruff: noqa: RUF001  (Chinese punctuation)
"""Vocabulary files, their faults, and learning in several languages."""

import dataclasses
import itertools
import json
import random

import pytest

from convbert.common.errors import InputError
from convbert.data.tokenization import Tokenizer
from convbert.data.tokenizers import create_tokenizer
from convbert.data.vocabulary import SPECIAL_TOKENS, TOKENIZERS, Vocabulary
from convbert.data.vocabulary_learning import learn_vocabulary
from tests.finetune.kinds_support import rejects
from tests.sentencepiece_support import comma_model, sentences

TOKENS = (*SPECIAL_TOKENS, "a", "##b", "\u2028", " ")

STEMS = ["print", "read", "paint", "writ", "word", "pap", "pair", "learn", "train", "mask", "layer"]
ENDINGS = ["", "s", "ed", "ing", "er", "ers", "able", "ably", "ness", "less", "ful", "ly"]
ENGLISH = [
    f"The {a}{b}, and {b}{a}! It isn't {a} (of {len(b)} {a})." for a in STEMS for b in ENDINGS
]
GERMAN = ["Größere Häuser über größeren Türen: Übungen für Übermütige.", "Süße Äpfel, grüne Äste."]
CHINESE = ["我们在北京学习中文。", "北京的天气很好，我们学习。", "ABC学习 tensorflow"]
# File -> the vocabulary that is saved in it.
SAVED = {
    "vocab.txt": lambda: Vocabulary(TOKENS),
    "spiece.model": lambda: Vocabulary.of_model(comma_model()),
    "tokenizer.json": lambda: learn_vocabulary(sentences(400), 400, tokenizer="bpe"),
}


@pytest.mark.parametrize(("lower", "strip"), itertools.product([True, False], repeat=2))
@pytest.mark.parametrize("file", SAVED)
def test_a_saved_vocabulary_is_the_same(tmp_path, file, lower, strip):
    given = {} if file == "tokenizer.json" else {"do_lower_case": lower, "strip_accents": strip}
    vocabulary = dataclasses.replace(SAVED[file](), **given)
    vocabulary.save(tmp_path / "new")
    assert Vocabulary.load(tmp_path / "new") == vocabulary
    assert Vocabulary.load(tmp_path / "new" / file) == vocabulary
    assert {path.name for path in (tmp_path / "new").iterdir()} == {"tokenizer_config.json", file}
    for name, value in given.items():
        other = Vocabulary.load(tmp_path / "new", **{name: not value})
        assert other == dataclasses.replace(vocabulary, **{name: not value})
        assert other.digest != vocabulary.digest
    if not given and lower:  # which the file says itself
        with pytest.raises(InputError):
            Vocabulary.load(tmp_path / "new", do_lower_case=True)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (None, (True, True)),
        ({"do_lower_case": False}, (False, False)),
        ({"do_lower_case": True, "strip_accents": None, "model_max_length": 512}, (True, True)),
        ({"strip_accents": False}, (True, False)),
    ],
)
def test_switches_beside_the_vocabulary(tmp_path, config, expected):
    """A byte order mark and blank lines at the end are no tokens."""
    (tmp_path / "vocab.txt").write_text("\ufeff" + "\r\n".join(SPECIAL_TOKENS) + "\r\n\r\n")
    if config is not None:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    vocabulary = Vocabulary.load(tmp_path)
    assert vocabulary.tokens == SPECIAL_TOKENS
    assert (vocabulary.do_lower_case, vocabulary.strip_accents) == expected


@pytest.mark.parametrize(
    ("file", "content", "named"),
    [
        ("vocab.txt", None, ""),
        ("vocab.txt", b"", "[PAD]"),
        ("vocab.txt", b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nx\ny\nx\n", "'x' on lines 6 and 8"),
        ("vocab.txt", b"[PAD]\n[UNK]\nb\xffd\n", "0xff"),
        ("vocab.txt", b"[PAD]\n[UNK]\n\n[CLS]\n[SEP]\n[MASK]\n", "line 3"),
        ("tokenizer_config.json", b"{", "JSON"),
        ("tokenizer_config.json", b'{"do_lower_case": "yes"}', "do_lower_case"),
    ],
)
def test_faulty_files_are_named(tmp_path, file, content, named):
    Vocabulary(TOKENS).save(tmp_path)
    (tmp_path / file).write_bytes(content or b"")
    if content is None:
        (tmp_path / file).unlink()
    with rejects(tmp_path / file, named):
        Vocabulary.load(tmp_path)


@pytest.mark.parametrize("vocab_size", [150, 180])
def test_learned_vocabulary_is_exact_and_deterministic(vocab_size):
    vocabulary = learn_vocabulary(ENGLISH, vocab_size)
    assert (vocabulary.size, vocabulary.tokens[:5]) == (vocab_size, SPECIAL_TOKENS)
    shuffled = random.Random(1).sample(ENGLISH, len(ENGLISH))
    assert learn_vocabulary(iter(shuffled), vocab_size) == vocabulary
    ids, _ = Tokenizer(vocabulary).tokenize(ENGLISH)
    assert vocabulary.unk_id not in ids
    longer = [t for t in vocabulary.tokens[5:] if len(t.removeprefix("##")) > 1]
    assert {"the", "print", "isn"} <= set(longer)
    assert "##!" not in vocabulary.tokens  # punctuation always stands alone


@pytest.mark.parametrize(
    ("texts", "lower", "strip", "held", "not_held"),
    [
        (GERMAN, False, False, {"Ü", "ß", "ü", "Ä"}, {"u\u0308", "A"}),
        (GERMAN, True, False, {"ü", "ß", "ä"}, {"Ü", "A"}),
        (GERMAN, True, True, {"u", "ß", "a"}, {"ü", "Ü", "ä"}),
        (GERMAN, False, True, {"U", "u", "ß"}, {"ü", "Ü", "ä"}),
        (CHINESE, True, True, {"北", "京", "学", "。"}, {"##京", "北京", "A"}),
    ],
)
def test_other_languages_and_switches(texts, lower, strip, held, not_held):
    vocabulary = learn_vocabulary(texts, 256, do_lower_case=lower, strip_accents=strip)
    assert (vocabulary.do_lower_case, vocabulary.strip_accents) == (lower, strip)
    assert held <= set(vocabulary.tokens) | {t.removeprefix("##") for t in vocabulary.tokens}
    assert not not_held & set(vocabulary.tokens)
    ids, _ = Tokenizer(vocabulary).tokenize(texts)
    assert vocabulary.unk_id not in ids


def test_rare_characters_leave_room_for_words():
    rare = "".join(chr(0x4E00 + i) for i in range(300))
    texts = [*(ENGLISH * 200), rare]
    vocabulary = learn_vocabulary(texts, 150)
    assert vocabulary.size == 150
    assert sum(token in rare for token in vocabulary.tokens) < 10
    assert "print" in vocabulary.tokens
    # Unless most words are single characters.
    found = learn_vocabulary([rare * 5, " ".join(f"w{i}" for i in range(200))], 400)
    assert found.size <= 400
    assert sum(token in rare for token in found.tokens) > 270
    with pytest.raises(InputError):  # nothing to learn from
        learn_vocabulary(["", " \u00a0"], 100)


@pytest.mark.parametrize("words_of_a_phrase", [8, 80])
def test_text_without_spaces_is_for_sentencepiece(words_of_a_phrase):
    """Some long words are not that."""
    words = ["สวัสดี", "ประเทศไทย", "ภาษา", "การเรียน", "และ", "ที่", "นักเรียน", "หนังสือ", "อ่าน"]
    choices = random.Random(0)
    lines = ["".join(choices.choices(words, k=words_of_a_phrase)) for _ in range(300)]
    with pytest.raises(InputError, match="sentencepiece"):
        learn_vocabulary(lines, 150, strip_accents=False)
    assert learn_vocabulary(lines, 150, tokenizer="sentencepiece").size > 40
    words = [f"word{number:03}" for number in range(200)]
    hashes = [random.Random(number).randbytes(20).hex() for number in range(200)]
    lines = [" ".join([*words, commit]) for commit in hashes]
    assert learn_vocabulary(lines, 150).size == 150


@pytest.mark.parametrize("lower", [True, False])
def test_whole_words_of_any_bytes(lower):
    """Neither NUL nor a word that is too long for the lookup costs the rest of its line."""
    long = "u" * 257
    lines = ["the \0cat", f"the\0 cat {long} sat", "\0"]
    vocabulary = learn_vocabulary(lines, None, tokenizer="words", do_lower_case=lower)
    assert {*vocabulary.tokens} == {*TOKENIZERS["words"], "the", "cat", "sat"}
    ids, _ = create_tokenizer(vocabulary).tokenize(lines)
    found = [vocabulary.tokens[number] for number in ids]
    assert found == ["the", "cat", "the", "cat", "<unk>", "sat"]
    given = Vocabulary((*vocabulary.tokens, long), lower, False, tokenizer="words")
    assert create_tokenizer(given).tokenize(lines)[0].tolist() == ids.tolist()
