"""What a data folder is built of and how, checked without TensorFlow."""

from __future__ import annotations

from dataclasses import dataclass, field

from data.examples import MIN_TARGET
from settings import at_least, check_fields, within


@dataclass(frozen=True)
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
        strict: reject bytes that are not UTF-8.
        max_undecodable_share: such bytes for each character of the text, and of each file of
            at least `shards.JUDGED_BYTES`; more are rejected.
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
    max_seq_length: int = field(default=128, metadata=at_least(MIN_TARGET))
    heldout_fraction: float = field(default=0.01, metadata=within(0, 1))
    seed: int = 0
    num_shards: int | None = field(default=None, metadata=at_least(1))
    strict: bool = False
    max_undecodable_share: float = field(default=0.1, metadata=at_least(0))
    num_processes: int | None = field(default=None, metadata=at_least(1))

    def __post_init__(self) -> None:
        check_fields(self)
