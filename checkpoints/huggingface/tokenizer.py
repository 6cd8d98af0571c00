"""Tokenizer files of Hugging Face's BERT family, and our Vocabulary."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

import files
import storage
from checkpoints.huggingface.added_tokens import content_of, with_added_tokens
from data.added_tokens import ADDED_TOKENS, AddedToken
from data.vocabulary import SPECIAL_TOKENS, SWITCHES_FILE, VOCABULARY_FILE, Vocabulary
from errors import InputError, located
from model.config import CONFIG_FILE

TOKENIZER_FILE = "tokenizer.json"
_CLASSES = ("BertTokenizer", "ElectraTokenizer", "ConvBertTokenizer")
# Whatever `tokenizer.json` says, which is looked at.
_CLASSES += ("PreTrainedTokenizer", "TokenizersBackend")
_PREFIX = "##"
_LONGEST_WORD = 100  # characters; longer words are [UNK] to Hugging Face's tokenizers
# Settings of `tokenizer_config.json` that change ids, with the only values that ours computes.
_FIXED = {
    "tokenize_chinese_chars": True,
    "do_basic_tokenize": True,
    "wordpieces_prefix": _PREFIX,
    "truncation_side": "right",
    "max_input_chars_per_word": _LONGEST_WORD,
    **{f"{token.strip('[]').lower()}_token": token for token in SPECIAL_TOKENS},
}


def read_vocabulary(
    folder: str,
    *,
    vocab: str | None = None,
    do_lower_case: bool | None = None,
    strip_accents: bool | None = None,
) -> tuple[Vocabulary, list[str]]:
    """The vocabulary of a folder that `save_pretrained` wrote, and what was inferred.

    As transformers does, pieces are taken from `tokenizer.json`, else from `vocab.txt`, and the
    switches from `tokenizer_config.json`; `strip_accents` that nothing says is as the casing.

    Args:
        folder: with `tokenizer.json` or `vocab.txt`.
        vocab: a `vocab.txt`, or a folder with one, to be taken instead.
        do_lower_case: overrules the folder.
        strip_accents: likewise.

    Raises:
        InputError: there is none, it cuts text otherwise than ours, or the files contradict each
            other.
    """
    switches = {"do_lower_case": do_lower_case, "strip_accents": strip_accents}
    if vocab is not None:
        vocabulary = Vocabulary.load(vocab, **switches)
        return vocabulary, [f"vocabulary: {vocab}, {_described(vocabulary)}"]
    path = os.path.join(folder, TOKENIZER_FILE)
    said = _settings(folder)
    if not storage.exists(path):
        if not storage.exists(os.path.join(folder, VOCABULARY_FILE)):
            raise InputError(
                f"{folder}: there should be a {TOKENIZER_FILE} or a {VOCABULARY_FILE};"
                " without them, say where the vocabulary is with --vocab"
            )
        vocabulary = Vocabulary.load(folder, **switches)
        vocabulary = _with_added_tokens(folder, vocabulary, said, {})
        return vocabulary, [f"vocabulary: {VOCABULARY_FILE}, {_described(vocabulary)}"]
    tokenizer = files.read_json(path)
    tokens, stored = _pieces(tokenizer, path), _normalization(tokenizer, path)
    for name, given in switches.items():  # accents after the casing, which null stands for
        if given is None:
            both = [said.get(name, stored[name]), stored[name]]
            if name == "strip_accents":
                both = [switches["do_lower_case"] if value is None else value for value in both]
            switches[name] = _agreed(name, both, folder)
    with located(path):
        vocabulary = Vocabulary(tokens, **switches)
    vocabulary = _with_added_tokens(folder, vocabulary, said, tokenizer)
    return vocabulary, [f"vocabulary: {TOKENIZER_FILE}, {_described(vocabulary)}"]


def write_tokenizer(vocabulary: Vocabulary, folder: str, longest: int) -> list[str]:
    """Writes `vocab.txt` and `tokenizer_config.json`, of which AutoTokenizer makes a BertTokenizer.

    `longest` is the maximum sequence length. Returns notes on what transformers takes otherwise.
    """
    vocabulary.save(folder)  # vocab.txt
    settings = {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": vocabulary.do_lower_case,
        "strip_accents": vocabulary.strip_accents,
        **{name: value for name, value in _FIXED.items() if name.endswith(("_chars", "_token"))},
        "model_max_length": longest,
    }
    if vocabulary.added_tokens:
        own = [AddedToken(token, normalized=False, special=True) for token in SPECIAL_TOKENS]
        added = {vocabulary.ids[t.content]: t for t in (*own, *vocabulary.added_tokens)}
        settings[ADDED_TOKENS] = {
            str(number): {"content": added[number].content, **added[number].flags}
            for number in sorted(added)
        }
    files.write_json(os.path.join(folder, SWITCHES_FILE), settings)
    stripped = [token for token in vocabulary.tokens if token != token.strip()]
    return [f"transformers strips whitespace from the pieces {stripped}"] if stripped else []


def _settings(folder: str) -> dict[str, Any]:
    """`tokenizer_config.json`, checked; {} where there is none."""
    path = os.path.join(folder, SWITCHES_FILE)
    settings = files.read_json(path) if storage.exists(path) else {}
    tokenizer_class = settings.get("tokenizer_class")
    config = os.path.join(folder, CONFIG_FILE)
    if tokenizer_class is None and storage.exists(config):
        tokenizer_class = files.read_json(config).get("tokenizer_class")
    tokenizer_class = tokenizer_class or "BertTokenizer"
    if str(tokenizer_class).removesuffix("Fast") not in _CLASSES:
        raise InputError(
            f"{folder}: the tokenizer should be one of {', '.join(_CLASSES)}; another one's"
            f" vocabulary is read unchecked with --vocab. Received: {tokenizer_class}"
        )
    given = {name: content_of(settings.get(name, value)) for name, value in _FIXED.items()}
    _check_fixed(path, given, _FIXED)
    never = settings.get("never_split") or []
    if set(never) - set(SPECIAL_TOKENS):
        raise InputError(
            f"{path}: `never_split` should be among {', '.join(SPECIAL_TOKENS)}; make of other"
            f" tokens added ones. Received: {never!r}"
        )
    return settings


def _pieces(tokenizer: dict[str, Any], path: str) -> tuple[str, ...]:
    """The tokens of a `tokenizer.json`, in the order of their ids.

    Raises:
        InputError: it cuts text into other words, or knows other tokens, than ours.
    """
    model, before = _section(tokenizer, "model"), _section(tokenizer, "pre_tokenizer")
    expected = {
        "type": "WordPiece",
        "continuing_subword_prefix": _PREFIX,
        "unk_token": "[UNK]",
        "max_input_chars_per_word": _LONGEST_WORD,
    }
    received = {name: model.get(name, value) for name, value in expected.items()}
    expected["pre_tokenizer"], received["pre_tokenizer"] = "BertPreTokenizer", before.get("type")
    _check_fixed(path, received, expected)
    _check_post_processor(_section(tokenizer, "post_processor"), path)
    ids = model.get("vocab")
    if not isinstance(ids, dict):
        raise InputError(f"{path}: `vocab` of the model should map tokens to ids")
    if sorted(map(repr, ids.values())) != sorted(map(repr, range(len(ids)))):
        raise InputError(f"{path}: the ids of its {len(ids)} tokens should count from 0 on")
    return tuple(sorted(ids, key=ids.__getitem__))


def _section(tokenizer: dict[str, Any], name: str) -> dict[str, Any]:
    """A part of a `tokenizer.json`; nothing where it is no object."""
    section = tokenizer.get(name)
    return section if isinstance(section, dict) else {}


def _check_fixed(path: str, received: dict[str, Any], expected: dict[str, Any]) -> None:
    """Raises InputError, naming the field, unless settings have the values that are built in."""
    for name, value in expected.items():
        if received[name] != value:
            raise InputError(
                f"{path}: `{name}` should be {value!r}, the only tokenization there is here."
                f" Received: {received[name]!r}"
            )


def _check_post_processor(given: dict[str, Any], path: str) -> None:
    """Raises InputError unless texts become [CLS] A [SEP] and [CLS] A [SEP] B [SEP]."""
    if given.get("type") == "BertProcessing":
        layout = [(given.get(name) or [None])[0] for name in ("cls", "sep")]
        fits = layout == ["[CLS]", "[SEP]"]
    else:
        single = [_part("[CLS]", 0), _part("A", 0), _part("[SEP]", 0)]
        pair = [*single, _part("B", 1), _part("[SEP]", 1)]
        fits = given.get("type") == "TemplateProcessing"
        fits = fits and (given.get("single"), given.get("pair")) == (single, pair)
    if not fits:
        raise InputError(
            f"{path}: `post_processor` should make [CLS] A [SEP] and [CLS] A [SEP] B [SEP], with"
            " segments 0 and 1, of texts, as is always done here (TemplateProcessing or"
            f" BertProcessing). Received: {given or None}"
        )


def _part(name: str, segment: int) -> dict[str, dict[str, Any]]:
    kind = "SpecialToken" if name in SPECIAL_TOKENS else "Sequence"
    return {kind: {"id": name, "type_id": segment}}


def _with_added_tokens(
    folder: str, vocabulary: Vocabulary, settings: dict[str, Any], tokenizer: dict[str, Any]
) -> Vocabulary:
    """The vocabulary with the added tokens that the files of a folder say."""
    tokens, added = with_added_tokens(folder, vocabulary.tokens, settings, tokenizer)
    special = [token.content for token in added if token.special]
    if special and settings.get("split_special_tokens"):
        raise InputError(
            f"{os.path.join(folder, SWITCHES_FILE)}: `split_special_tokens` should be False, as"
            f" {', '.join(special)} are found in texts here. Received: True"
        )
    with located(folder):
        return dataclasses.replace(vocabulary, tokens=tokens, added_tokens=added)


def _normalization(tokenizer: dict[str, Any], path: str) -> dict[str, bool | None]:
    """The switches in a `tokenizer.json`; `strip_accents` None means as the casing."""
    normalizer = _section(tokenizer, "normalizer")
    expected = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True}
    _check_fixed(f"{path}: normalizer", {k: normalizer.get(k) for k in expected}, expected)
    return {
        "do_lower_case": normalizer.get("lowercase"),
        "strip_accents": normalizer.get("strip_accents"),
    }


def _agreed(name: str, values: Sequence[Any], folder: str) -> bool:
    """The value of a switch, given as `tokenizer_config.json` and `tokenizer.json` say it."""
    for value in values:
        if not isinstance(value, bool):
            raise InputError(f"{folder}: `{name}` should be true or false. Received: {value!r}")
    if values[0] != values[1]:
        raise InputError(
            f"{folder}: `{name}` is {values[0]} in {SWITCHES_FILE} and {values[1]} in"
            f" {TOKENIZER_FILE}; say which with --{name} or --no{name}"
        )
    return values[0]


def _described(vocabulary: Vocabulary) -> str:
    added = [token.content for token in vocabulary.added_tokens]
    return (
        f"{vocabulary.size} tokens, do_lower_case {vocabulary.do_lower_case},"
        f" strip_accents {vocabulary.strip_accents}"
        + (f", added tokens {', '.join(added)}" if added else "")
    )
