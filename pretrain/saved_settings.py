"""What a model directory says of its model, without its weights. Needs no TensorFlow."""

from __future__ import annotations

import functools
import os
from typing import Any

import storage
from data.manifest import read_manifest
from data.vocabulary import SWITCHES_FILE, Vocabulary
from data.word_starts import word_starts
from errors import InputError
from model import EncoderConfig
from pretrain.hparams import PretrainingHParams, parse_hparams
from training.model_directory import TASK_FILE, read_record


class SpecialIds(dict[str, int]):
    """`cls`, `sep` and `mask` of a vocabulary; and which of its tokens begin a word."""

    def __init__(self, vocabulary: Vocabulary):
        super().__init__(cls=vocabulary.cls_id, sep=vocabulary.sep_id, mask=vocabulary.mask_id)
        self._vocabulary = vocabulary

    @functools.cached_property
    def word_starts(self) -> list[bool]:
        """Of every token of the vocabulary."""
        return word_starts(self._vocabulary)


def special_ids(vocabulary: Vocabulary) -> SpecialIds:
    """The ids an objective must know: `cls`, `sep`, `mask`."""
    return SpecialIds(vocabulary)


def is_fine_tuned(model_dir: str) -> bool:
    """Whether it is the folder of a fine-tuning run, whose settings are others."""
    return storage.exists(os.path.join(model_dir, TASK_FILE))


def load_hparams(model_dir: str) -> tuple[PretrainingHParams, dict[str, Any]]:
    """The hyper-parameters and the run settings a model directory was trained with."""
    saved = read_record(model_dir)
    values = {
        name: value
        for name, value in saved["hparams"].items()
        if name not in ("vocabulary", "data", "continue_optimizer", "plugins")
    }
    return parse_hparams(values), saved["run_settings"]


def load_vocabulary(model_dir: str, config: EncoderConfig, digest: str | None) -> Vocabulary:
    """The vocabulary of a model directory, which must be the one that the model was trained with.

    It may hold fewer tokens than the embeddings have rows, where `digest` says that it is the one:
    the rows after them are padding.

    Args:
        digest: of the vocabulary in training, as far as hparams.json says it.

    Raises:
        InputError: another number of tokens, other tokens or another casing.
    """
    vocabulary = Vocabulary.load(model_dir)
    padded = vocabulary.size < config.vocab_size and digest == vocabulary.digest
    if vocabulary.size != config.vocab_size and not padded:
        raise InputError(
            f"{model_dir}: {vocabulary.file} should have the {config.vocab_size} tokens of"
            f" config.json. Received: {vocabulary.size}"
        )
    if digest not in (None, vocabulary.digest):
        raise InputError(
            f"{model_dir}: {vocabulary.file}, or its casing in tokenizer_config.json, is not what"
            " the model was trained with"
        )
    return vocabulary


def data_vocabulary(data_dir: str, do_lower_case: bool | None = None) -> Vocabulary:
    """The vocabulary of a data folder, which must be the one that its records were built with.

    Args:
        do_lower_case: the casing, for folders built by ELECTRA, which do not say how their text was
            cased; others must agree with it.

    Raises:
        InputError: another casing, or a file that was changed since.
    """
    vocabulary = Vocabulary.load(data_dir)
    if do_lower_case not in (None, vocabulary.do_lower_case):
        if storage.exists(os.path.join(data_dir, SWITCHES_FILE)):
            raise InputError(
                f"`do_lower_case` should be {vocabulary.do_lower_case}, as {data_dir} was built."
                f" Received: {do_lower_case}"
            )
        switches = {"do_lower_case": do_lower_case, "strip_accents": do_lower_case}
        vocabulary = Vocabulary.load(data_dir, **switches)
    built_with = (read_manifest(data_dir) or {}).get("vocabulary_digest", vocabulary.digest)
    if built_with != vocabulary.digest:
        raise InputError(
            f"{data_dir}: {vocabulary.file} is not the one the records were built with"
        )
    return vocabulary
