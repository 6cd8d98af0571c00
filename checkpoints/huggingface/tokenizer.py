"""Conversion between the tokenizer files of Hugging Face's BERT family and Vocabulary."""

from __future__ import annotations

import os
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from convbert.checkpoints.model_directory import Options
from convbert.common import files, storage
from convbert.common.errors import InputError, located
from convbert.data.vocabulary import (
    ADDED_TOKENS,
    SPECIAL_TOKENS,
    SWITCHES_FILE,
    VOCABULARY_FILE,
    Vocabulary,
    check_added_tokens,
)
from convbert.model.config import CONFIG_FILE, BackboneConfig

TOKENIZER_FILE = "tokenizer.json"
_IDS_FILE = "added_tokens.json"  # content -> id, in older versions
_SPECIAL_FILE = "special_tokens_map.json"  # likewise
_CLASSES: tuple[str, ...] = ("BertTokenizer", "ElectraTokenizer", "ConvBertTokenizer")
# The classes; `tokenizer.json` is also checked.
_CLASSES += ("PreTrainedTokenizer", "TokenizersBackend")
SPECIAL_FIELDS = {f"{token.strip('[]').lower()}_token": token for token in SPECIAL_TOKENS}
_LONGEST_WORD = 100  # characters; longer words are [UNK] to Hugging Face's tokenizers


def _part(name: str, segment: int) -> dict[str, dict[str, Any]]:
    kind = "SpecialToken" if name in SPECIAL_TOKENS else "Sequence"
    return {kind: {"id": name, "type_id": segment}}


_SINGLE = [_part("[CLS]", 0), _part("A", 0), _part("[SEP]", 0)]
# Settings that change ids, with the only supported values. A missing field has that value; a
# missing section has another one.
_EXPECTED: dict[str, dict[str, Any]] = {
    SWITCHES_FILE: {
        "tokenize_chinese_chars": True,
        "do_basic_tokenize": True,
        "wordpieces_prefix": "##",
        "truncation_side": "right",
        "max_input_chars_per_word": _LONGEST_WORD,
        "split_special_tokens": False,
        "never_split": None,
        **SPECIAL_FIELDS,
    },
    _SPECIAL_FILE: SPECIAL_FIELDS,
    TOKENIZER_FILE: {
        "model.type": "WordPiece",
        "model.continuing_subword_prefix": "##",
        "model.unk_token": "[UNK]",
        "model.max_input_chars_per_word": _LONGEST_WORD,
        "pre_tokenizer.type": "BertPreTokenizer",
        "normalizer.type": "BertNormalizer",
        "normalizer.clean_text": True,
        "normalizer.handle_chinese_chars": True,
        "post_processor.type": "TemplateProcessing",
        "post_processor.single": _SINGLE,
        "post_processor.pair": [*_SINGLE, _part("B", 1), _part("[SEP]", 1)],
    },
}


def read_vocabulary(folder: str, options: Options) -> Vocabulary:
    """Reads the vocabulary written by `save_pretrained`, or the one named by the options.

    Pieces come from `tokenizer.json`, else `vocab.txt`, switches from `tokenizer_config.json`.
    Settings that would lead to different ids are rejected.
    """
    if options.vocab is not None:
        return Vocabulary.load(options.vocab, **options.switches)
    settings = _read(folder, SWITCHES_FILE)
    named = settings.get("tokenizer_class") or _read(folder, CONFIG_FILE).get("tokenizer_class")
    if str(named or _CLASSES[0]).removesuffix("Fast") not in _CLASSES:
        expected = f"the tokenizer should be one of {', '.join(_CLASSES)}"
        hint = "--vocab reads the vocabulary of another one unchecked"
        raise InputError(f"{folder}: {expected}; {hint}. Received: {named}")
    _check_expected(folder, SWITCHES_FILE, settings)
    _check_expected(folder, _SPECIAL_FILE, _read(folder, _SPECIAL_FILE))
    if storage.exists(os.path.join(folder, TOKENIZER_FILE)):
        vocabulary = _of_tokenizer_file(folder, settings, options)
    elif storage.exists(os.path.join(folder, VOCABULARY_FILE)):
        vocabulary = Vocabulary.load(folder, **options.switches)
    else:
        expected = f"there should be a {TOKENIZER_FILE} or a {VOCABULARY_FILE}"
        raise InputError(f"{folder}: {expected}; without them, give the vocabulary with --vocab")
    check_added_tokens(_added_tokens(folder, settings), vocabulary, folder)
    return vocabulary


def read_length(folder: str, config: BackboneConfig) -> int | None:
    """Returns the longest input in tokens, None if it is not less than the positions."""
    longest = _read(folder, SWITCHES_FILE).get("model_max_length")
    fits = type(longest) is int and 3 <= longest < config.max_position_embeddings
    return longest if fits else None


def write_tokenizer(vocabulary: Vocabulary, folder: str, longest: int) -> list[str]:
    """Writes the files that AutoTokenizer loads as a BertTokenizer; returns notes."""
    vocabulary.save(folder)  # vocab.txt
    settings = {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": vocabulary.do_lower_case,
        "strip_accents": vocabulary.strip_accents,
        "tokenize_chinese_chars": True,
        **SPECIAL_FIELDS,
        "model_max_length": longest,
    }
    files.write_json(os.path.join(folder, SWITCHES_FILE), settings)
    stripped = [token for token in vocabulary.tokens if token != token.strip()]
    return [f"transformers strips whitespace from the pieces {stripped}"] if stripped else []


def fast_tokenizer(vocabulary: Vocabulary) -> tokenizers.Tokenizer:
    """Returns the tokenizer of word pieces that `tokenizer.json` holds."""
    ids, limit = vocabulary.ids, {"max_input_chars_per_word": _LONGEST_WORD}
    found = tokenizers.Tokenizer(models.WordPiece(ids, unk_token="[UNK]", **limit))
    switches = {"lowercase": vocabulary.do_lower_case, "strip_accents": vocabulary.strip_accents}
    found.normalizer = normalizers.BertNormalizer(**switches)
    found.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    found.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(token, ids[token]) for token in ("[CLS]", "[SEP]")],
    )
    found.decoder = decoders.WordPiece()
    found.add_special_tokens([*SPECIAL_TOKENS])
    return found


def _read(folder: str, name: str) -> dict[str, Any]:
    path = os.path.join(folder, name)
    return files.read_json(path) if storage.exists(path) else {}


def _check_expected(folder: str, name: str, fields: dict[str, Any]) -> None:
    """Raises InputError, naming the field, unless a file has the supported settings."""
    for field, expected in _EXPECTED[name].items():
        *section, key = field.split(".")
        inside = fields.get(*section) if section else fields
        received = inside.get(key, expected) if isinstance(inside, dict) else inside
        if isinstance(received, dict):
            received = received.get("content")  # of a token with properties
        if received != expected:
            raise InputError(
                f"{os.path.join(folder, name)}: `{field}` should be {expected!r}, the only"
                f" supported tokenization. Received: {received!r}"
            )


def _added_tokens(folder: str, settings: dict[str, Any]) -> list[Any]:
    """Returns the added tokens in the files of all versions of transformers."""
    found: list[Any] = [*_read(folder, _IDS_FILE)]
    found += _read(folder, TOKENIZER_FILE).get("added_tokens") or []
    for fields in (settings, _read(folder, _SPECIAL_FILE)):
        found += [fields.get("bos_token"), fields.get("eos_token")]
        for key in (ADDED_TOKENS, "additional_special_tokens", "extra_special_tokens"):
            listed = fields.get(key) or []
            found += listed.values() if isinstance(listed, dict) else listed
    return found


def _of_tokenizer_file(folder: str, settings: dict[str, Any], options: Options) -> Vocabulary:
    """Returns the vocabulary in `tokenizer.json`."""
    path = os.path.join(folder, TOKENIZER_FILE)
    tokenizer = files.read_json(path)
    _check_expected(folder, TOKENIZER_FILE, tokenizer)
    ids = tokenizer["model"].get("vocab")
    if not isinstance(ids, dict):
        raise InputError(f"{path}: `vocab` of the model should map tokens to ids")
    if sorted(map(repr, ids.values())) != sorted(map(repr, range(len(ids)))):
        raise InputError(f"{path}: the ids of its {len(ids)} tokens should be consecutive from 0")
    tokens = sorted(ids, key=ids.__getitem__)
    with located(path):
        switches = _switches(settings, tokenizer["normalizer"], options)
        return Vocabulary(tuple(tokens), **switches)


def _switches(
    settings: dict[str, Any], normalizer: dict[str, Any], options: Options
) -> dict[str, Any]:
    """Returns the switches of the options, or those on which both files agree."""
    switches = dict(options.switches)
    for name, field in (("do_lower_case", "lowercase"), ("strip_accents", "strip_accents")):
        if switches[name] is not None:
            continue
        values = [settings.get(name, normalizer.get(field)), normalizer.get(field)]
        if name == "strip_accents":  # null means as the casing
            values = [switches["do_lower_case"] if value is None else value for value in values]
        if not all(isinstance(value, bool) for value in values) or values[0] != values[1]:
            raise InputError(
                f"`{name}` should be true or false, the same in {SWITCHES_FILE} and here; set it"
                f" with --{name} or --no{name}. Received: {values[0]!r} and {values[1]!r}"
            )
        switches[name] = values[0]
    return switches
