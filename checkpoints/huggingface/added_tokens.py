"""The added tokens of a folder that `save_pretrained` wrote, whichever of its files say them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import files
import storage
from data.added_tokens import ADDED_TOKENS, AddedToken, added_token, added_tokens_by_id
from data.vocabulary import SPECIAL_TOKENS, SWITCHES_FILE
from errors import InputError

IDS_FILE = "added_tokens.json"  # content -> id, by older versions
SPECIAL_TOKENS_FILE = "special_tokens_map.json"  # likewise
_LISTS = ("additional_special_tokens", "extra_special_tokens")
_OURS = {f"{token.strip('[]').lower()}_token": token for token in SPECIAL_TOKENS}


def with_added_tokens(
    folder: str, tokens: tuple[str, ...], settings: Mapping[str, Any], tokenizer: Mapping[str, Any]
) -> tuple[tuple[str, ...], tuple[AddedToken, ...]]:
    """The tokens of a folder and those that it adds, each with its id.

    `settings` are the fields of `tokenizer_config.json`, `tokenizer` those of `tokenizer.json`.

    Returns:
        All tokens in the order of their ids; and those of them that are added, but for BERT's five.

    Raises:
        InputError: the files contradict each other, a token has no id or not the next one, or it
            would be found in other places here.
    """
    legacy = _read(folder, SPECIAL_TOKENS_FILE)
    _check_special(folder, legacy)
    special = dict(_special(folder, settings, SWITCHES_FILE))
    special |= dict(_special(folder, legacy, SPECIAL_TOKENS_FILE))
    found: dict[str, tuple[AddedToken, int]] = {}
    for where, number, fields in _listed(folder, settings, tokenizer, special):
        token = added_token(fields, where)
        if token.content in SPECIAL_TOKENS:
            continue
        if not isinstance(number, int) or isinstance(number, bool):
            raise InputError(f"{where}: the id of {token.content!r} should be an integer")
        if found.setdefault(token.content, (token, number)) != (token, number):
            raise InputError(
                f"{where}: the added token {token.content!r} has another id or other flags than in"
                " another of the folder's files"
            )
    everything = list(tokens)
    for content, (_, number) in sorted(found.items(), key=lambda item: item[1][1]):
        if content not in everything:
            everything.append(content)
        if number != everything.index(content):
            reason = "that of its piece" if content in tokens else "the next one"
            raise InputError(
                f"{folder}: the id of the added token {content!r} should be"
                f" {everything.index(content)}, {reason}. Received: {number}"
            )
    added = [token for token, _ in found.values()]
    for content, where in special.items():
        if content not in everything:
            raise InputError(f"{where}: {content!r} should have an id in {ADDED_TOKENS}")
        if content not in found:
            added.append(AddedToken(content, normalized=False, special=True))
    return tuple(everything), tuple(sorted(added, key=lambda t: everything.index(t.content)))


def _listed(
    folder: str,
    settings: Mapping[str, Any],
    tokenizer: Mapping[str, Any],
    special: Mapping[str, str],
) -> Iterator[tuple[str, Any, Mapping[str, Any]]]:
    """(where it stands, id, properties) of each token that some file gives an id."""
    where = f"{os.path.join(folder, 'tokenizer.json')}: `added_tokens`"
    for fields in tokenizer.get("added_tokens") or []:
        yield where, fields.get("id") if isinstance(fields, dict) else None, fields
    where = f"{os.path.join(folder, SWITCHES_FILE)}: `{ADDED_TOKENS}`"
    for number, fields in added_tokens_by_id(settings, where):
        yield where, number, fields
    if ADDED_TOKENS in settings or tokenizer:
        return  # whose flags are known; the older file repeats the ids alone
    for content, number in _read(folder, IDS_FILE).items():
        fields = {"content": content, "special": content in special}
        yield os.path.join(folder, IDS_FILE), number, fields


def _special(folder: str, settings: Mapping[str, Any], name: str) -> Iterator[tuple[str, str]]:
    """(content, where it stands) of each special token but BERT's five."""
    values = [(key, settings.get(key)) for key in ("bos_token", "eos_token")]
    for key in _LISTS:
        listed = settings.get(key) or []
        listed = listed.values() if isinstance(listed, dict) else listed
        values += [(key, value) for value in listed]
    for key, value in values:
        content = content_of(value)
        if content is not None and content not in SPECIAL_TOKENS:
            yield str(content), f"{os.path.join(folder, name)}: `{key}`"


def content_of(value: Any) -> Any:
    """A token, which may be given with its properties."""
    return value.get("content") if isinstance(value, dict) else value


def _check_special(folder: str, legacy: Mapping[str, Any]) -> None:
    for name, expected in _OURS.items():
        received = content_of(legacy.get(name, expected))
        if received != expected:
            raise InputError(
                f"{os.path.join(folder, SPECIAL_TOKENS_FILE)}: `{name}` should be {expected!r}, as"
                f" text is always cut so here. Received: {received!r}"
            )


def _read(folder: str, name: str) -> dict[str, Any]:
    path = os.path.join(folder, name)
    return files.read_json(path) if storage.exists(path) else {}
