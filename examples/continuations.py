"""Makes a multiple-choice task from any corpus: which of four continuations is the right one?

    python -m examples.continuations --data_dir DATA --corpus wiki_en/ \\
        --corpus_format wikiextractor --output_dir DIR

The context is three sentences of a document and the right option the beginning of the fourth; the
others begin sentences of other documents. The options of an example have equally many words, so
that length tells nothing. Development examples are from documents that the data folder held out of
pre-training. The folder holds `train.jsonl`, `dev.jsonl` and `task.json`, which
`run_finetuning.py --task` takes.
"""

from __future__ import annotations

import library_logs  # noqa: F401  TensorFlow reads the environment when it is imported

# isort: split
import collections
import json
import os
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from absl import app, flags

from data.corpus import CORPUS_FORMATS, open_corpus
from data.manifest import read_manifest
from data.readers.base import Document
from data.shards import is_heldout
from errors import InputError, main_with_clear_errors, require_flags
from files import new_folder, write_json, write_text

OPTIONS = 4
CONTEXT_SENTENCES = 3
CONTEXT_WORDS = (24, 70)  # fewest and most
OPTION_WORDS = (8, 16)
DRAWS = 20  # for the options of an example; enough unless nearly all passages are of one document
EXAMPLES = {"train": 8000, "dev": 1000}  # at most; fewer where the text gives no more
DECLARATION = {
    "name": "continuations",
    "kind": "multiple_choice",
    "format": "jsonl",
    "files": {"train": "train.jsonl", "dev": "dev.jsonl"},
    "test": [],
    "columns": {"id": "id", "context": "context", "options": "options", "label": "label"},
    "labels": ["A", "B", "C", "D"],
    "metrics": ["accuracy"],
}

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[\"'(]?[A-Z0-9])")

Passage = tuple[str, list[str], int]  # context, words of what follows, number of the document


def passages(document: Document, number: int) -> Iterator[Passage]:
    """The passages of a document that have as many words as an example needs; none overlap.

    A sentence does not begin where it would be one of a list or a title: a line is a paragraph, and
    a passage never crosses from one to the next.
    """
    for line in document.lines:
        sentences = _SENTENCE_END.split(line)
        for first in range(0, len(sentences) - CONTEXT_SENTENCES, CONTEXT_SENTENCES + 1):
            context = " ".join(sentences[first : first + CONTEXT_SENTENCES])
            following = sentences[first + CONTEXT_SENTENCES].split()
            fewest, most = CONTEXT_WORDS
            if fewest <= context.count(" ") + 1 <= most and len(following) >= OPTION_WORDS[0]:
                yield context, following, number


def other_options(
    found: Sequence[Passage], number: int, generator: random.Random
) -> list[list[str]]:
    """Beginnings from other documents than `number`, too few where there are hardly any."""
    others: list[list[str]] = []
    for _, words, origin in generator.choices(found, k=DRAWS):
        if origin != number and words not in others and len(others) < OPTIONS - 1:
            others.append(words)
    return others


def examples(
    found: Sequence[Passage], limit: int, generator: random.Random
) -> Iterator[dict[str, Any]]:
    """At most `limit` examples of passages, in random order; the right places are random too."""
    for context, following, number in generator.sample(found, min(limit, len(found))):
        others = other_options(found, number, generator)
        if len(others) < OPTIONS - 1:
            continue
        label = generator.randrange(OPTIONS)
        texts = [*others[:label], following, *others[label:]]
        count = min(OPTION_WORDS[1], *map(len, texts))
        options = [" ".join(words[:count]) for words in texts]
        yield {"context": context, "options": options, "label": DECLARATION["labels"][label]}


def split(
    documents: Iterable[Document], heldout_fraction: float, heldout_seed: int
) -> dict[str, list[Passage]]:
    """The passages of "train" and "dev", in the order of the documents."""
    found: dict[str, list[Passage]] = {"train": [], "dev": []}
    for number, document in enumerate(documents):
        heldout = is_heldout(document, heldout_fraction, heldout_seed)
        found["dev" if heldout else "train"] += passages(document, number)
    return found


def make(data_dir: str, corpus_path: str, corpus_format: str, output_dir: str, seed: int) -> None:
    """Writes the folder of the task, which is new.

    Raises:
        InputError: `data_dir` is no data folder, or the corpus has too little text.
    """
    settings = (read_manifest(data_dir) or {}).get("settings")
    if settings is None:
        raise InputError(f"{data_dir}: should be a folder made by build_pretraining_data.py")
    corpus = open_corpus(corpus_path, corpus_format)
    documents = (d for unit in corpus.units for d in corpus.documents(unit, collections.Counter()))
    found = split(documents, settings["heldout_fraction"], settings["seed"])
    generator = random.Random(seed)
    with new_folder(output_dir) as folder:
        for name, limit in EXAMPLES.items():
            rows = list(examples(found[name], limit, generator))
            if not rows:
                raise InputError(
                    f"{corpus_path}: the {name} split should have paragraphs of"
                    f" {CONTEXT_SENTENCES + 1} sentences in {OPTIONS} documents or more"
                )
            lines = [json.dumps({"id": f"{name}-{i}", **row}) + "\n" for i, row in enumerate(rows)]
            write_text(os.path.join(folder, f"{name}.jsonl"), "".join(lines))
            print(f"{len(lines):,} {name} examples")
        write_json(os.path.join(folder, "task.json"), DECLARATION)


def main(argv: list[str]) -> None:
    """Makes the task that the flags ask for."""
    if len(argv) > 1:
        raise InputError(f"Unknown argument {argv[1]!r}; see --help")
    f = flags.FLAGS
    needed = {"data_dir": "a folder of pre-training data", "corpus": "a file or a folder of text"}
    require_flags(f, needed | {"output_dir": "a new folder"})
    make(f.data_dir, f.corpus, f.corpus_format, f.output_dir, f.seed)


if __name__ == "__main__":
    flags.DEFINE_string("data_dir", None, "Data folder, built from the corpus.")
    flags.DEFINE_string("corpus", None, "File or folder of the text.")
    flags.DEFINE_enum(
        "corpus_format", "text", CORPUS_FORMATS, "Format of the corpus; see docs/guide.md."
    )
    flags.DEFINE_string("output_dir", None, "Folder of the task, which is new.")
    flags.DEFINE_integer("seed", 0, "Seed of the choice of examples and of their order.")
    app.run(main_with_clear_errors(main))
