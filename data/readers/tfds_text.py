"""Any text dataset of tensorflow-datasets, by name."""

from __future__ import annotations

import collections
import os
from collections.abc import Iterator
from typing import Any

from data.readers.base import Corpus, Document, Unit, nonempty_lines
from data.streams import without_autotuning
from errors import InputError, reason


class TfdsCorpus(Corpus):
    """A tensorflow-datasets dataset; each example's text is one document.

    `path` is `NAME[/CONFIG][:VERSION][#FEATURE][@SPLIT]`, for example `lm1b:1.1.0`,
    `wikipedia/20230601.en:1.0.0#text` or `imdb_reviews@train[:10%]`. The feature may be left out
    where the dataset has one text feature or one named "text"; the split is "train" unless given.
    The dataset is looked for, and if need be downloaded and prepared, in the folder that the
    environment variable TFDS_DATA_DIR names (the library's own default: ~/tensorflow_datasets).
    """

    _download = True

    def __init__(self, path: str, **options: float) -> None:
        name, _, split = path.partition("@")
        self._name, _, feature = name.partition("#")
        self._feature, self._split = feature or None, split or "train"
        self._data_dir = os.environ.get("TFDS_DATA_DIR") or None
        super().__init__(path, **options)

    def _find_units(self) -> Iterator[Unit]:
        builder = open_dataset(self._name, self._data_dir, download=self._download)
        self._check_order(builder)
        self._feature = _text_feature(builder, self._feature)
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
        builder = open_dataset(self._name, self._data_dir, download=self._download)
        wanted = tfds.decode.PartialDecoding({self._feature: True})
        for index, example in enumerate(in_order(builder, split, wanted)):
            name = f"{unit.name}:{index}"
            text = self.decode(example[self._feature], name, 0, problems)
            if lines := self._lines(text):
                yield Document(name, lines)
            else:
                problems["empty_documents"] += 1

    def _check_order(self, builder: Any) -> None:
        """Raises InputError where the examples are not in an order that this corpus needs."""

    def _lines(self, text: str) -> list[str]:
        return nonempty_lines(text)


class TfdsLanguageModelCorpus(TfdsCorpus):
    """The same of a dataset whose lines all count, blank ones too; it must be prepared already.

    Its examples are one text, so it should have been written in their order.
    """

    _download = False

    def _check_order(self, builder: Any) -> None:
        if not builder.info.disable_shuffling:
            raise InputError(
                f"Dataset {builder.info.full_name} should keep the order of the text, but"
                " tensorflow-datasets shuffled its examples (its builder does not set"
                " `disable_shuffling`); give the text's files with --corpus_format language_model"
            )

    def _lines(self, text: str) -> list[str]:
        return [line.strip() for line in text.split("\n")]


def open_dataset(name: str, folder: str | None, download: bool = True) -> Any:
    """The prepared builder of a dataset, which is downloaded if it is not there yet.

    Each process opens its own: builders do not travel well.

    Args:
        name: `NAME[/CONFIG][:VERSION]`.
        folder: where datasets are kept; None: the library's default (TFDS_DATA_DIR, or
            ~/tensorflow_datasets).
        download: whether it may be downloaded.

    Raises:
        InputError: there is no such dataset, or it cannot be downloaded.
    """
    import tensorflow_datasets as tfds

    try:
        builder = tfds.builder(name, data_dir=folder)
    except (ValueError, AssertionError) as error:
        raise InputError(
            f"tensorflow-datasets must know the dataset. Received: {name!r} ({reason(error)})"
        ) from error
    if not builder.info.splits:
        if not download:
            raise InputError(
                f"Dataset {name} should be prepared, as nothing is downloaded here: run"
                f" `tfds build {name} --data_dir FOLDER` and set TFDS_DATA_DIR to FOLDER. There is"
                f" none in {builder.data_dir}"
            )
        builder.download_and_prepare()
    return builder


def split_info(builder: Any, split: str) -> Any:
    """What is known of a split or a slice of one; InputError where the dataset has none such."""
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
    """Chooses the feature to read.

    Raises:
        InputError: it is not a text feature, or none is wanted and there is no obvious one.
    """
    import tensorflow_datasets as tfds

    features = builder.info.features
    texts = [name for name in features if isinstance(features[name], tfds.features.Text)]
    if wanted is None:
        wanted = "text" if "text" in texts else texts[0] if len(texts) == 1 else None
    if wanted not in texts:
        raise InputError(
            f"Dataset {builder.name} must be given with one of its text features, as "
            f"{builder.name}#FEATURE; it has {', '.join(sorted(texts)) or 'none'}. "
            f"Received: {wanted!r}"
        )
    return wanted
