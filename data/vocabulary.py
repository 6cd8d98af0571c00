"""Vocabularies of word pieces, words, a SentencePiece or a BPE model: load, check, save."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from typing import Any

import sentencepiece
import tokenizers
from google.protobuf.message import DecodeError
from sentencepiece import sentencepiece_model_pb2

from convbert.common import files, storage
from convbert.common.errors import InputError, located, warn
from convbert.common.settings import typed

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
LONGEST_WORD = 256  # bytes, of a vocabulary of words: the lookup of TensorFlow Text takes no more
# The tokenizers' counterparts of these. For words, as in WikiText: <eos> ends a line, and also
# precedes the first line.
TOKENIZERS = {
    "wordpiece": SPECIAL_TOKENS,
    "words": ("[PAD]", "<unk>", "<eos>", "<eos>", "[MASK]"),
    "sentencepiece": ("<pad>", "<unk>", "<cls>", "<sep>", "<mask>"),
    "bpe": SPECIAL_TOKENS,  # byte-level, as in ModernBERT
}
WORD_BEGIN = "\u2581"  # represents a space in SentencePiece pieces
_BYTE_SPACE, _BYTE_LINE_END = "\u0120", "\u010a"  # in pieces of bytes
_ALONE = frozenset('!"#$%&()*+,-./:;?@[\\]^_`{|}~')
VOCABULARY_FILE = "vocab.txt"
MODEL_FILE = "spiece.model"  # a SentencePiece model, named as in XLNet's releases
BPE_FILE = "tokenizer.json"  # of the package tokenizers, as in Hugging Face's folders
_FILES = {"sentencepiece": MODEL_FILE, "bpe": BPE_FILE}
VOCABULARY_FILES = (VOCABULARY_FILE, *_FILES.values())
SWITCHES_FILE = "tokenizer_config.json"
ADDED_TOKENS = "added_tokens_decoder"  # in Hugging Face's file: id -> token
_SWITCHES = {"do_lower_case": bool, "strip_accents": bool | None, "tokenizer": str}
_SWITCHES |= {"keep_accents": bool}  # its opposite in Hugging Face's XLNet


def _special_id(number: int) -> property:
    return property(
        lambda self: self.ids[TOKENIZERS[self.tokenizer][number]],
        doc=f"Id of {SPECIAL_TOKENS[number]}, or of its counterpart; see `TOKENIZERS`.",
    )


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """Tokens in the order of their ids, with the switches of text normalisation."""

    tokens: tuple[str, ...]
    do_lower_case: bool = True
    # Whether accents (Unicode category Mn after NFD) are removed. For SentencePiece: whether text
    # becomes NFKD without combining marks.
    strip_accents: bool = True
    tokenizer: str = "wordpiece"  # the kind of tokens, one of `TOKENIZERS`
    # The SentencePiece model, or the JSON of a BPE tokenizer, which also says how text is
    # normalised; empty for other tokenizers.
    model: bytes = dataclasses.field(default=b"", repr=False)

    def __post_init__(self) -> None:
        _check_tokens(self.tokens, self.tokenizer)

    @functools.cached_property
    def ids(self) -> dict[str, int]:
        """Returns the id of each token."""
        return {token: index for index, token in enumerate(self.tokens)}

    @property
    def size(self) -> int:
        """Number of tokens."""
        return len(self.tokens)

    pad_id, unk_id, cls_id, sep_id, mask_id = map(_special_id, range(len(SPECIAL_TOKENS)))

    @property
    def cls_is_last(self) -> bool:
        """True if texts end with the summary token, as in XLNet, instead of beginning with it."""
        return self.tokenizer == "sentencepiece"

    @property
    def file(self) -> str:
        """Name of the file that `save` writes the tokens to."""
        return _FILES.get(self.tokenizer, VOCABULARY_FILE)

    @property
    def digest(self) -> str:
        """SHA-256 (hexadecimal) of tokens and switches: equal means interchangeable."""
        settings = [list(self.tokens), self.do_lower_case, self.strip_accents]
        if self.tokenizer != "wordpiece":
            settings.append(self.tokenizer)
        if self.model:
            settings.append(hashlib.sha256(self.model).hexdigest())
        return hashlib.sha256(json.dumps(settings, ensure_ascii=False).encode()).hexdigest()

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        do_lower_case: bool | None = None,
        strip_accents: bool | None = None,
    ) -> Vocabulary:
        """Reads a vocabulary and its switches.

        `path` is a `vocab.txt`, one token per line; a SentencePiece model, `*.model`; a BPE
        tokenizer, `*.json`, which has its own switches; or a folder with one of them (the first of
        these is read). The given switches take precedence over `tokenizer_config.json` next to it.
        The defaults are BERT's uncased ones, or XLNet's (cased, without accents); accents are
        stripped if text is lower-cased.
        """
        path = os.fspath(path)
        if storage.isdir(path):
            path = os.path.join(path, vocabulary_file(path))
        if path.endswith(os.path.splitext(BPE_FILE)[1]):
            if do_lower_case or strip_accents:
                raise InputError(f"{path} says itself how text is normalised, without switches")
            return cls.of_bpe(files.read_bytes(path), path)
        is_model = path.endswith(os.path.splitext(MODEL_FILE)[1])
        model = files.read_bytes(path) if is_model else b""
        tokens = _pieces(model, path) if is_model else _read_tokens(path)
        settings_path = os.path.join(os.path.dirname(path), SWITCHES_FILE)
        saved = files.read_json(settings_path) if storage.exists(settings_path) else {}
        with located(settings_path):
            switches = {n: typed(n, saved[n], kind) for n, kind in _SWITCHES.items() if n in saved}
            added = typed(ADDED_TOKENS, saved.get(ADDED_TOKENS) or {}, dict)
            tokenizer = switches.get("tokenizer", "sentencepiece" if is_model else "wordpiece")
            allowed = ("sentencepiece",) if is_model else ("wordpiece", "words")
            if tokenizer not in allowed:
                expected = f"{' or '.join(allowed)}, as it is beside {path}"
                raise InputError(f"`tokenizer` should be {expected}. Received: {tokenizer!r}")
        if do_lower_case is None:
            do_lower_case = switches.get("do_lower_case", not is_model)
        if strip_accents is None:
            strip_accents = switches.get("strip_accents")
        if strip_accents is None and is_model:
            strip_accents = not switches.get("keep_accents", False)
        if strip_accents is None:  # the meaning of Hugging Face's null or a missing key
            strip_accents = do_lower_case
        with located(path):
            vocabulary = cls(tuple(tokens), do_lower_case, strip_accents, tokenizer, model)
        check_added_tokens(added.values(), vocabulary, settings_path)
        return vocabulary

    @classmethod
    def of_model(
        cls, model: bytes, *, do_lower_case: bool = False, strip_accents: bool = True
    ) -> Vocabulary:
        """Returns the vocabulary of a SentencePiece model; InputError for other bytes."""
        tokens = _pieces(model, "The vocabulary")
        return cls(tuple(tokens), do_lower_case, strip_accents, "sentencepiece", model)

    @classmethod
    def of_bpe(cls, content: bytes, where: str = "The vocabulary") -> Vocabulary:
        """Returns the vocabulary of a BPE tokenizer; InputError for other bytes."""
        with located(where):
            return cls(tuple(_bpe_tokens(content)), False, False, "bpe", content)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes `vocab.txt` or `spiece.model`, and `tokenizer_config.json`, into `folder`."""
        storage.makedirs(os.fspath(folder))
        switches: dict[str, Any] = {"do_lower_case": self.do_lower_case}
        switches["strip_accents"] = self.strip_accents
        if self.tokenizer != "wordpiece":
            switches["tokenizer"] = self.tokenizer
        # The switches first: without them, a vocabulary would be read as BERT's uncased one.
        files.write_json(os.path.join(folder, SWITCHES_FILE), switches)
        path = os.path.join(folder, self.file)
        if self.model:
            files.write_bytes(path, self.model)
        else:
            files.write_text(path, "\n".join(self.tokens) + "\n")


def warn_of_capitals(vocabulary: Vocabulary, path: str, setting: str) -> None:
    """Warns if texts become lower-case, but more than a hundredth of the tokens is not.

    Or if texts keep their capitals, but no token has any.
    """
    cased = sum(token != token.lower() for token in {*vocabulary.tokens} - {*SPECIAL_TOKENS})
    if cased > 0.01 * vocabulary.size if vocabulary.do_lower_case else not cased:
        warn(f"{cased:,} tokens of {path} have capitals, see {setting}")


def word_starts(vocabulary: Vocabulary) -> list[bool]:
    """Returns for each token, in the order of ids, True if it begins a word.

    For SentencePiece as `_is_start_piece` in data_utils.py of zihangdai/xlnet.
    """
    tokens = vocabulary.tokens
    if vocabulary.tokenizer == "sentencepiece":
        return [token.startswith((WORD_BEGIN, "<")) or token in _ALONE for token in tokens]
    if vocabulary.tokenizer == "bpe":
        begins = (_BYTE_SPACE, _BYTE_LINE_END, *_ALONE)  # the first word of a text has no mark
        return [token.startswith(begins) or token in SPECIAL_TOKENS for token in tokens]
    return [not token.startswith("##") for token in tokens]


def vocabulary_file(folder: str) -> str:
    """Returns the name of a folder's vocabulary file, even if it does not exist."""
    there = (name for name in VOCABULARY_FILES if storage.exists(os.path.join(folder, name)))
    return next(there, VOCABULARY_FILE)


def texts_of_bytes(tokens: Sequence[str]) -> list[bytes]:
    """Returns the bytes that tokens of byte-level BPE stand for, and special tokens unchanged.

    As `bytes_to_unicode` of GPT-2: printable bytes are themselves, others characters from 256 on.
    """
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    codes = {chr(byte): byte for byte in printable}
    codes |= {chr(256 + number): byte for number, byte in enumerate(others)}
    return [
        bytes(codes[c] for c in token) if {*token} <= codes.keys() else token.encode()
        for token in tokens
    ]


def _bpe_tokens(content: bytes) -> list[str]:
    """Returns the tokens of a `tokenizer.json`; InputError for other tokenizers.

    Unknown steps are rejected before the package reads them, as some make it panic.
    """
    described = files.parse_json(content.decode("utf-8", "replace"), "the tokenizer")
    model = typed("model", described.get("model"), dict)
    for name, allowed in _BPE.items():
        if (received := model.get(name)) not in allowed:
            raise InputError(
                f"`{name}` of the model should be {allowed[0]!r}. Received: {received!r}"
            )
    for name, kinds in _STEPS.items():
        step = typed(name, described.get(name) or {"type": None}, dict)
        parts = [step]
        if step.get("type") == "Sequence":  # the package reads no parts of others
            key = f"{name.replace('_', '')}s"
            parts = typed(key, step.get(key), tuple[dict, ...])
        received = [part.get("type") for part in parts]
        found = {*map(str, received)}
        if not found <= {*kinds} or (name == "pre_tokenizer" and "ByteLevel" not in found):
            raise InputError(f"`{name}` should be {' or '.join(kinds)}. Received: {received}")
    try:
        tokenizer = tokenizers.Tokenizer.from_buffer(content)
    except Exception as error:  # the package raises no other type
        raise InputError(f"the package tokenizers should read it: {error}") from error
    ids = tokenizer.get_vocab(with_added_tokens=True)
    if sorted(ids.values()) != [*range(len(ids))]:
        raise InputError(f"the ids of its {len(ids)} tokens should be consecutive from 0")
    alphabet = {*tokenizers.pre_tokenizers.ByteLevel.alphabet()}
    unused = {"\u00c0", "\u00c1", *map(chr, range(0xF5, 0x100))}  # bytes that no text contains
    if missing := alphabet - unused - ids.keys():
        raise InputError(
            f"there should be a token of every byte. Received: none of {sorted(missing)}"
        )
    return sorted(ids, key=ids.__getitem__)


# The supported settings of a `tokenizer.json`. With dropout, ids would be random.
_BPE: dict[str, tuple[Any, ...]] = {
    "type": ("BPE",),
    "dropout": (None, 0.0),
    "continuing_subword_prefix": (None, ""),
    "end_of_word_suffix": (None, ""),
}
_STEPS = {
    "normalizer": ("None", "NFC", "NFD", "NFKC", "NFKD", "Lowercase"),
    "pre_tokenizer": ("ByteLevel", "Digits"),
}


def _pieces(model: bytes, where: str) -> list[str]:
    """Returns the pieces of a SentencePiece model; InputError unless of XLNet's kind."""
    expected = f"{where} should be a SentencePiece model of type unigram."
    try:
        stored = sentencepiece_model_pb2.ModelProto.FromString(model)  # type: ignore[attr-defined]
        sentencepiece.SentencePieceProcessor(model_proto=model)
    except (DecodeError, RuntimeError) as error:
        raise InputError(f"{expected} Received: {error}") from error
    # FastSentencepieceTokenizer would silently be wrong for these.
    spec = stored.trainer_spec
    unigram = spec.model_type == spec.UNIGRAM
    if not (unigram and stored.pieces) or spec.byte_fallback or spec.treat_whitespace_as_suffix:
        raise InputError(
            f"{expected} Received: {len(stored.pieces)} pieces, type"
            f" {spec.ModelType.Name(spec.model_type).lower()}, byte_fallback {spec.byte_fallback},"
            f" treat_whitespace_as_suffix {spec.treat_whitespace_as_suffix}"
        )
    return [piece.piece for piece in stored.pieces]


def _read_tokens(path: str) -> list[str]:
    """Reads one token per line; only line feeds end lines, as tokens may be odd characters."""
    try:
        text = files.read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} must be UTF-8: {error}") from error
    tokens = [line.rstrip("\r") for line in text.split("\n")]
    while tokens and not tokens[-1]:
        del tokens[-1]
    if "" in tokens:
        raise InputError(f"{path} line {tokens.index('') + 1} should not be blank")
    return tokens


def _check_tokens(tokens: Sequence[str], tokenizer: str) -> None:
    """Raises InputError if a token occurs twice or a special token is missing."""
    lines = {token: line for line, token in enumerate(tokens, start=1)}
    if len(lines) < len(tokens):
        line, twice = next(item for item in enumerate(tokens, start=1) if lines[item[1]] > item[0])
        raise InputError(
            f"The vocabulary must hold each token once. Received: {twice!r} on lines {line} and"
            f" {lines[twice]}"
        )
    special = list(dict.fromkeys(TOKENIZERS[tokenizer]))
    missing = [token for token in special if token not in lines]
    if missing:
        raise InputError(
            f"The vocabulary must hold the special tokens {' '.join(special)}. "
            f"Received: {len(tokens)} tokens without {' '.join(missing)}"
        )


def check_added_tokens(added: Iterable[Any], vocabulary: Vocabulary, where: str) -> None:
    """Raises InputError for tokens that Hugging Face matches before splitting a text into pieces.

    Special tokens and pieces of a SentencePiece model are allowed. `added` has contents of tokens,
    or objects with their `content`.
    """
    is_wordpiece = vocabulary.tokenizer == "wordpiece"
    known = [None, *(SPECIAL_TOKENS if is_wordpiece else vocabulary.tokens)]
    for token in added:
        content = token.get("content", "") if isinstance(token, dict) else token
        if content not in known:
            raise InputError(
                f"{where}: added tokens are not supported, other than {' '.join(SPECIAL_TOKENS)}"
                f" or pieces of a SentencePiece model. Received: {content!r}"
            )
