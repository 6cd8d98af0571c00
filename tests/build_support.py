"""Helpers of the builder's tests: a vocabulary of letters, folders as bytes, records."""

import string
from pathlib import Path

import numpy as np

from convbert.data import input_pipeline
from convbert.data.build_options import BuildSettings
from convbert.data.vocabulary import Vocabulary

LETTERS = string.ascii_lowercase
VOCABULARY = Vocabulary(
    ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", *LETTERS, *(f"##{x}" for x in LETTERS))
)


def settings(fraction: float) -> BuildSettings:
    """Of a build of text, with seed 5 and three shards."""
    vocabulary = {"tokenizer": "wordpiece"}
    return BuildSettings(*("text", 1, 0, "", vocabulary, 32, fraction, 5, 3, "segments", None))


def content(folder: Path) -> dict[str, bytes]:
    """Every file below a folder: relative path -> bytes."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def read_split(folder, split="train", length=32, packed=False) -> dict[str, np.ndarray]:
    """All examples of a split, in the order of the files: name -> [N, S]."""
    options = {"batch_size": 1, "max_seq_length": length, "training": False, "packed": packed}
    options["vocab_size"] = Vocabulary.load(folder).size
    files = input_pipeline.record_files(str(folder), split)
    dataset = input_pipeline.pretraining_dataset(files, **options)
    batches = list(dataset.as_numpy_iterator())
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}
