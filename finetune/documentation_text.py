"""Small tasks from text that every machine has: the documentation inside the installed packages.

What the two tasks for the quickstart share: passages of documentation, divided so that development
passages are of entries that pre-training holds out; a folder that is made once; the command line.
See `finetune.documentation_order` and `finetune.documentation_pairs`.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import os
import random
import re
from collections.abc import Callable, Iterator, Sequence

from absl import app, flags
from tqdm import tqdm

from data.documentation import InstalledDocumentation
from data.manifest import read_manifest
from data.readers.base import Document
from data.shards import is_heldout
from errors import InputError, main_with_clear_errors
from files import read_json, write_json, write_text
from training.hyperparameters import differences

# Words of a passage: it ends with the first sentence that reaches the minimum, and is cut to the
# maximum. It is then 40 to 50 word pieces long.
MIN_WORDS = 16
MAX_WORDS = 40

_SENTENCE_END = re.compile(r"(?<=[.!?]) +(?=[A-Z])")
_MANIFEST = "manifest.json"

Row = dict[str, str]


@dataclasses.dataclass(frozen=True)
class TextTaskOptions:
    """What to make.

    Attributes:
        num_examples: training examples, at most; fewer where the text gives no more.
        num_dev_examples: development examples, likewise.
        seed: of everything that is chosen at random.
        heldout_fraction: of the pre-training data, whose held-out entries are the development set.
        heldout_seed: the seed of that data.
        packages: folder of the packages to read; "" means those of the running environment.
    """

    num_examples: int = 6000
    num_dev_examples: int = 600
    seed: int = 0
    heldout_fraction: float = 0.01
    heldout_seed: int = 0
    packages: str = ""

    def __post_init__(self) -> None:
        for name in ("num_examples", "num_dev_examples"):
            if getattr(self, name) < 4:
                raise InputError(f"{name} should be at least 4. Received: {getattr(self, name)}")
        if not 0 < self.heldout_fraction < 1:
            raise InputError(
                "heldout_fraction should be between 0 and 1: without held-out entries there is "
                f"nothing to score on. Received: {self.heldout_fraction}"
            )


@dataclasses.dataclass(frozen=True)
class TextTask:
    """How a task is made of passages.

    Attributes:
        declaration: the task as `finetune.task.load_task` reads it.
        build: (passages of entries, number of examples, random generator) -> rows, at most so many.
        needs: what the text must have to give rows, for the message where it has not.
    """

    declaration: dict[str, object]
    build: Callable[[Sequence[Entry], int, random.Random], list[Row]]
    needs: str


@dataclasses.dataclass(frozen=True)
class Entry:
    """A documentation entry: the package it is of, its name, its passages in order."""

    package: str
    name: str
    passages: tuple[str, ...]


# ---------------------------------------------------------------- text


def sentences(lines: Sequence[str]) -> list[str]:
    """The distinct sentences of some lines, in order, with single blanks between the words."""
    found = (" ".join(s.split()) for line in lines for s in _SENTENCE_END.split(line))
    return list(dict.fromkeys(found))


def passages(own_sentences: Sequence[str]) -> list[str]:
    """Joins sentences to passages of MIN_WORDS to MAX_WORDS words.

    A passage that its last sentence makes too long loses its end; what is left over at the end and
    is too short is dropped.
    """
    result, words = [], []
    for sentence in own_sentences:
        words += sentence.split()
        if len(words) >= MIN_WORDS:
            result.append(" ".join(words[:MAX_WORDS]))
            words = []
    return result


def entries_by_split(
    documents: Sequence[Document], options: TextTaskOptions
) -> dict[str, list[Entry]]:
    """The entries that have passages, "train" and "dev", each in the order of the documents.

    Sentences that more than one document has (an inherited parameter, a licence) are left out, so
    that no sentence is in two passages.
    """
    documents_with = collections.Counter(
        sentence
        for document in documents
        for sentence in {sentence.lower() for sentence in sentences(document.lines)}
    )
    result: dict[str, list[Entry]] = {"train": [], "dev": []}
    for document in documents:
        own = [s for s in sentences(document.lines) if documents_with[s.lower()] == 1]
        entry = Entry(document.name.split("/")[0], document.name, tuple(passages(own)))
        if entry.passages:
            heldout = is_heldout(document, options.heldout_fraction, options.heldout_seed)
            result["dev" if heldout else "train"].append(entry)
    return result


def _read_documents(packages: str) -> Iterator[Document]:
    corpus = InstalledDocumentation(packages)
    problems: collections.Counter = collections.Counter()
    for unit in tqdm(corpus.units, desc="reading documentation", unit="part", disable=None):
        yield from corpus.documents(unit, problems)


# ---------------------------------------------------------------- the task's folder


def build_splits(
    task: TextTask, documents: Sequence[Document], options: TextTaskOptions
) -> dict[str, list[Row]]:
    """Rows of "train" and "dev", in random order, each with an "id".

    Raises:
        InputError: the documents give no row for one of the splits.
    """
    sizes = {"train": options.num_examples, "dev": options.num_dev_examples}
    generator = random.Random(options.seed)
    result = {}
    for split, entries in entries_by_split(documents, options).items():
        rows = task.build(entries, sizes[split], generator)
        if not rows:
            raise InputError(
                f"The packages should have documentation for {split} examples: {task.needs}. "
                f"Received: {len(documents)} documents"
            )
        generator.shuffle(rows)
        result[split] = [{"id": f"{split}-{i}", **row} for i, row in enumerate(rows)]
    return result


def make(task: TextTask, output_dir: str, options: TextTaskOptions) -> dict[str, int]:
    """Writes the task's files, unless the folder already holds them complete.

    Args:
        task: which one.
        output_dir: the folder to make: `train.jsonl`, `dev.jsonl`, `task.json`, `manifest.json`.
        options: what to make.

    Returns:
        Number of examples of each split.

    Raises:
        InputError: the folder holds a task made with other options, or the packages have too
            little text.
    """
    wanted = {"task": task.declaration["name"], **dataclasses.asdict(options)}
    manifest_path = os.path.join(output_dir, _MANIFEST)
    if os.path.exists(manifest_path):
        manifest = read_json(manifest_path)
        changed = differences(manifest.get("options", {}), wanted)
        if changed:
            raise InputError(
                f"{manifest_path}: was made with other options; give the same ones or another "
                f"--output_dir. Received: {'; '.join(changed)}"
            )
        print(f"{output_dir} is complete: {_in_words(manifest['examples'])}")
        return manifest["examples"]

    splits = build_splits(task, list(_read_documents(options.packages)), options)
    os.makedirs(output_dir, exist_ok=True)
    for split, rows in splits.items():
        lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
        write_text(os.path.join(output_dir, f"{split}.jsonl"), "".join(lines))
    write_json(os.path.join(output_dir, "task.json"), task.declaration)
    counts = {split: len(rows) for split, rows in splits.items()}
    # Last: where it is, the others are whole.
    write_json(manifest_path, {"options": wanted, "examples": counts})
    print(f"{output_dir}: {_in_words(counts)}")
    return counts


def _in_words(examples: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {split} examples" for split, count in examples.items())


# ---------------------------------------------------------------- the command


def options_for(
    data_dir: str, num_examples: int, num_dev_examples: int, seed: int
) -> TextTaskOptions:
    """The options whose development entries are those that a data folder holds out.

    Args:
        data_dir: a folder made by build_pretraining_data.py, or "" for its default settings.
        num_examples: see TextTaskOptions.
        num_dev_examples: see TextTaskOptions.
        seed: see TextTaskOptions.

    Raises:
        InputError: the folder has no manifest, or nothing is held out there.
    """
    options = TextTaskOptions(num_examples, num_dev_examples, seed)
    if not data_dir:
        return options
    manifest = read_manifest(data_dir)
    if manifest is None:
        raise InputError(
            f"{data_dir}: should be a folder made by build_pretraining_data.py. Received: "
            "a folder without manifest.json"
        )
    settings = manifest["settings"]
    return dataclasses.replace(
        options, heldout_fraction=settings["heldout_fraction"], heldout_seed=settings["seed"]
    )


def run_command(task: TextTask) -> None:
    """Defines the flags and makes the task they ask for; the whole of a module's command."""
    defaults = TextTaskOptions()
    flags.DEFINE_string("output_dir", None, "The folder to make.")
    flags.DEFINE_integer("num_examples", defaults.num_examples, "Training examples.")
    flags.DEFINE_integer("num_dev_examples", defaults.num_dev_examples, "Development examples.")
    flags.DEFINE_integer("seed", defaults.seed, "Seed of what is chosen at random.")
    flags.DEFINE_string(
        "data_dir",
        "",
        "The pre-training data: its manifest says which entries were held out. Default: those that "
        "build_pretraining_data.py holds out without further flags.",
    )
    flags.mark_flag_as_required("output_dir")

    def main(argv: list[str]) -> None:
        del argv
        f = flags.FLAGS
        options = options_for(f.data_dir, f.num_examples, f.num_dev_examples, f.seed)
        make(task, f.output_dir, options)

    app.run(main_with_clear_errors(main))
