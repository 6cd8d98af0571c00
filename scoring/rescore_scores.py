"""Scores of sentences that are kept in a file, so that another grid of weights costs nothing.

A file of scores has JSON lines, each of a sentence:

    {"text": "mister kilter is the apostle", "score": -24.1, "num_pieces": 7, "num_words": 5}

`rescore` adds lines to its own files while it scores, and lines about the scoring: the first names
the model, later ones the seconds that some sentences took. So an interrupted run resumes.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import time
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import tqdm

import files
import storage
from errors import InputError, warn
from training.model_directory import CHECKPOINT_FOLDER

SUFFIX = ".scores.jsonl"
_SENTENCES = 2048  # between two writes; they are of similar length
# What tells a model from another: small files of model directories and SavedModels. Indices of
# checkpoints hold a checksum of every tensor.
_IDENTITY = {
    "": ("config.json", "hparams.json", "vocab.txt", "spiece.model", "saved_model.pb"),
    CHECKPOINT_FOLDER: ("checkpoint", "*.index"),
    "variables": ("*.index",),
}


class Kept(NamedTuple):
    """A sentence's score, and what it was a sum over."""

    score: float
    num_pieces: int
    num_words: int


_NOTHING = Kept(math.nan, 0, 0)


class Scorer(Protocol):
    """What scores sentences; see scoring/scorer.py."""

    method: str

    def scores(
        self, sentences: Sequence[str], *, allow_no_pieces: bool
    ) -> Sequence[tuple[float, int, int]]:
        """Score, pieces and words of each sentence, in the order given."""


@dataclasses.dataclass
class KeptScores:
    """Scores by sentence.

    Attributes:
        path: the file.
        about: what the first line says of the model; {} where it says nothing.
        scores: of each sentence.
        seconds, timed: that scoring took, and of how many sentences.
    """

    path: str
    about: dict[str, Any] = dataclasses.field(default_factory=dict)
    scores: dict[str, Kept] = dataclasses.field(default_factory=dict)
    seconds: float = 0.0
    timed: int = 0

    @property
    def seconds_per_1000(self) -> float | None:
        """Seconds for 1,000 sentences; None where the file does not say."""
        return 1000 * self.seconds / self.timed if self.timed else None

    def of(self, texts: Sequence[str]) -> list[Kept]:
        """Scores of texts; NaN for those without words, or of which the tokenizer keeps nothing."""
        found = (self.scores[text] if text.split() else _NOTHING for text in texts)
        return [one if one.num_pieces or one.score else _NOTHING for one in found]

    def add(self, lines: Iterable[str]) -> None:
        """Reads lines; raises InputError where one is not as the file's format says."""
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            where = f"{self.path}, line {number}"
            value = files.parse_json(line, where)
            if "text" in value or "score" in value:
                self.scores[value["text"]] = _checked(value, where)
            elif "seconds" in value:
                self.seconds += _number(value, "seconds", where)
                self.timed += int(_number(value, "sentences", where))
            elif number == 1 or "model" in value:
                self.about.update(value)
            else:
                raise InputError(f"{where}: should have `text` and `score`, or say the model")


def read_scores(path: str) -> KeptScores:
    """Reads a file of scores.

    Raises:
        InputError: it cannot be read, or a line is not of the format; names the line.
    """
    kept = KeptScores(path)
    try:
        with storage.open(path, encoding="utf-8") as file:
            kept.add(file)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: should be UTF-8: {error}") from error
    return kept


def _checked(value: dict[str, Any], where: str) -> Kept:
    if not isinstance(value.get("text"), str):
        raise InputError(f"{where}: `text` should be a text. Received: {value.get('text')!r}")
    kept = Kept(*(_number(value, name, where) for name in Kept._fields))
    nothing = kept.score == kept.num_pieces == 0  # the tokenizer kept nothing of it
    for name in Kept._fields[1:]:
        least = 0 if nothing or not value["text"].split() else 1
        if value[name] < least or value[name] != int(value[name]):
            raise InputError(
                f"{where}: `{name}` should be a whole number of at least {least}. Received:"
                f" {value[name]!r}"
            )
    return kept


def _number(value: dict[str, Any], name: str, where: str) -> float:
    number = value.get(name)
    valid = isinstance(number, (int, float)) and not isinstance(number, bool)
    try:
        valid = valid and math.isfinite(number)
    except OverflowError:  # an integer that no float is
        valid = False
    if not valid:
        raise InputError(f"{where}: `{name}` should be a finite number. Received: {number!r}")
    return number


def about_model(model: str, method: str | None) -> dict[str, Any]:
    """What the first line of scores says: model, method, and a digest of its small files."""
    digest = hashlib.sha256()
    for folder, patterns in _IDENTITY.items():
        for pattern in patterns:
            for path in storage.matching(os.path.join(model, folder), pattern):
                with storage.open(path, "rb") as file:
                    digest.update(os.path.basename(path).encode() + file.read())
    return {"model": storage.abspath(model), "method": method, "digest": digest.hexdigest()}


def begun_scores(folder: str, name: str, about: dict[str, Any]) -> KeptScores:
    """The scores of an earlier run with the same model, which may have been killed; else none.

    They are in FOLDER/NAME.METHOD.scores.jsonl.
    """
    path = os.path.join(folder, f"{name}.{about['method']}{SUFFIX}")
    found = KeptScores(path)
    try:
        with storage.open(path, encoding="utf-8") as file:
            found.add(file.read().split("\n")[:-1])  # a kill may have cut the last line
    except FileNotFoundError:
        return found
    same = {**found.about, "model": None} == {**about, "model": None}  # it may have been moved
    return found if same else KeptScores(path)


def missing_scores(kept: KeptScores, texts: Iterable[str]) -> list[str]:
    """Texts without a score, each once, the longest first."""
    missing = dict.fromkeys(text for text in texts if text not in kept.scores)
    return sorted(missing, key=lambda text: -len(text))


def complete(
    kept: KeptScores, about: dict[str, Any], missing: Sequence[str], scorer: Scorer
) -> None:
    """Scores sentences and adds them to the file.

    Args:
        kept: scores there are, of `begun_scores`.
        about: the first line.
        missing: sentences that have none.
        scorer: the model.

    Raises:
        InputError: a score is not a finite number; names the sentence. Or the file cannot be
            written.
    """
    lines = [{"text": text, **score._asdict()} for text, score in kept.scores.items()]
    times = [{"seconds": kept.seconds, "sentences": kept.timed}] * (kept.timed > 0)
    if not kept.about and storage.exists(kept.path):
        warn(f"{kept.path}: scores of another checkpoint or other settings are replaced")
    files.write_text(kept.path, _json_lines([about, *times, *lines]))
    kept.about = about
    with tqdm.tqdm(total=len(missing), unit=" sentences", mininterval=5) as bar:
        for first in range(0, len(missing), _SENTENCES):
            texts = missing[first : first + _SENTENCES]
            begin = time.monotonic()
            scores = scorer.scores(texts, allow_no_pieces=True)
            found = [Kept(float(score), *map(int, rest)) for score, *rest in scores]
            timed = {"seconds": round(time.monotonic() - begin, 3), "sentences": len(texts)}
            for text, score in zip(texts, found, strict=True):
                if not math.isfinite(score.score):
                    raise InputError(
                        f"{about['model']}: the score of {text!r} should be finite. Received:"
                        f" {score.score}"
                    )
            lines = [{"text": text, **score._asdict()} for text, score in zip(texts, found)]
            files.append_text(kept.path, _json_lines([*lines, timed]))
            kept.scores.update(zip(texts, found))
            kept.seconds += timed["seconds"]
            kept.timed += timed["sentences"]
            bar.update(len(texts))


def _json_lines(values: Iterable[dict[str, Any]]) -> str:
    return "".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values)
