"""Makes a task of noun phrases, in BIO tags, from the brackets of the Penn Treebank's .pos files.

    python -m examples.noun_phrases --files 'treebank/tagged/wsj_*.pos' --output_dir DIR
    python -m examples.noun_phrases --predictions RUN/predictions/dev.jsonl

The folder holds `train.conll`, `dev.conll` (each fifth file) and `task.json`, which
`run_finetuning.py --task` takes. The second command counts predicted tags that BIO does not have:
an `I-NP` after `O` or at the beginning of a sentence.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
from collections.abc import Iterable, Iterator

import storage
from errors import InputError, main_with_clear_errors
from files import new_folder, write_json, write_text
from finetune import predictions
from finetune.readers.lines import read_lines

DEV_EVERY = 5
_CLOSING = ("''", ")", "]")  # tags after a full stop that end its sentence
DECLARATION = {
    "name": "noun_phrases",
    "kind": "tagging",
    "files": {"train": "train.conll", "dev": "dev.conll"},
    "columns": {"words": 0, "tags": -1},
    "metrics": ["f1", "token_accuracy"],
}


def main(argv: list[str]) -> None:
    """Writes the task, or counts what a file of predictions has."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", default="", help="Pattern of the .pos files.")
    parser.add_argument("--output_dir", help="Folder to write.")
    parser.add_argument("--predictions", help="File of predictions of a fine-tuning run.")
    arguments = parser.parse_args(argv[1:])
    if arguments.predictions:
        print(count_invalid(arguments.predictions))
        return
    paths = sorted(storage.matching(*os.path.split(arguments.files)))
    if len(paths) < DEV_EVERY or not arguments.output_dir:
        raise InputError(
            f"--files should match at least {DEV_EVERY} files, and --output_dir name a folder. "
            f"Received: {arguments.files!r} of {len(paths)} files, {arguments.output_dir!r}"
        )
    with new_folder(arguments.output_dir) as folder:
        for split, held_out in (("train", False), ("dev", True)):
            chosen = [p for i, p in enumerate(paths, 1) if (i % DEV_EVERY == 0) == held_out]
            text = "".join(line for path in chosen for line in tagged(path))
            write_text(os.path.join(folder, f"{split}.conll"), text)
        write_json(os.path.join(folder, "task.json"), DECLARATION)


def tagged(path: str) -> Iterator[str]:
    """Lines `word tag` of a .pos file, and an empty one after each sentence.

    A sentence ends after its full stop and what closes behind it, or at a line of `====`.
    """
    tag, started, stopped = "O", False, False
    for number, line in read_lines(path):
        for item in line.split():
            word, slash, part_of_speech = item.rpartition("/")
            rule = item.startswith("===")
            if started and (rule or (stopped and part_of_speech not in _CLOSING)):
                yield "\n"
                started = stopped = False
            if item in ("[", "]"):
                tag = {"[": "B-NP", "]": "O"}[item]
            elif not rule:
                if not (slash and word):
                    raise InputError(
                        f"{path}, line {number}: should hold word/TAG. Received: {item!r}"
                    )
                yield f"{word} {tag}\n"
                tag = "I-NP" if tag == "B-NP" else tag
                started, stopped = True, stopped or part_of_speech == "."
    if started:
        yield "\n"


def count_invalid(path: str) -> str:
    """How many predicted tags BIO does not have where they stand, such as `37 of 14,000 tags`."""
    sentences = [row["prediction"] for row in predictions.read(path)]
    invalid = sum(sum(invalid_tags(tags)) for tags in sentences)
    return f"{invalid} of {sum(map(len, sentences)):,} tags are not allowed after the one before"


def invalid_tags(tags: Iterable[str]) -> Iterator[bool]:
    """Whether each tag is an `I-` that follows no tag of its type."""
    for before, tag in itertools.pairwise(["O", *tags]):
        yield tag.startswith("I-") and before not in (f"B-{tag[2:]}", tag)


if __name__ == "__main__":
    main_with_clear_errors(main)(sys.argv)
