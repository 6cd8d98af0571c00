"""Makes a small task from the installed documentation: are two passages from the same entry?

    python -m finetune.documentation_pairs --output_dir DIR

So that nothing but what the passages say tells the label, every passage stands in exactly one pair
of each label, and both passages of a pair are from the same package.
The folder holds `train.jsonl`, `dev.jsonl` and `task.json`, which `run_finetuning.py --task` takes.

Comparing two texts is hard to learn: it takes far more pre-training than the quickstart's, with
which counting the words that two passages share does better.
"""

from __future__ import annotations

import collections
import dataclasses
import random
from collections.abc import Sequence

from finetune.documentation_text import MIN_WORDS, Entry, Row, TextTask, run_command

LABELS = ("different", "same")


@dataclasses.dataclass(frozen=True)
class Pair:
    """Two passages of the entry called `entry`, in `package`."""

    package: str
    entry: str
    text_a: str
    text_b: str


def build(entries: Sequence[Entry], number: int, generator: random.Random) -> list[Row]:
    """Half of the rows are pairs as they are, half have their second passages exchanged."""
    pairs = [pair for entry in entries for pair in _pairs_of(entry, generator)]
    chosen = choose_pairs(pairs, number // 2, generator)
    rows = [_row(pair.text_a, pair.text_b, "same") for pair in chosen]
    by_package: dict[str, list[Pair]] = collections.defaultdict(list)
    for pair in chosen:
        by_package[pair.package].append(pair)
    for of_package in by_package.values():
        # The pairs of an entry stand together and are at most half of the package's: going on by
        # the size of the largest entry always arrives at another one.
        step = max(collections.Counter(pair.entry for pair in of_package).values())
        for index, pair in enumerate(of_package):
            other = of_package[(index + step) % len(of_package)]
            rows.append(_row(pair.text_a, other.text_b, "different"))
    return rows


def choose_pairs(pairs: Sequence[Pair], number: int, generator: random.Random) -> list[Pair]:
    """Chooses pairs, from as many entries as possible, so that each can be exchanged.

    First one pair of every entry in random order, then a second one, and so on. Left out are pairs
    of entries that have more than half of their package's chosen pairs: each must find a partner of
    another entry.

    Returns:
        At most `number` pairs, those of a package together, those of an entry together.
    """
    by_entry: dict[tuple[str, str], list[Pair]] = collections.defaultdict(list)
    for pair in pairs:
        by_entry[pair.package, pair.entry].append(pair)
    keys = list(by_entry)
    generator.shuffle(keys)
    rounds = max(map(len, by_entry.values()), default=0)
    in_order = [by_entry[k][i] for i in range(rounds) for k in keys if i < len(by_entry[k])]
    # Packages with a single entry give nothing, so they must not take places.
    entries_of = collections.Counter(package for package, _ in keys)
    chosen = [pair for pair in in_order if entries_of[pair.package] > 1][:number]
    by_package: dict[str, dict[str, list[Pair]]] = {}
    for pair in chosen:
        by_package.setdefault(pair.package, {}).setdefault(pair.entry, []).append(pair)
    result = []
    for of_package in by_package.values():
        by_size = sorted(of_package.values(), key=len, reverse=True)
        others = sum(map(len, by_size[1:]))
        by_size[0] = by_size[0][:others]
        result += [pair for of_entry in by_size for pair in of_entry]
    return result


def _pairs_of(entry: Entry, generator: random.Random) -> list[Pair]:
    """Pairs the passages of an entry at random; each is used at most once."""
    texts = list(entry.passages)
    generator.shuffle(texts)
    return [Pair(entry.package, entry.name, a, b) for a, b in zip(texts[::2], texts[1::2])]


def _row(text_a: str, text_b: str, label: str) -> Row:
    return {"passage_a": text_a, "passage_b": text_b, "label": label}


TASK = TextTask(
    declaration={
        "name": "same_entry",
        "kind": "classification",
        "format": "jsonl",
        "files": {"train": "train.jsonl", "dev": "dev.jsonl"},
        "test": [],
        "columns": {"id": "id", "text_a": "passage_a", "text_b": "passage_b", "label": "label"},
        "labels": list(LABELS),
        "metrics": ["accuracy", "f1"],
    },
    build=build,
    needs=f"two entries of one package with two passages of {MIN_WORDS} words each",
)


if __name__ == "__main__":
    run_command(TASK)
