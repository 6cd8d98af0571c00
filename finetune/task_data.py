"""A task's splits as the network sees them: read and tokenized."""

from __future__ import annotations

import dataclasses
import hashlib
import sys

import numpy as np

from convbert.data.vocabulary import Vocabulary
from convbert.finetune.declaration import TASKS, Task
from convbert.finetune.encoding import Encoded, Split
from convbert.finetune.hparams import FinetuningHParams
from convbert.finetune.task_files import Data, has_split, read_split, resolve_labels, source_of


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
    train: bool = True,
    test: bool = True,
) -> TaskData:
    """Reads and tokenizes a task's splits; says how many examples had to be cut.

    `train` and `test` say whether those splits are wanted.
    """
    task = resolve_labels(task, data_dir)
    kind = task.plugin
    wanted = [*([task.train] if train else []), *_wanted(task, data_dir, test)]
    examples = {split: read_split(task, data_dir, split) for split in wanted}
    if train:
        own = examples[task.train]
        kind.check_training(task, source_of(task, data_dir, task.train).path, own)
        own = _drawn(own, hparams.max_train_examples)
        examples[task.train] = kind.training_examples(task, own, hparams)
    splits = {}
    for name, own in examples.items():
        encoded = kind.encode(task, own, vocabulary, hparams)
        if encoded.truncated:
            print(
                f"{task.name} {name}: {encoded.truncated:,} of {len(own):,} examples are longer"
                f" than {hparams.max_seq_length} tokens and were {kind.shortened}",
                file=sys.stderr,
            )
        digest = hashlib.sha256()
        for example in own:
            digest.update(f"{example!r}\n".encode())
        splits[name] = Split(own, encoded, digest.hexdigest())
    digests = {name: split.digest for name, split in splits.items() if name not in task.test}
    trained = splits.pop(task.train).encoded if train else None
    return TaskData(task, trained, splits, digests)


def _drawn(examples: list, count: int | None) -> list:
    """That many of the examples, in their order; the same ones whatever the seed of a run."""
    if count is None or count >= len(examples):
        return examples
    chosen = np.random.default_rng(0).choice(len(examples), count, replace=False)
    return [examples[place] for place in sorted(chosen.tolist())]


def _wanted(task: Task, data_dir: Data, test: bool) -> list[str]:
    """The splits to predict: of a user's own task all, of a built-in one those that are there."""
    wanted = [task.dev[0]]  # the headline; reading says which file is missing
    for split in [*task.dev[1:], *(task.test if test else ())]:
        if task.name not in TASKS or has_split(task, data_dir, split):
            wanted.append(split)
        else:
            print(f"{task.name}: the split {split} is not there and left out", file=sys.stderr)
    return wanted
