"""The vocabulary, of word pieces, of words or of a SentencePiece model: load, check, save."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from typing import Any

import files
import storage
from data.added_tokens import (
    ADDED_TOKENS,
    AddedToken,
    added_token,
    added_tokens_by_id,
    check_added_tokens,
)
from data.encodings import BYTE_ORDER_MARK, reject_other_encodings
from data.sentencepiece_model import (
    MODEL_FILE,
    MODEL_SUFFIX,
    SPECIAL_PIECES,
    pieces,
    read_model,
)
from errors import InputError, located
from settings import typed

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
# What the tokenizers have in the places of these. Of words, as in WikiText: <eos> ends a line, and
# as the one before has ended, it is what the first one begins after.
TOKENIZERS = {
    "wordpiece": SPECIAL_TOKENS,
    "words": ("[PAD]", "<unk>", "<eos>", "<eos>", "[MASK]"),
    "sentencepiece": SPECIAL_PIECES,
}
VOCABULARY_FILE = "vocab.txt"  # of a SentencePiece model there is MODEL_FILE instead
SWITCHES_FILE = "tokenizer_config.json"
_SWITCHES = {"do_lower_case": bool, "strip_accents": bool | None, "tokenizer": str}
_SWITCHES |= {"keep_accents": bool}  # the opposite, as Hugging Face says it of XLNet


def _special_id(number: int) -> property:
    return property(
        lambda self: self.ids[TOKENIZERS[self.tokenizer][number]],
        doc=f"Id of {SPECIAL_TOKENS[number]}, or of what stands in its place; see `TOKENIZERS`.",
    )


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """Tokens in the order of their ids, with the switches of the text's normalisation.

    Attributes:
        tokens: the pieces; the index of a piece is its id.
        do_lower_case: whether text is lower-cased before it is cut into pieces.
        strip_accents: whether accents (Unicode category Mn after NFD) are removed. Of
            SentencePiece: whether text becomes NFKD without combining marks.
        added_tokens: those of the tokens that are found before text is cut into pieces.
        tokenizer: what the tokens are, one of `TOKENIZERS`.
        model: the SentencePiece model; of other tokenizers empty.
    """

    tokens: tuple[str, ...]
    do_lower_case: bool = True
    strip_accents: bool = True
    added_tokens: tuple[AddedToken, ...] = ()
    tokenizer: str = "wordpiece"
    model: bytes = dataclasses.field(default=b"", repr=False)

    def __post_init__(self) -> None:
        _check_tokens(self.tokens, self.tokenizer)
        if self.added_tokens:
            check_added_tokens(self.added_tokens, self.do_lower_case, "The vocabulary")

    @functools.cached_property
    def ids(self) -> dict[str, int]:
        """The id of each token."""
        return {token: index for index, token in enumerate(self.tokens)}

    @property
    def size(self) -> int:
        """Number of tokens."""
        return len(self.tokens)

    pad_id, unk_id, cls_id, sep_id, mask_id = map(_special_id, range(len(SPECIAL_TOKENS)))

    @property
    def cls_is_last(self) -> bool:
        """Whether texts end with the summary token, as XLNet's do, and do not begin with it."""
        return self.tokenizer == "sentencepiece"

    @property
    def file(self) -> str:
        """The name of the file that `save` writes the tokens to."""
        return MODEL_FILE if self.model else VOCABULARY_FILE

    @property
    def added_tokens_decoder(self) -> dict[str, dict]:
        """The added tokens as tokenizer_config.json has them: by id."""
        return {
            str(self.ids[token.content]): {"content": token.content, **token.flags}
            for token in self.added_tokens
        }

    @property
    def digest(self) -> str:
        """SHA-256 (hexadecimal) of the tokens and both switches: equal means interchangeable."""
        settings = [list(self.tokens), self.do_lower_case, self.strip_accents]
        if self.added_tokens:
            settings.append([dataclasses.astuple(token) for token in self.added_tokens])
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

        Args:
            path: a `vocab.txt`, one token per line; a SentencePiece model, `*.model`; or a folder
                that holds `vocab.txt` or `spiece.model`, of which the former is read.
            do_lower_case: overrules `tokenizer_config.json` beside the vocabulary.
            strip_accents: likewise. Where nothing says it, as the casing: both are True by
                default, as in BERT uncased. Of a SentencePiece model text is not lower-cased and
                accents are removed by default, as in XLNet.

        Raises:
            InputError: no such file, not UTF-8, a blank line before the last token, a special token
                missing, a token twice, or no SentencePiece model.
        """
        path = os.fspath(path)
        if storage.isdir(path):
            path = os.path.join(path, vocabulary_file(path))
        model = read_model(path) if path.endswith(MODEL_SUFFIX) else None
        tokens = _read_tokens(path) if model is None else list(pieces(model, path))
        settings_path = os.path.join(os.path.dirname(path), SWITCHES_FILE)
        saved = files.read_json(settings_path) if storage.exists(settings_path) else {}
        where = f"{settings_path}: `{ADDED_TOKENS}`"
        with located(settings_path):
            tokenizer = _tokenizer(saved, model is not None)
            switches = {
                name: typed(name, saved[name], _SWITCHES[name]) for name in _SWITCHES.keys() & saved
            }
        listed = [(where, *entry) for entry in added_tokens_by_id(saved, where)]
        added = join_added_tokens(tokens, listed, path, extends=tokenizer == "wordpiece")
        if do_lower_case is None:
            do_lower_case = switches.get("do_lower_case", model is None)
        if strip_accents is None:
            strip_accents = switches.get("strip_accents")
        if strip_accents is None and model is not None:
            strip_accents = not switches.get("keep_accents", False)
        if strip_accents is None:  # what Hugging Face's null, or no such key, stands for
            strip_accents = do_lower_case
        with located(path):
            return cls(tuple(tokens), do_lower_case, strip_accents, added, tokenizer, model or b"")

    @classmethod
    def of_model(
        cls, model: bytes, *, do_lower_case: bool = False, strip_accents: bool = True
    ) -> Vocabulary:
        """The vocabulary of a SentencePiece model; InputError where the bytes are none."""
        tokens = pieces(model, "The vocabulary")
        return cls(tokens, do_lower_case, strip_accents, (), "sentencepiece", model)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes `vocab.txt` or `spiece.model`, and `tokenizer_config.json`, into `folder`.

        These are Hugging Face's names.
        """
        storage.makedirs(folder)
        switches = {"do_lower_case": self.do_lower_case, "strip_accents": self.strip_accents}
        if self.added_tokens:
            switches[ADDED_TOKENS] = self.added_tokens_decoder
        if self.tokenizer != "wordpiece":
            switches["tokenizer"] = self.tokenizer
        # The switches first: a vocabulary without them would be read as BERT's uncased one.
        files.write_json(os.path.join(folder, SWITCHES_FILE), switches)
        path = os.path.join(folder, self.file)
        if self.model:
            files.write_bytes(path, self.model)
        else:
            files.write_text(path, "\n".join(self.tokens) + "\n")


def trained_vocabulary(model_dir: str, vocab_size: int, digest: str | None) -> Vocabulary:
    """Returns the vocabulary of a model directory, which must be that of the training.

    It may hold fewer tokens than the embeddings have rows, where `digest`, of the vocabulary in
    training, says that it is the one: the rows after them are padding.

    Raises:
        InputError: another number of tokens, other tokens or another casing.
    """
    vocabulary = Vocabulary.load(model_dir)
    padded = vocabulary.size < vocab_size and digest == vocabulary.digest
    if vocabulary.size != vocab_size and not padded:
        raise InputError(
            f"{model_dir}: {vocabulary.file} should have the {vocab_size} tokens of"
            f" config.json. Received: {vocabulary.size}"
        )
    if digest not in (None, vocabulary.digest):
        raise InputError(
            f"{model_dir}: {vocabulary.file}, or its casing in tokenizer_config.json, is not what"
            " the model was trained with"
        )
    return vocabulary


def vocabulary_file(folder: str) -> str:
    """The name of the file in a folder that holds its vocabulary, whether it is there or not."""
    other = storage.exists(os.path.join(folder, VOCABULARY_FILE))
    there = storage.exists(os.path.join(folder, MODEL_FILE))
    return MODEL_FILE if there and not other else VOCABULARY_FILE


def _tokenizer(saved: dict[str, Any], is_model: bool) -> str:
    """The tokenizer of a vocabulary: what the switches say, which must fit the file."""
    default = "sentencepiece" if is_model else "wordpiece"
    tokenizer = typed("tokenizer", saved.get("tokenizer", default), str)
    expected = [name for name in TOKENIZERS if (name == "sentencepiece") == is_model]
    if tokenizer not in expected:
        kind = MODEL_FILE if is_model else VOCABULARY_FILE
        raise InputError(
            f"`tokenizer` should be {' or '.join(expected)} for a {kind}. Received: {tokenizer!r}"
        )
    return tokenizer


def _read_tokens(path: str) -> list[str]:
    """Reads one token per line; only line feeds part lines, as some tokens are odd characters."""
    raw = files.read_bytes(path)
    reject_other_encodings(raw, path)
    try:
        text = raw.removeprefix(BYTE_ORDER_MARK).decode("utf-8")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        received = error.object[error.start : error.start + 4]
        raise InputError(f"{path} line {line} must be UTF-8. Received: {received!r}") from error
    tokens = [line.rstrip("\r") for line in text.split("\n")]
    while tokens and not tokens[-1]:
        del tokens[-1]
    if "" in tokens:
        raise InputError(
            f"{path} line {tokens.index('') + 1} should hold a token. Received: a blank line"
        )
    return tokens


def _check_tokens(tokens: Sequence[str], tokenizer: str) -> None:
    """Raises InputError where a token stands twice or a special token is missing."""
    first_line: dict[str, int] = {}
    for line, token in enumerate(tokens, start=1):
        if token in first_line:
            raise InputError(
                f"The vocabulary must hold each token once. Received: {token!r} on lines "
                f"{first_line[token]} and {line}"
            )
        first_line[token] = line
    special = list(dict.fromkeys(TOKENIZERS[tokenizer]))
    missing = [token for token in special if token not in first_line]
    if missing:
        raise InputError(
            f"The vocabulary must hold the special tokens {' '.join(special)}. "
            f"Received: {len(first_line)} tokens without {' '.join(missing)}"
        )


def join_added_tokens(
    tokens: list[str], listed: Iterable[tuple[str, int, Any]], path: str, extends: bool = True
) -> tuple[AddedToken, ...]:
    """The added tokens of a tokenizer's files; those after the last of `tokens` join them.

    Args:
        listed: (file and field, id, fields of the token), in the order of the ids; tokens that
            stand twice are the same.
        path: of the file with `tokens`.
        extends: false where tokens are the vocabulary's own alone, and found without being added.
    """
    added: dict[str, AddedToken] = {}
    for where, number, fields in listed:
        token = added_token(fields, where)
        if extends and token.content in SPECIAL_TOKENS:
            continue
        if extends and number == len(tokens) and token.content not in tokens:
            tokens.append(token.content)
        if number >= len(tokens) or tokens[number] != token.content:
            raise InputError(
                f"{where}: {token.content!r} should be token {number} of {path}, which has"
                f" {len(tokens)}"
            )
        if added.setdefault(token.content, token) != token:
            raise InputError(f"{where}: {token.content!r} has other flags than in another file")
    return tuple(added.values()) if extends else ()
