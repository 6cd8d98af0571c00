"""Makes a small task from the installed documentation: is this passage's word order disturbed?

    python -m finetune.documentation_order --output_dir DIR

In half of the passages, neighbouring words were exchanged in three places. Every passage is there
in both forms, so that no word, and no bag of words, tells the label: like CoLA, it asks what can
follow what. It is close to replaced-token detection, which is why even a little pre-training shows.
The folder holds `train.jsonl`, `dev.jsonl` and `task.json`, which `run_finetuning.py --task` takes.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from finetune.documentation_text import Entry, Row, TextTask, run_command

LABELS = ("disturbed", "intact")
EXCHANGES = 3


def build(entries: Sequence[Entry], number: int, generator: random.Random) -> list[Row]:
    """Passages in both forms, chosen at random; see TextTask."""
    chosen = [passage for entry in entries for passage in entry.passages]
    generator.shuffle(chosen)
    rows = []
    for passage in chosen:
        disturbed = exchange_words(passage, generator)
        if disturbed is not None:
            rows.append({"passage": passage, "label": "intact"})
            rows.append({"passage": disturbed, "label": "disturbed"})
        if len(rows) + 2 > number:
            break
    return rows


def exchange_words(passage: str, generator: random.Random) -> str | None:
    """Exchanges each of EXCHANGES words with the word after it, no word twice.

    Returns:
        The passage with the words exchanged; None where the draw finds too few such places.
    """
    words = passage.split()
    places = [i for i in range(len(words) - 1) if words[i].lower() != words[i + 1].lower()]
    generator.shuffle(places)
    chosen: list[int] = []
    for place in places:
        if len(chosen) < EXCHANGES and all(abs(place - other) > 1 for other in chosen):
            chosen.append(place)
    if len(chosen) < EXCHANGES:
        return None
    for place in chosen:
        words[place], words[place + 1] = words[place + 1], words[place]
    return " ".join(words)


TASK = TextTask(
    declaration={
        "name": "word_order",
        "kind": "classification",
        "format": "jsonl",
        "files": {"train": "train.jsonl", "dev": "dev.jsonl"},
        "test": [],
        "columns": {"id": "id", "text_a": "passage", "label": "label"},
        "labels": list(LABELS),
        "metrics": ["accuracy", "f1"],
    },
    build=build,
    needs=f"passages with {EXCHANGES} pairs of different neighbouring words",
)


if __name__ == "__main__":
    run_command(TASK)
