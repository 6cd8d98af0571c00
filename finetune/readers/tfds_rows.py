"""Rows of a tensorflow-datasets dataset, as {role: value} of the features that a task names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from data.readers.tfds_text import in_order, split_info
from finetune.readers.lines import Place
from finetune.readers.tables import Column, Row, find_columns, names_in, row_of


def read_dataset(
    builder: Any, split: str, columns: Mapping[str, Column], labels: Sequence[str]
) -> Iterator[Row]:
    """Yields the rows of a split, or a slice of it ("train[:10%]"), in the order of its files.

    A class label comes as its name, or, where `labels` are other words (GLUE's files say "1"
    where the dataset says "acceptable"), as its number in text; as None where it is hidden (-1).
    Without columns, each feature is a role.
    """
    features, name = builder.info.features, builder.info.full_name
    keys = find_columns(f"Dataset {name}", columns or {n: n for n in features}, features)
    split_info(builder, split)
    names = names_in(keys.values())
    for index, example in enumerate(in_order(builder, split)):
        record = {name: _value(features[name], example[name], labels) for name in names}
        yield Place(f"{name}@{split}", index, "example"), row_of(record, keys)


def _value(feature: Any, value: Any, labels: Sequence[str]) -> Any:
    """A feature's value as Python's str, int, float, bool, list or dict."""
    import tensorflow_datasets as tfds

    if isinstance(feature, tfds.features.Sequence):
        inner = feature.feature
        if isinstance(value, dict):  # a sequence of dicts comes as a dict of sequences
            columns = ([_value(inner[key], x, labels) for x in own] for key, own in value.items())
            return [dict(zip(value, items)) for items in zip(*columns)]
        return [_value(inner, item, labels) for item in value]
    if isinstance(feature, tfds.features.ClassLabel):
        name = None if value < 0 else feature.int2str(int(value))
        return name if name is None or not labels or name in labels else str(int(value))
    if isinstance(value, bytes):
        return value.decode("utf-8")
    return value.item() if hasattr(value, "item") else value
