"""Any text dataset of tensorflow-datasets, by name."""

from __future__ import annotations

import collections
import os
from collections.abc import Iterator
from typing import Any

from common.errors import InputError, reason
from data.readers.base import Corpus, Document, Unit, decode, nonempty_lines
from data.streams import without_autotuning


class TfdsCorpus(Corpus):
    """A tensorflow-datasets dataset; each example's text is one document.

    `path` is `NAME[/CONFIG][:VERSION][#FEATURE][@SPLIT]`, for example `lm1b:1.1.0`,
    `wikipedia/20230601.en:1.0.0#text` or `imdb_reviews@train[:10%]`. The feature may be left out
    where the dataset has one text feature or one named "text"; the split is "train" unless given.
    The dataset is looked for, and if need be downloaded and prepared, in the folder that the
    environment variable TFDS_DATA_DIR names (the library's own default: ~/tensorflow_datasets).
    """

    def __init__(self, path: str) -> None:
        name, _, split = path.partition("@")
        self._name, _, feature = name.partition("#")
        self._feature, self._split = feature, split or "train"
        self._data_dir = os.environ.get("TFDS_DATA_DIR") or None
        super().__init__(path)

    def _find_units(self) -> Iterator[Unit]:
        builder = open_dataset(self._name, self._data_dir)
        self._feature = _text_feature(builder, self._feature or None)
        split = split_info(builder, self._split)
        # As many parts as files, so that a part is about one file, but none without examples.
        parts = max(1, min(len(split.file_instructions), split.num_examples))
        for part in range(parts):
            name = f"{builder.info.full_name}#{self._feature}@{self._split}:{part}-of-{parts}"
            yield Unit(name, self._name, part, parts)

    def documents(self, unit: Unit, problems: collections.Counter) -> Iterator[Document]:
        """Yields the texts of the examples; those without words count as "empty_documents"."""
        import tensorflow_datasets as tfds

        split = tfds.even_splits(self._split, unit.end)[unit.start]
        builder = open_dataset(self._name, self._data_dir)
        wanted = tfds.decode.PartialDecoding({self._feature: True})
        for index, example in enumerate(in_order(builder, split, wanted)):
            if lines := nonempty_lines(decode(example[self._feature], problems)):
                yield Document(f"{unit.name}:{index}", lines)
            else:
                problems["empty_documents"] += 1


def open_dataset(name: str, folder: str | None) -> Any:
    """The prepared builder of a dataset, which is downloaded if it is not there yet.

    Each process opens its own: builders do not travel well.

    Args:
        name: `NAME[/CONFIG][:VERSION]`.
        folder: where datasets are kept; None: the library's default (TFDS_DATA_DIR, or
            ~/tensorflow_datasets).

    Raises:
        InputError: there is no such dataset.
    """
    import tensorflow_datasets as tfds

    try:
        builder = tfds.builder(name, data_dir=folder)
    except (ValueError, AssertionError) as error:
        raise InputError(
            f"tensorflow-datasets must know the dataset. Received: {name!r} ({reason(error)})"
        ) from error
    if not builder.info.splits:
        builder.download_and_prepare()
    return builder


def split_info(builder: Any, split: str) -> Any:
    """Returns the builder's info of a split or a slice of one; InputError if there is none."""
    try:
        return builder.info.splits[split]
    except (KeyError, ValueError) as error:
        raise InputError(
            f"Dataset {builder.info.full_name} should have the split that is asked for; it has "
            f"{', '.join(builder.info.splits)}. Received: {split!r}"
        ) from error


def in_order(builder: Any, split: str, decoders: Any = None) -> Iterator[dict[str, Any]]:
    """Yields the examples of a split as NumPy has them, in the order of its files."""
    import tensorflow_datasets as tfds

    dataset = builder.as_dataset(
        split=split,
        shuffle_files=False,
        decoders=decoders,
        # One file after the other.
        read_config=tfds.ReadConfig(interleave_cycle_length=1, try_autocache=False),
    )
    yield from tfds.as_numpy(without_autotuning(dataset))


def _text_feature(builder: Any, wanted: str | None) -> str:
    """The feature to read; InputError if it is no text, or none is wanted and none is obvious."""
    import tensorflow_datasets as tfds

    features = builder.info.features
    texts = [name for name in features if isinstance(features[name], tfds.features.Text)]
    if wanted is None:
        wanted = "text" if "text" in texts else texts[0] if len(texts) == 1 else None
    if wanted is None or wanted not in texts:
        raise InputError(
            f"Dataset {builder.name} must be given with one of its text features, as "
            f"{builder.name}#FEATURE; it has {', '.join(sorted(texts)) or 'none'}. "
            f"Received: {wanted!r}"
        )
    return wanted
