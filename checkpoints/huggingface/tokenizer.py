"""Tokenizer files of Hugging Face's BERT family, and our Vocabulary."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

import files
from checkpoints.huggingface.added_tokens import with_added_tokens
from data.added_tokens import ADDED_TOKENS, AddedToken
from data.vocabulary import SPECIAL_TOKENS, SWITCHES_FILE, VOCABULARY_FILE, Vocabulary
from errors import InputError
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
    switches from `tokenizer_config.json`.

    Args:
        folder: with `tokenizer.json` or `vocab.txt`.
        vocab: a `vocab.txt`, or a folder with one, to be taken instead.
        do_lower_case: overrules the folder.
        strip_accents: likewise. Where nothing says it, as the casing.

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
    if not os.path.exists(path):
        if not os.path.exists(os.path.join(folder, VOCABULARY_FILE)):
            raise InputError(
                f"{folder}: there should be a {TOKENIZER_FILE} or a {VOCABULARY_FILE};"
                " without them, say where the vocabulary is with --vocab"
            )
        vocabulary = Vocabulary.load(folder, **switches)
        vocabulary = _with_added_tokens(folder, vocabulary, said, {})
        return vocabulary, [f"vocabulary: {VOCABULARY_FILE}, {_described(vocabulary)}"]
    tokenizer = files.read_json(path)
    tokens, stored = _pieces(tokenizer, path), _normalization(tokenizer, path)
    if do_lower_case is None:
        both = said.get("do_lower_case", stored["do_lower_case"]), stored["do_lower_case"]
        switches["do_lower_case"] = _agreed("do_lower_case", both, folder)
    if strip_accents is None:
        both = said.get("strip_accents", stored["strip_accents"]), stored["strip_accents"]
        as_casing = [switches["do_lower_case"] if value is None else value for value in both]
        switches["strip_accents"] = _agreed("strip_accents", as_casing, folder)
    try:
        vocabulary = Vocabulary(tokens, **switches)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    vocabulary = _with_added_tokens(folder, vocabulary, said, tokenizer)
    _check_same_pieces(folder, vocabulary)
    return vocabulary, [f"vocabulary: {TOKENIZER_FILE}, {_described(vocabulary)}"]


def write_tokenizer(vocabulary: Vocabulary, folder: str, longest: int) -> None:
    """Writes what AutoTokenizer loads as a BertTokenizer: three files.

    `tokenizer.json` holds the pieces exactly; from `vocab.txt` alone, transformers takes them
    without blanks at their ends.

    Args:
        vocabulary: whose ids transformers is to give.
        folder: where to write.
        longest: tokens that the model takes.
    """
    vocabulary.save(folder)  # vocab.txt
    switches = {
        "do_lower_case": vocabulary.do_lower_case,
        "strip_accents": vocabulary.strip_accents,
    }
    settings = {
        "tokenizer_class": "BertTokenizer",
        **switches,
        **{name: value for name, value in _FIXED.items() if name.endswith(("_chars", "_token"))},
        "model_max_length": longest,
    }
    if vocabulary.added_tokens:
        listed = _tokenizer(vocabulary)["added_tokens"]
        settings[ADDED_TOKENS] = {str(fields.pop("id")): fields for fields in listed}
    files.write_json(os.path.join(folder, SWITCHES_FILE), settings)
    files.write_json(os.path.join(folder, TOKENIZER_FILE), _tokenizer(vocabulary))


def _settings(folder: str) -> dict[str, Any]:
    """`tokenizer_config.json`, checked; {} where there is none."""
    path = os.path.join(folder, SWITCHES_FILE)
    settings = files.read_json(path) if os.path.exists(path) else {}
    tokenizer_class = settings.get("tokenizer_class")
    config = os.path.join(folder, CONFIG_FILE)
    if tokenizer_class is None and os.path.exists(config):
        tokenizer_class = files.read_json(config).get("tokenizer_class")
    tokenizer_class = tokenizer_class or "BertTokenizer"
    if str(tokenizer_class).removesuffix("Fast") not in _CLASSES:
        raise InputError(
            f"{folder}: the tokenizer should be one of {', '.join(_CLASSES)}; another one's"
            f" vocabulary is taken at your word with --vocab. Received: {tokenizer_class}"
        )
    for name, value in _FIXED.items():
        received = settings.get(name, value)
        if isinstance(received, dict):  # a token with its properties
            received = received.get("content")
        if received != value:
            raise InputError(
                f"{path}: `{name}` should be {value!r}, as text is always cut so here."
                f" Received: {received!r}"
            )
    never = settings.get("never_split") or []
    if set(never) - set(SPECIAL_TOKENS):
        raise InputError(
            f"{path}: `never_split` should be among {', '.join(SPECIAL_TOKENS)}; make of other"
            f" tokens added ones. Received: {never!r}"
        )
    return settings


def _pieces(tokenizer: dict[str, Any], path: str) -> tuple[str, ...]:
    """The tokens of a `tokenizer.json`, in the order of their ids."""
    model = tokenizer.get("model")
    model = model if isinstance(model, dict) else {}
    _check_cutting(tokenizer, model, path)
    ids, prefix = model.get("vocab"), model.get("continuing_subword_prefix", _PREFIX)
    if not isinstance(ids, dict) or model.get("type", "WordPiece") != "WordPiece":
        raise InputError(f"{path}: the model should be WordPiece. Received: {model.get('type')!r}")
    if prefix != _PREFIX:
        raise InputError(
            f"{path}: `continuing_subword_prefix` should be {_PREFIX!r}. Received: {prefix!r}"
        )
    if sorted(map(repr, ids.values())) != sorted(map(repr, range(len(ids)))):
        raise InputError(f"{path}: the ids of its {len(ids)} tokens should count from 0 on")
    return tuple(sorted(ids, key=ids.__getitem__))


def _check_cutting(tokenizer: dict[str, Any], model: dict[str, Any], path: str) -> None:
    """Refuses a `tokenizer.json` that cuts text into other words, or knows other tokens."""
    before = tokenizer.get("pre_tokenizer")
    received = {
        "pre_tokenizer": before.get("type") if isinstance(before, dict) else before,
        "unk_token": model.get("unk_token", "[UNK]"),
    }
    for name, expected in (("pre_tokenizer", "BertPreTokenizer"), ("unk_token", "[UNK]")):
        if received[name] != expected:
            raise InputError(
                f"{path}: `{name}` should be {expected!r}, as text is always cut so here."
                f" Received: {received[name]!r}"
            )
    longest = model.get("max_input_chars_per_word", _LONGEST_WORD)
    if longest != _LONGEST_WORD:
        raise InputError(
            f"{path}: `max_input_chars_per_word` should be {_LONGEST_WORD}, the only value there is"
            f" here. Received: {longest!r}"
        )
    _check_post_processor(tokenizer.get("post_processor"), path)


def _check_post_processor(given: Any, path: str) -> None:
    """Raises InputError unless texts become [CLS] A [SEP] and [CLS] A [SEP] B [SEP]."""
    given = given if isinstance(given, dict) else {}
    kind, expected = given.get("type"), _template()
    fits = kind == "TemplateProcessing" and all(given.get(key) == expected[key] for key in expected)
    if kind == "BertProcessing":
        ends = [(given.get(name) or [None])[0] for name in ("cls", "sep")]
        fits = ends == ["[CLS]", "[SEP]"]
    if not fits:
        raise InputError(
            f"{path}: `post_processor` should make [CLS] A [SEP] and [CLS] A [SEP] B [SEP], with"
            " segments 0 and 1, of texts, as is always done here (TemplateProcessing or"
            f" BertProcessing). Received: {given or None}"
        )


def _template() -> dict[str, list[dict[str, Any]]]:
    """How one text and two become rows."""

    def part(kind: str, name: str, segment: int) -> dict[str, Any]:
        return {kind: {"id": name, "type_id": segment}}

    first = [
        part("SpecialToken", "[CLS]", 0),
        part("Sequence", "A", 0),
        part("SpecialToken", "[SEP]", 0),
    ]
    second = [part("Sequence", "B", 1), part("SpecialToken", "[SEP]", 1)]
    return {"single": first, "pair": first + second}


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
    try:
        return dataclasses.replace(vocabulary, tokens=tokens, added_tokens=added)
    except InputError as error:
        raise InputError(f"{folder}: {error}") from error


def _normalization(tokenizer: dict[str, Any], path: str) -> dict[str, bool | None]:
    """The switches in a `tokenizer.json`; `strip_accents` None means as the casing."""
    normalizer = tokenizer.get("normalizer")
    normalizer = normalizer if isinstance(normalizer, dict) else {}
    expected = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True}
    for name, value in expected.items():
        if normalizer.get(name) != value:
            raise InputError(
                f"{path}: `{name}` of the normalizer should be {value!r}, as text is always"
                f" normalised so here. Received: {normalizer.get(name)!r}"
            )
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


def _check_same_pieces(folder: str, vocabulary: Vocabulary) -> None:
    path = os.path.join(folder, VOCABULARY_FILE)
    if not os.path.exists(path):
        return
    other = Vocabulary.load(path).tokens
    if other != vocabulary.tokens[: len(other)] or set(vocabulary.tokens[len(other) :]) - {
        token.content for token in vocabulary.added_tokens
    }:
        raise InputError(
            f"{path}: holds other tokens than {TOKENIZER_FILE} beside it"
            f" ({len(other)} against {vocabulary.size}); take one away, or say which with --vocab"
        )


def _described(vocabulary: Vocabulary) -> str:
    added = [token.content for token in vocabulary.added_tokens]
    return (
        f"{vocabulary.size} tokens, do_lower_case {vocabulary.do_lower_case},"
        f" strip_accents {vocabulary.strip_accents}"
        + (f", added tokens {', '.join(added)}" if added else "")
    )


def _tokenizer(vocabulary: Vocabulary) -> dict[str, Any]:
    """`tokenizer.json` of the tokenizers library."""
    cls, sep = ({"id": t, "ids": [vocabulary.ids[t]], "tokens": [t]} for t in ("[CLS]", "[SEP]"))
    own = [AddedToken(token, normalized=False, special=True) for token in SPECIAL_TOKENS]
    added = sorted([*own, *vocabulary.added_tokens], key=lambda t: vocabulary.ids[t.content])
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": vocabulary.ids[token.content], "content": token.content, **token.flags}
            for token in added
        ],
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": vocabulary.strip_accents,
            "lowercase": vocabulary.do_lower_case,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            **_template(),
            "special_tokens": {"[CLS]": cls, "[SEP]": sep},
        },
        "decoder": {"type": "WordPiece", "prefix": _PREFIX, "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": _PREFIX,
            "max_input_chars_per_word": _LONGEST_WORD,
            "vocab": vocabulary.ids,
        },
    }
