"""Makes a small task from the quickstart's corpus: is this passage's word order disturbed?

    python -m convbert.examples.quickstart.word_order \\
        --data_dir DATA --packages numpy,scipy --output_dir DIR

In half of the passages, neighbouring words were exchanged in five places. Every passage is there
in both forms, so that no word, and no bag of words, tells the label: like CoLA, it asks what can
follow what. It is close to replaced-token detection, which is why even a little pre-training shows.
Development passages are from documents that pre-training held out. The folder holds `train.jsonl`,
`dev.jsonl` and `task.json`, which `run_finetuning.py --task` takes.
"""

from __future__ import annotations

import convbert.common.startup  # noqa: F401  TensorFlow reads the environment when it is imported

# isort: split
import collections
import json
import os
import random
import re
from collections.abc import Sequence

from absl import app, flags

from convbert.common.errors import InputError, main_with_clear_errors
from convbert.common.files import write_json, write_text
from convbert.data.manifest import build_settings
from convbert.data.readers.base import Document
from convbert.data.readers.documentation import InstalledDocumentation
from convbert.data.shards import is_heldout

# Words of a passage: it ends with the first sentence that reaches the minimum, and is cut to the
# maximum. It is then about 40 word pieces long.
MIN_WORDS = 16
MAX_WORDS = 32
EXCHANGES = 5
EXAMPLES = {"train": 4000, "dev": 500}  # at most; fewer where the text gives no more

# The task as `finetune.declaration.load_task` reads it.
DECLARATION = {
    "name": "word_order",
    "kind": "classification",
    "format": "jsonl",
    "files": {"train": "train.jsonl", "dev": "dev.jsonl"},
    "test": [],
    "columns": {"id": "id", "text_a": "passage", "label": "label"},
    "labels": ["disturbed", "intact"],
    "metrics": ["accuracy", "f1"],
}

_SENTENCE_END = re.compile(r"(?<=[.!?]) +(?=[A-Z])")


def sentences(lines: Sequence[str]) -> list[str]:
    """The distinct sentences of some lines, in order, with single spaces between the words."""
    found = (" ".join(s.split()) for line in lines for s in _SENTENCE_END.split(line))
    return list(dict.fromkeys(found))


def passages(sentences: Sequence[str]) -> list[str]:
    """Joins sentences to passages of MIN_WORDS to MAX_WORDS words; a shorter rest is dropped."""
    result, words = [], []
    for sentence in sentences:
        words += sentence.split()
        if len(words) >= MIN_WORDS:
            result.append(" ".join(words[:MAX_WORDS]))
            words = []
    return result


def split_passages(
    documents: Sequence[Document], heldout_fraction: float, heldout_seed: int
) -> dict[str, list[str]]:
    """The passages of "train" and "dev", each in the order of the documents.

    Sentences that more than one document has (an inherited parameter, a licence) are left out, so
    that no sentence is in two passages.
    """
    texts = [sentences(document.lines) for document in documents]
    documents_with = collections.Counter(s for text in texts for s in {s.lower() for s in text})
    result: dict[str, list[str]] = {"train": [], "dev": []}
    for document, text in zip(documents, texts):
        own = [sentence for sentence in text if documents_with[sentence.lower()] == 1]
        heldout = is_heldout(document, heldout_fraction, heldout_seed)
        result["dev" if heldout else "train"] += passages(own)
    return result


def exchange_words(passage: str, generator: random.Random) -> str | None:
    """Exchanges each of EXCHANGES words with the word after it, no word twice.

    Returns None where the draw finds too few words that differ from the next in more than case.
    """
    words = passage.split()
    places = [i for i in range(len(words) - 1) if words[i].lower() != words[i + 1].lower()]
    generator.shuffle(places)
    chosen: list[int] = []
    for place in places:
        if len(chosen) < EXCHANGES and all(abs(place - other) > 1 for other in chosen):
            chosen.append(place)
            words[place], words[place + 1] = words[place + 1], words[place]
    return " ".join(words) if len(chosen) == EXCHANGES else None


def labelled(candidates: Sequence[str], limit: int, generator: random.Random) -> list[dict]:
    """At most `limit` examples with "passage" and "label", in random order, half of each label."""
    rows: list[dict] = []
    for passage in generator.sample(candidates, len(candidates)):
        if len(rows) + 2 > limit:
            break
        disturbed = exchange_words(passage, generator)
        if disturbed is not None:
            rows.append({"passage": passage, "label": "intact"})
            rows.append({"passage": disturbed, "label": "disturbed"})
    generator.shuffle(rows)
    return rows


def make(data_dir: str, packages: str, output_dir: str, seed: int = 0) -> None:
    """Writes `train.jsonl`, `dev.jsonl` and, last, `task.json`."""
    settings = build_settings(data_dir)
    if not settings:
        raise InputError(f"{data_dir}: should be a folder made by build_pretraining_data.py")
    corpus = InstalledDocumentation(packages)
    documents = [d for unit in corpus.units for d in corpus.documents(unit, collections.Counter())]
    split = split_passages(documents, settings["heldout_fraction"], settings["seed"])
    generator = random.Random(seed)
    for name, limit in EXAMPLES.items():
        rows = labelled(split[name], limit, generator)
        if not rows:
            raise InputError(f"--packages {packages}: should have passages for the {name} split")
        lines = [json.dumps({"id": f"{name}-{i}", **row}) + "\n" for i, row in enumerate(rows)]
        os.makedirs(output_dir, exist_ok=True)
        write_text(os.path.join(output_dir, f"{name}.jsonl"), "".join(lines))
        print(f"{output_dir}: {len(rows):,} {name} examples")
    write_json(os.path.join(output_dir, "task.json"), DECLARATION)


def main(_: list[str]) -> None:
    """Makes the task that the flags ask for, unless it is there."""
    f = flags.FLAGS
    if not os.path.exists(os.path.join(f.output_dir, "task.json")):
        make(f.data_dir, f.packages, f.output_dir)


if __name__ == "__main__":
    flags.DEFINE_string("data_dir", None, "Data folder, built from the packages.", required=True)
    flags.DEFINE_string("packages", None, "Names of installed packages.", required=True)
    flags.DEFINE_string("output_dir", None, "Folder of the task.", required=True)
    app.run(main_with_clear_errors(main))
