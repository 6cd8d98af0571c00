"""N-best lists of a speech recogniser: utterances, references, hypotheses and their scores.

Two formats. A file whose name ends in `.json` is one object, as in mlm-scoring's `*.am.json`:

    {"utterance": {"ref": "TEXT", "hyp_1": {"score": -4.06, "text": "TEXT"}, "hyp_2": ...}, ...}

Every other file has a row per hypothesis, without a header, quotes or escapes, in columns separated
by tabs: utterance, score of the recogniser, hypothesis, and maybe the reference, the same in all
rows of an utterance, which follow each other. References may instead be in a file of their own,
with the columns utterance and reference.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Iterator
from typing import Any

import storage
from errors import InputError

_HYPOTHESIS = re.compile(r"hyp_(\d{1,18})")


@dataclasses.dataclass
class Utterance:
    """What was said, and what a recogniser made of it.

    Attributes:
        name: its id.
        reference: what was said.
        hypotheses: texts, in the order of the file.
        scores: of the recogniser, the higher the better, one for each hypothesis.
    """

    name: str
    reference: str | None = None
    hypotheses: list[str] = dataclasses.field(default_factory=list)
    scores: list[float] = dataclasses.field(default_factory=list)


def read_lists(path: str, references: str | None = None) -> list[Utterance]:
    """Reads n-best lists, in the order of the file.

    Args:
        path: a file or URL in one of the two formats.
        references: a file of references, for lists in columns that have none.

    Raises:
        InputError: the file cannot be read; an utterance is a duplicate, or has no reference or no
            hypothesis; a score is not a finite number. Names file and utterance.
    """
    if not path.endswith(".json"):
        utterances = _from_columns(path)
        if references is not None:
            _add_references(utterances, path, references)
    elif references is not None:
        raise InputError(f"{references}: {path} should hold its references itself, as `ref`")
    else:
        utterances = _from_json(path)
    if not utterances:
        raise InputError(f"{path}: should hold at least one utterance")
    for utterance in utterances:
        if utterance.reference is None:
            raise InputError(
                f"{path}: utterance {utterance.name!r} has no reference; a table without references"
                " takes them from --dev_references or --test_references"
            )
        if not utterance.hypotheses:
            raise InputError(f"{path}: utterance {utterance.name!r} has no hypotheses")
    if not any(utterance.reference.split() for utterance in utterances):
        raise InputError(f"{path}: the references should hold at least one word")
    return utterances


class _Object(dict):
    """A JSON object that remembers which of its names came twice."""

    def __init__(self, pairs: list[tuple[str, Any]]):
        super().__init__(pairs)
        names = [name for name, _ in pairs]
        self.repeated = [n for n in self if names.count(n) > 1] if len(names) > len(self) else []


def _from_json(path: str) -> list[Utterance]:
    try:
        content = json.loads(_read(path), object_pairs_hook=_Object)
    except json.JSONDecodeError as error:
        raise InputError(f"{path}, line {error.lineno}: not JSON ({error.msg})") from error
    except ValueError as error:  # a number of thousands of digits
        raise InputError(f"{path}: not n-best lists: {error}") from error
    except RecursionError as error:
        raise InputError(f"{path}: not n-best lists: too many brackets in each other") from error
    if not isinstance(content, dict):
        raise InputError(f"{path}: should be a JSON object of utterances")
    if content.repeated:
        raise InputError(f"{path}: utterance {content.repeated[0]!r} is a duplicate")
    return [_json_utterance(f"{path}: utterance {n!r}", n, v) for n, v in content.items()]


def _json_utterance(where: str, name: str, value: Any) -> Utterance:
    if not isinstance(value, dict):
        raise InputError(f"{where} should be a JSON object with `ref`, `hyp_1`, ...")
    if value.repeated:
        raise InputError(f"{where} has `{value.repeated[0]}` twice")
    utterance = Utterance(name, value.get("ref"))
    if not isinstance(utterance.reference, str | None):
        raise InputError(f"{where}: `ref` should be a text. Received: {utterance.reference!r}")
    _check_encodable(f"{where}: `ref`", utterance.reference or "")
    numbered = {}
    for key in value.keys() - {"ref"}:
        found = _HYPOTHESIS.fullmatch(key)
        if not found:
            raise InputError(f"{where} should hold `ref`, `hyp_1`, ... alone. Received: {key!r}")
        numbered[int(found[1]), key] = value[key]
    for (_, key), hypothesis in sorted(numbered.items(), key=lambda item: item[0]):
        fields = hypothesis if isinstance(hypothesis, dict) else {}
        if not isinstance(fields.get("text"), str) or "score" not in fields:
            raise InputError(f"{where}: `{key}` should have `score` and `text`")
        _check_encodable(f"{where}: `text` of `{key}`", fields["text"])
        utterance.hypotheses.append(fields["text"])
        utterance.scores.append(_score(f"{where}: `score` of `{key}`", fields["score"]))
    return utterance


def _check_encodable(where: str, text: str) -> None:
    """Raises InputError for half of a surrogate pair, which JSON can hold and UTF-8 cannot."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{where} should be Unicode text. Received: {text!r}") from error


def _from_columns(path: str) -> list[Utterance]:
    utterances: dict[str, Utterance] = {}
    current = None
    for line, (name, score, hypothesis, *reference) in _rows(path, (3, 4)):
        where = f"{path}, line {line}: utterance {name!r}"
        if current is None or name != current.name:
            if name in utterances:
                raise InputError(f"{where} is a duplicate: its rows should follow each other")
            current = utterances[name] = Utterance(name, *reference)
        elif reference != [current.reference] * len(reference):
            raise InputError(
                f"{where} should have the same reference in all rows. Received:"
                f" {current.reference!r}, then {reference[0]!r}"
            )
        current.hypotheses.append(hypothesis)
        current.scores.append(_score(f"{where}: the score", score))
    return list(utterances.values())


def _add_references(utterances: list[Utterance], path: str, references: str) -> None:
    """Gives each utterance its reference."""
    found: dict[str, str] = {}
    for line, (name, reference) in _rows(references, (2,)):
        if name in found:
            raise InputError(f"{references}, line {line}: utterance {name!r} is a duplicate")
        found[name] = reference
    for utterance in utterances:
        if utterance.reference is not None:
            raise InputError(f"{path}: utterance {utterance.name!r} has a reference here, too")
        if utterance.name not in found:
            raise InputError(f"{references}: utterance {utterance.name!r} has no reference")
        utterance.reference = found.pop(utterance.name)
    for name in found:  # a recogniser that says nothing has made errors, too
        raise InputError(f"{path}: utterance {name!r} has no hypotheses")


def _rows(path: str, widths: tuple[int, ...]) -> Iterator[tuple[int, list[str]]]:
    """Yields number and cells of each line that is not blank."""
    for number, line in enumerate(_read(path).split("\n"), 1):
        cells = line.removesuffix("\r").split("\t")
        if line.strip():
            if len(cells) not in widths:
                expected = " or ".join(map(str, widths))
                raise InputError(
                    f"{path}, line {number}: should have {expected} columns, separated by tabs."
                    f" Received: {len(cells)}"
                )
            yield number, cells


def _score(where: str, value: Any) -> float:
    number = isinstance(value, (int, float, str)) and not isinstance(value, bool)
    try:
        score = float(value) if number else math.nan
    except (ValueError, OverflowError):
        score = math.nan
    if not math.isfinite(score):
        raise InputError(f"{where} should be a finite number. Received: {value!r}")
    return score


def _read(path: str) -> str:
    try:
        with storage.open(path, encoding="utf-8-sig", newline="") as file:
            return file.read()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: should be UTF-8: {error}") from error
