"""What a model directory says of its model, without its weights. Needs no TensorFlow."""

from __future__ import annotations

import functools
import os
from typing import Any

import storage
from data.vocabulary import Vocabulary
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
