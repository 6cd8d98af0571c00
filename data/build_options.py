"""What a data folder is built of and how, checked without TensorFlow."""

from __future__ import annotations

import dataclasses

from data.examples import MIN_TARGET
from errors import InputError


@dataclasses.dataclass(frozen=True)
class BuildOptions:
    """What to build.

    Attributes:
        corpus: path (or name) of the corpus.
        corpus_format: one of `data.corpus.CORPUS_FORMATS`.
        output_dir: the data folder.
        vocab: a vocab.txt or a folder that holds one; None learns a vocabulary.
        vocab_size: of the learned vocabulary.
        do_lower_case: None takes it from beside the vocabulary, else True.
        strip_accents: likewise.
        max_seq_length: S.
        heldout_fraction: share of the text that is held out, in [0, 1).
        seed: of examples, order, held-out split.
        num_shards: record files per split; None gives files of about SHARD_BYTES of text.
        strict: refuse bytes that are not UTF-8.
        max_undecodable_share: such bytes for each character of the text, and of each file of
            at least `shards.JUDGED_BYTES`; more are refused.
        num_processes: None means one per core, fewer where there is little text. Changes nothing
            in the result, and neither do the two before it.
    """

    corpus: str
    corpus_format: str
    output_dir: str
    vocab: str | None = None
    vocab_size: int = 30522
    do_lower_case: bool | None = None
    strip_accents: bool | None = None
    max_seq_length: int = 128
    heldout_fraction: float = 0.01
    seed: int = 0
    num_shards: int | None = None
    strict: bool = False
    max_undecodable_share: float = 0.1
    num_processes: int | None = None

    def __post_init__(self) -> None:
        for name, valid, expected in (
            ("max_seq_length", self.max_seq_length >= MIN_TARGET, f"at least {MIN_TARGET}"),
            ("heldout_fraction", 0 <= self.heldout_fraction < 1, "in [0, 1)"),
            ("max_undecodable_share", self.max_undecodable_share >= 0, "at least 0"),
            ("num_shards", self.num_shards is None or self.num_shards > 0, "positive"),
            ("num_processes", self.num_processes is None or self.num_processes > 0, "positive"),
        ):
            if not valid:
                raise InputError(f"{name} should be {expected}. Received: {getattr(self, name)}")
