"""Reads and tokenizes a task's splits."""

from __future__ import annotations

import dataclasses
import hashlib
import sys

import numpy as np

from convbert.common.settings import present
from convbert.data.text.layout import TextLayout
from convbert.data.tokenizers import create_tokenizer
from convbert.data.vocabulary import Vocabulary
from convbert.finetune.batches import batches_per_epoch
from convbert.finetune.declaration import TASKS, Task
from convbert.finetune.encoding import Encoded, Split
from convbert.finetune.hparams import FinetuningHParams
from convbert.finetune.task_files import Data, find_source, read_split, resolve_labels, source_of


@dataclasses.dataclass(frozen=True)
class TaskData:
    """A task with its labels, training sequences and splits to predict."""

    task: Task  # with labels
    train: Encoded | None  # None if not requested
    splits: dict[str, Split]  # dev first, then test
    digests: dict[str, str]  # SHA-256 of the examples of the training and dev splits

    def batches_per_epoch(self, hparams: FinetuningHParams) -> int:
        """Returns the number of batches of the training split, the last one filled up."""
        whole = self.task.plugin.whole_examples(hparams)
        return batches_per_epoch(present(self.train), hparams.train_batch_size, whole)


def load_task_data(
    task: Task,
    data_dir: Data,
    vocabulary: Vocabulary,
    hparams: FinetuningHParams,
    *,
    train: bool = True,
    test: bool = True,
) -> TaskData:
    """Reads and tokenizes a task's splits; prints the number of truncated examples.

    `train` and `test` select these splits.
    """
    task = resolve_labels(task, data_dir)
    kind = task.plugin
    wanted = [*([task.train] if train else []), *_wanted(task, data_dir, test)]
    examples = {split: read_split(task, data_dir, split) for split in wanted}
    for name, own in examples.items():  # before training leaves any out
        if note := kind.note(own):
            print(f"{task.name} {name}: {note}", file=sys.stderr)
    if train:
        own = examples[task.train]
        kind.check_training(task, source_of(task, data_dir, task.train).path, own)
        count = hparams.max_train_examples
        if count is not None and count < len(own):  # the same ones for all seeds of runs
            chosen = np.random.default_rng(0).choice(len(own), count, replace=False)
            own = [own[place] for place in sorted(chosen.tolist())]
        examples[task.train] = kind.training_examples(task, own, hparams)
    layout = TextLayout(create_tokenizer(vocabulary), present(hparams.max_seq_length))
    splits = {}
    for name, own in examples.items():
        encoded = kind.encode(task, own, layout, hparams)
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


def _wanted(task: Task, data_dir: Data, test: bool) -> list[str]:
    """Returns the splits to predict: all of a user's task, existing ones of a built-in task."""
    wanted = [task.dev[0]]  # the headline; reading reports a missing file
    for split in [*task.dev[1:], *(task.test if test else ())]:
        if task.name not in TASKS or find_source(task, data_dir, split):
            wanted.append(split)
        else:
            print(f"{task.name}: the split {split} does not exist and is left out", file=sys.stderr)
    return wanted
