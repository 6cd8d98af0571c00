"""Datasets of tensorflow-datasets, by name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.protobuf.json_format import ParseError

from convbert.common.errors import InputError, reason
from convbert.data.streams import without_autotuning


def open_dataset(name: str, folder: str | None) -> Any:
    """Returns the builder of `NAME[/CONFIG][:VERSION]`, downloading the dataset if necessary.

    Datasets are stored in `folder`, by default the library's (TFDS_DATA_DIR, or
    ~/tensorflow_datasets). InputError if there is no such dataset.
    """
    import tensorflow_datasets as tfds

    try:
        builder = tfds.builder(name, data_dir=folder)
    except (ValueError, AssertionError, ParseError) as error:
        raise InputError(
            f"tensorflow-datasets must know the dataset. Received: {name!r} ({reason(error)})"
        ) from error
    if not builder.info.splits:
        builder.download_and_prepare()
    return builder


def in_order(builder: Any, split: str) -> Iterator[dict[str, Any]]:
    """Yields the examples of a split as NumPy values, in the order of its files.

    InputError if there is no such split.
    """
    import tensorflow_datasets as tfds

    try:
        builder.info.splits[split]
    except (KeyError, ValueError) as error:
        raise InputError(
            f"Dataset {builder.info.full_name} should have the requested split; it has "
            f"{', '.join(builder.info.splits)}. Received: {split!r}"
        ) from error
    dataset = builder.as_dataset(
        split=split,
        shuffle_files=False,
        # One file after the other.
        read_config=tfds.ReadConfig(interleave_cycle_length=1, try_autocache=False),
    )
    yield from tfds.as_numpy(without_autotuning(dataset))
