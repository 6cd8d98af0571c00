"""Reader of GLUE and SQuAD from tensorflow-datasets, which is imported only where it is used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.protobuf.json_format import ParseError

from convbert.common.errors import InputError, reason
from convbert.common.plugins import lazily
from convbert.finetune.declaration import TASKS, TFDS_TEXTS, Task
from convbert.finetune.readers.lines import Place
from convbert.finetune.readers.tables import Row

_without_autotuning = lazily("convbert.data.streams:without_autotuning")


def open_dataset(task: Task, split: str, folder: str | None) -> tuple[Any, str]:
    """Returns the builder of a built-in task's dataset, and its name of a split of the task.

    Downloads the dataset if necessary, to `folder` or the library's own. Other tasks are rejected:
    the package imports a class that a dataset's folder names, unless it has that dataset itself.
    """
    import tensorflow_datasets as tfds

    if task.tfds not in {own.tfds for own in TASKS.values() if own.tfds}:
        raise InputError(f"Task {task.name} should be one of GLUE or SQuAD for --data_dir tfds")
    name, part = task.tfds, split.replace("dev", "validation")
    if split == "diagnostic":
        name, part = "glue/ax", "test"
    try:
        builder = tfds.builder(name, data_dir=folder)
    except (ValueError, AssertionError, ParseError) as error:  # files are damaged
        raise InputError(f"{folder or name}: cannot be read ({reason(error)})") from error
    if not builder.info.splits:
        builder.download_and_prepare()
    return builder, part


def read_dataset(builder: Any, split: str, task: Task) -> Iterator[Row]:
    """Yields the rows of a split, in the order of its files.

    A class label becomes its name or, if the task has no such label (GLUE's files have "1" for
    "acceptable"), its number as text; None if it is hidden (-1).
    """
    import tensorflow_datasets as tfds

    features, name = builder.info.features, builder.info.full_name
    columns = {role: role for role in features}
    if task.columns:
        roles = [role for role in task.columns if role != "label"]
        texts = TFDS_TEXTS.get(task.tfds or "") or [task.columns[role] for role in roles]
        columns = {**dict(zip(roles, texts)), "label": "label", "id": "idx"}
    # One file after the other.
    in_order = tfds.ReadConfig(interleave_cycle_length=1, try_autocache=False)
    dataset = builder.as_dataset(split=split, shuffle_files=False, read_config=in_order)
    for index, example in enumerate(tfds.as_numpy(_without_autotuning(dataset))):
        values = {
            role: _value_of(features[own], example[own], task) for role, own in columns.items()
        }
        yield Place(f"{name}@{split}", index, "example"), values


def _value_of(feature: Any, value: Any, task: Task) -> Any:
    """Converts a feature's value to Python's str, int, float, bool or list of dicts."""
    import tensorflow_datasets as tfds

    if isinstance(feature, tfds.features.Sequence):  # of dicts: is a dict of sequences
        columns = [
            [_value_of(feature.feature[key], item, task) for item in own]
            for key, own in value.items()
        ]
        return [dict(zip(value, items)) for items in zip(*columns)]
    if isinstance(feature, tfds.features.ClassLabel):
        name = None if value < 0 else feature.int2str(int(value))
        return name if name is None or name in task.labels else str(int(value))
    if isinstance(value, bytes):
        return value.decode("utf-8")
    return value.item() if hasattr(value, "item") else value
