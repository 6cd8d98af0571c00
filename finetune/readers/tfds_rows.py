"""Rows of a tensorflow-datasets dataset, as {role: value} of the features that a task names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from data.readers.tfds_text import in_order, split_info
from errors import InputError
from finetune.readers.tables import Row


def read_dataset(
    builder: Any, split: str, columns: dict[str, str | int], labels: Sequence[str]
) -> Iterator[Row]:
    """Yields the rows of one split, in the order of its files.

    A class label comes as its name, or, where `labels` are other words (GLUE's files say "1"
    where the dataset says "acceptable"), as its number in text; as None where it is hidden (-1).

    Args:
        builder: of `data.readers.tfds_text.open_dataset`.
        split: a split's name or a slice of it ("train[:10%]").
        columns: role -> feature.
        labels: the label names of the task, () where they are to be collected.

    Raises:
        InputError: a split or feature that the dataset does not have.
    """
    features = builder.info.features
    for role, column in columns.items():
        if column not in features:
            raise InputError(
                f"Dataset {builder.info.full_name} should have the feature {column!r} for "
                f"`{role}`. Received: {', '.join(sorted(features))}"
            )
    split_info(builder, split)
    for index, example in enumerate(in_order(builder, split)):
        where = f"{builder.info.full_name}@{split}, example {index}"
        yield (
            where,
            {
                role: _value(features[column], example[column], labels)
                for role, column in columns.items()
            },
        )


def _value(feature: Any, value: Any, labels: Sequence[str]) -> Any:
    """A feature's value as Python's str, int, float, bool, list or dict."""
    import tensorflow_datasets as tfds

    if isinstance(feature, tfds.features.Sequence):
        inner = feature.feature
        if isinstance(value, dict):  # a sequence of dicts comes as a dict of sequences
            return {
                key: [_value(inner[key], item, labels) for item in items]
                for key, items in value.items()
            }
        return [_value(inner, item, labels) for item in value]
    if isinstance(feature, tfds.features.ClassLabel):
        if value < 0:
            return None
        name = feature.int2str(int(value))
        return name if not labels or name in labels else str(int(value))
    if isinstance(value, bytes):
        return value.decode("utf-8")
    return value.item() if hasattr(value, "item") else value
