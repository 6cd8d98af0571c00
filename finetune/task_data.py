"""A task's splits as the network sees them: read, tokenized, kept."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from absl import logging

import storage
from data.manifest import package_version
from data.vocabulary import Vocabulary
from errors import InputError, warn
from files import replacing
from finetune.encoding import Encoded
from finetune.glue import TASKS
from finetune.hparams import FinetuningHParams
from finetune.task import Task
from finetune.task_files import Data, has_split, read_split, resolve_labels, source_of
from training import workers

# To be raised by whoever changes what a `Kind.encode` makes of the same input.
FORMAT_VERSION = 3


@dataclasses.dataclass(frozen=True)
class Split:
    """Examples, their sequences, and a SHA-256 of everything the examples say."""

    examples: list
    encoded: Encoded
    digest: str = ""


@dataclasses.dataclass(frozen=True)
class TaskData:
    """A task with its labels, its training sequences and the splits that are predicted."""

    task: Task  # with labels
    train: Encoded | None  # None where it is not wanted
    splits: dict[str, Split]  # dev first, then test
    digests: dict[str, str]  # SHA-256 of the examples of the training and dev splits


def load_task_data(
    task: Task,
    data_dir: Data,
    vocabulary: Vocabulary,
    hparams: FinetuningHParams,
    *,
    cache_dir: str | None,
    train: bool = True,
    test: bool = True,
) -> TaskData:
    """Reads and tokenizes a task's splits; says how many examples had to be cut.

    `cache_dir` is where encoded splits are kept; None encodes anew. `train` and `test` say whether
    those splits are wanted.

    Raises:
        InputError: a file, line or label is not as the declaration says.
    """
    task = resolve_labels(task, data_dir)
    kind = task.plugin
    kind.check_metrics(task)

    wanted = [*([task.train] if train else []), *_wanted(task, data_dir, test)]
    examples = {split: read_split(task, data_dir, split) for split in wanted}
    if train:
        own = examples[task.train]
        kind.check_training(task, source_of(task, data_dir, task.train).path, own)
        own = _drawn(own, hparams.max_train_examples)
        examples[task.train] = kind.training_examples(task, own, hparams)
        for name in task.dev:
            if name in examples:
                _warn_of_shared(task, examples[task.train], name, examples[name])
    splits = {
        split: _encoded(task, split, own, vocabulary, hparams, cache_dir)
        for split, own in examples.items()
    }
    digests = {name: split.digest for name, split in splits.items() if name not in task.test}
    trained = splits.pop(task.train).encoded if train else None
    return TaskData(task, trained, splits, digests)


def _warn_of_shared(task: Task, train: list, split: str, examples: list) -> None:
    """Warns of development examples that are trained on, whatever their ids and labels are."""

    def asked(example: Any) -> int:
        return hash(json.dumps(task.plugin.request(task, example), sort_keys=True))

    try:
        known = set(map(asked, train))
        count = sum(asked(example) in known for example in examples)
    except NotImplementedError:  # a kind whose examples cannot be told apart by their requests
        return
    if count:
        warn(
            f"{task.name}: {count:,} of {len(examples):,} examples of {split} are also in "
            f"{task.train}, which may raise its scores"
        )


def _drawn(examples: list, count: int | None) -> list:
    """That many of the examples, in their order; the same ones whatever the seed of a run."""
    if count is None or count >= len(examples):
        return examples
    chosen = np.random.default_rng(0).choice(len(examples), count, replace=False)
    return [examples[place] for place in sorted(chosen.tolist())]


def _encoded(
    task: Task,
    name: str,
    examples: list,
    vocabulary: Vocabulary,
    hparams: FinetuningHParams,
    cache_dir: str | None,
) -> Split:
    """A split's examples with their sequences, from the cache if they are there."""
    digest = hashlib.sha256()
    for example in examples:
        digest.update(f"{example!r}\n".encode())
    key = {
        "examples": digest.hexdigest(),
        "kind": task.plugin.name,
        "labels": task.labels,
        "label_range": task.label_range,
        "version_2": task.version_2,
        "vocabulary": vocabulary.digest,
        **{name: getattr(hparams, name) for name in task.plugin.shaping},
    }

    def encode() -> Encoded:
        return task.plugin.encode(task, examples, vocabulary, hparams)

    encoded = load_or_encode(cache_dir, key, encode) if cache_dir else encode()
    if encoded.truncated:
        print(
            f"{task.name} {name}: {encoded.truncated:,} of {len(examples):,} examples are longer"
            f" than {hparams.max_seq_length} tokens and were {task.plugin.shortened}",
            file=sys.stderr,
        )
    return Split(examples, encoded, digest.hexdigest())


def _wanted(task: Task, data_dir: Data, test: bool) -> list[str]:
    """The splits to predict: of a user's own task all, of a built-in one those that are there."""
    wanted = [task.dev[0]]  # the headline; reading says which file is missing
    for split in [*task.dev[1:], *(task.test if test else ())]:
        if task.name not in TASKS or has_split(task, data_dir, split):
            wanted.append(split)
        else:
            print(f"{task.name}: the split {split} is not there and left out", file=sys.stderr)
    return wanted


def load_or_encode(cache_dir: str, key_parts: dict, encode: Callable[[], Encoded]) -> Encoded:
    """Reads what was encoded under the same key, or encodes and keeps it.

    A file that cannot be read, whatever the reason, is made anew. Where nothing can be written,
    training continues without. Every file in `cache_dir`, which is made if missing, can be deleted
    at any time. `key_parts` is everything that shapes the result, as JSON values.
    """
    versions = {
        "format_version": FORMAT_VERSION,
        "tensorflow_text": package_version("tensorflow-text"),
    }
    key = json.dumps({**key_parts, **versions}, sort_keys=True)
    path = os.path.join(cache_dir, hashlib.sha256(key.encode()).hexdigest() + ".npz")
    if storage.exists(path):
        try:
            return _read(path, key)
        except Exception as error:  # any damage to a zip file of arrays has an error of its own
            logging.warning("%s: encoded again, because it is damaged: %s", path, error)
    encoded = encode()
    if not workers.is_chief():
        return encoded
    try:
        _write(path, encoded, key)
    except (OSError, InputError) as error:
        logging.warning("not kept for the next run: %s", error)
    return encoded


def _write(path: str, encoded: Encoded, key: str) -> None:
    storage.makedirs(os.path.dirname(path))
    arrays = {
        "key": np.array(key),
        "row_splits": encoded.row_splits,
        "truncated": np.array(encoded.truncated),
        **{f"tokens/{name}": column for name, column in encoded.tokens.items()},
        **{f"rows/{name}": column for name, column in encoded.sequences.items()},
    }
    with replacing(path) as temporary, open(temporary, "wb") as file:
        np.savez(file, **arrays)


def _read(path: str, key: str) -> Encoded:
    # The zip format has checksums.
    with storage.open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
        if arrays["key"] != key:
            raise ValueError("it was made under another key")
        encoded = Encoded(
            arrays["row_splits"],
            _columns(arrays, "tokens/"),
            _columns(arrays, "rows/"),
            int(arrays["truncated"]),
        )
    lengths = {len(column) for column in encoded.tokens.values()}
    counts = {len(column) for column in encoded.sequences.values()}
    if lengths != {encoded.row_splits[-1]} or counts != {len(encoded)}:
        raise ValueError("its columns are of different lengths")
    return encoded


def _columns(arrays: np.lib.npyio.NpzFile, prefix: str) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): arrays[name] for name in arrays if name.startswith(prefix)}
