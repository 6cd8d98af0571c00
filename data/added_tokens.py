"""Tokens that Hugging Face's tokenizers find in a text before they cut the rest into pieces."""

from __future__ import annotations

import collections
import dataclasses
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from common.errors import InputError, located
from common.settings import checked_bool

ADDED_TOKENS = "added_tokens_decoder"  # their name in tokenizer_config.json: id -> token


@dataclasses.dataclass(frozen=True)
class AddedToken:
    """A token that is found wherever its content stands; Hugging Face's names.

    Attributes:
        content: what is looked for.
        normalized: whether it is looked for in normalised text, itself normalised; else in the
            text as it is.
        special, lstrip, rstrip: change no ids; kept for Hugging Face.
    """

    content: str
    normalized: bool = True
    special: bool = False
    lstrip: bool = False
    rstrip: bool = False

    @property
    def flags(self) -> dict[str, bool]:
        """Everything but the content, as in tokenizer_config.json and tokenizer.json."""
        fields = dataclasses.asdict(self)
        del fields["content"]
        return {**fields, "single_word": False}


def added_token(fields: Mapping[str, Any], where: str) -> AddedToken:
    """A token of a tokenizer's file; InputError, naming `where`, for what is found otherwise here.

    `fields` are `content`, and such of the flags as are not by default.
    """
    content = fields.get("content") if isinstance(fields, Mapping) else None
    if not isinstance(content, str) or not content:
        raise InputError(f"{where}: a token should have a `content`. Received: {fields!r}")
    names = ("special", "lstrip", "rstrip", "single_word", "normalized")
    with located(f"{where} of {content!r}"):
        flags = {name: checked_bool(name, fields[name]) for name in names if name in fields}
        if flags.pop("single_word", False):
            raise InputError(
                "`single_word` should be false, as an added token is found inside of words, too."
                " Received: True"
            )
    return AddedToken(content, **{"normalized": not flags.get("special", False), **flags})


def added_tokens_by_id(settings: Mapping[str, Any], where: str) -> list[tuple[int, Any]]:
    """(id, token) of each token of a tokenizer_config.json; InputError when it holds no such."""
    stored = settings.get(ADDED_TOKENS) or {}
    if not isinstance(stored, dict) or not all(number.isdecimal() for number in stored):
        raise InputError(f"{where} should map ids to tokens. Received: {stored!r}")
    return sorted((int(number), fields) for number, fields in stored.items())


def check_added_tokens(added: Sequence[AddedToken], do_lower_case: bool, where: str) -> None:
    """Raises InputError for tokens that cannot be found exactly as Hugging Face finds them."""
    beginnings: collections.defaultdict[str, set[str]] = collections.defaultdict(set)
    for token in added:
        for n in range(1, len(token.content) + 1):
            beginnings[token.content[:n].lower()].add(token.content)
    for token in added:
        if reason := _unfit(token, do_lower_case):
            raise InputError(f"{where}: the added token {token.content!r} {reason}")
        # A proper end is another's beginning, or all of it another's but for the case.
        for n in range(len(token.content)):
            others = beginnings[token.content[n:].lower()] - {token.content}
            if n == 0:
                others = {other for other in others if len(other) == len(token.content)}
            if others:
                raise InputError(
                    f"{where}: the added tokens {token.content!r} and {min(others)!r} may overlap"
                    " in a text, or differ in case alone, which is not supported here"
                )


def _unfit(token: AddedToken, do_lower_case: bool) -> str | None:
    content, decomposed = token.content, unicodedata.normalize("NFD", token.content)
    if any(character.isspace() for character in content):
        return "should not hold whitespace"
    if content.startswith("##"):
        return "should not begin with ##, as pieces inside of words do"
    if any(unicodedata.category(character)[0] in "CM" for character in decomposed):
        return "should not hold control characters or accents, which normalisation may remove"
    word = not any(_parts_words(character) for character in content)
    unchanged = content == (content.lower() if do_lower_case else content)
    if word and unchanged and not token.normalized:
        return "is a word, so `normalized` should be true; else it is found in a part of the texts"
    return None


def _parts_words(character: str) -> bool:
    """Returns True if BERT splits words there: at punctuation and non-alphanumeric ASCII."""
    is_symbol = character.isascii() and not character.isalnum()
    return is_symbol or unicodedata.category(character).startswith("P")
