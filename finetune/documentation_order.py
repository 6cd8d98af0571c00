"""Makes a small task from the installed documentation: is this passage's word order disturbed?

    python -m finetune.documentation_order --output_dir DIR

In half of the passages, neighbouring words were exchanged in three places. Every passage is there
in both forms, so that no word, and no bag of words, tells the label: like CoLA, it asks what can
follow what. It is close to replaced-token detection, which is why even a little pre-training shows.
Development passages are of entries that pre-training holds out. The folder holds `train.jsonl`,
`dev.jsonl` and `task.json`, which `run_finetuning.py --task` takes.
"""

from __future__ import annotations

import library_logs  # noqa: F401  TensorFlow reads the environment when it is imported
import stopping

if __name__ == "__main__":
    stopping.install()  # before what takes seconds to import

# isort: split
import collections
import dataclasses
import json
import os
import random
import re
from collections.abc import Sequence

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
EXCHANGES = 3

# The task as `finetune.task.load_task` reads it.
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

Row = dict[str, str]


@dataclasses.dataclass(frozen=True)
class Options:
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


def split_passages(documents: Sequence[Document], options: Options) -> dict[str, list[str]]:
    """The passages of "train" and "dev", each in the order of the documents.

    Sentences that more than one document has (an inherited parameter, a licence) are left out, so
    that no sentence is in two passages.
    """
    texts = [sentences(document.lines) for document in documents]
    documents_with = collections.Counter(s for text in texts for s in {s.lower() for s in text})
    result: dict[str, list[str]] = {"train": [], "dev": []}
    for document, text in zip(documents, texts):
        own = [sentence for sentence in text if documents_with[sentence.lower()] == 1]
        heldout = is_heldout(document, options.heldout_fraction, options.heldout_seed)
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
    if len(chosen) < EXCHANGES:
        return None
    for place in chosen:
        words[place], words[place + 1] = words[place + 1], words[place]
    return " ".join(words)


def build_splits(documents: Sequence[Document], options: Options) -> dict[str, list[Row]]:
    """Rows of "train" and "dev" with "id", "passage" and "label", in random order.

    Raises:
        InputError: the documents give no row for one of the splits.
    """
    sizes = {"train": options.num_examples, "dev": options.num_dev_examples}
    generator = random.Random(options.seed)
    result = {}
    for split, candidates in split_passages(documents, options).items():
        generator.shuffle(candidates)
        rows: list[Row] = []
        for passage in candidates:
            if len(rows) + 2 > sizes[split]:
                break
            disturbed = exchange_words(passage, generator)
            if disturbed is not None:
                rows.append({"passage": passage, "label": "intact"})
                rows.append({"passage": disturbed, "label": "disturbed"})
        if not rows:
            raise InputError(
                f"The packages should have documentation for {split} examples: passages with "
                f"{EXCHANGES} pairs of different neighbouring words. "
                f"Received: {len(documents)} documents"
            )
        generator.shuffle(rows)
        result[split] = [{"id": f"{split}-{i}", **row} for i, row in enumerate(rows)]
    return result


def make(output_dir: str, options: Options) -> dict[str, int]:
    """Writes `train.jsonl`, `dev.jsonl`, `task.json`, `manifest.json`, unless they are complete.

    Returns:
        Number of examples of each split.

    Raises:
        InputError: the folder holds a task made with other options, or the packages have too
            little text.
    """
    wanted = {"task": DECLARATION["name"], **dataclasses.asdict(options)}
    manifest_path = os.path.join(output_dir, "manifest.json")
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

    corpus, problems = InstalledDocumentation(options.packages), collections.Counter()
    units = tqdm(corpus.units, desc="reading documentation", unit="part", disable=None)
    documents = [document for unit in units for document in corpus.documents(unit, problems)]
    splits = build_splits(documents, options)
    os.makedirs(output_dir, exist_ok=True)
    for split, rows in splits.items():
        lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
        write_text(os.path.join(output_dir, f"{split}.jsonl"), "".join(lines))
    write_json(os.path.join(output_dir, "task.json"), DECLARATION)
    counts = {split: len(rows) for split, rows in splits.items()}
    # Last: where it is, the others are whole.
    write_json(manifest_path, {"options": wanted, "examples": counts})
    print(f"{output_dir}: {_in_words(counts)}")
    return counts


def _in_words(examples: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {split} examples" for split, count in examples.items())


def heldout_options(data_dir: str) -> dict[str, float]:
    """The options that a data folder sets; raises InputError where it has no manifest."""
    manifest = read_manifest(data_dir)
    if manifest is None:
        raise InputError(
            f"{data_dir}: should be a folder made by build_pretraining_data.py. Received: "
            "a folder without manifest.json"
        )
    settings = manifest["settings"]
    return {"heldout_fraction": settings["heldout_fraction"], "heldout_seed": settings["seed"]}


def main(argv: list[str]) -> None:
    """Makes the task that the flags ask for."""
    del argv
    f = flags.FLAGS
    options = Options(f.num_examples, f.num_dev_examples, f.seed)
    if f.data_dir:
        options = dataclasses.replace(options, **heldout_options(f.data_dir))
    make(f.output_dir, options)


if __name__ == "__main__":
    # Defined here, not on import: other modules define flags of the same names.
    flags.DEFINE_string("output_dir", None, "The folder to make.", required=True)
    flags.DEFINE_integer("num_examples", Options.num_examples, "Training examples.")
    flags.DEFINE_integer("num_dev_examples", Options.num_dev_examples, "Development examples.")
    flags.DEFINE_integer("seed", Options.seed, "Seed of what is chosen at random.")
    flags.DEFINE_string(
        "data_dir",
        "",
        "The pre-training data, whose held-out entries are the development set. Default: those "
        "that build_pretraining_data.py holds out without further flags.",
    )
    app.run(main_with_clear_errors(main))
