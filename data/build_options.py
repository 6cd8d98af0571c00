"""Options and settings of a data build, checked without TensorFlow."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from convbert.common.settings import at_least, check_fields, check_setting, one_of, within
from convbert.data.vocabulary import TOKENIZERS

LAYOUTS = ("segments", "packed", "contiguous")
# Padding tokens between the sequences of a packed row: half a kernel of 9, the largest published.
PACKING_GAP = 4
MAX_SEQUENCES = 127  # in a packed row; more counts as damage when records are checked
LINES = "language_model"  # the corpus format with lines instead of documents
# None: all words.
DEFAULT_VOCAB_SIZES = {"wordpiece": 30522, "sentencepiece": 32000, "words": None, "bpe": 50368}
MIN_TARGET = 5  # tokens, the shortest target length of an example, as in ELECTRA


def separates_lines(tokenizer: str, corpus_format: str) -> bool:
    """Returns True if a stream has a separator after each line instead of each document."""
    return tokenizer == "words" or corpus_format == LINES


@dataclass(frozen=True)
class BuildOptions:
    """The flags of build_pretraining_data.py; see their help."""

    corpus: str
    corpus_format: str
    output_dir: str
    vocab: str | None = None
    vocab_size: int | None = field(default=None, metadata=at_least(32))
    do_lower_case: bool | None = None
    strip_accents: bool | None = None
    max_seq_length: int = field(default=128, metadata=at_least(MIN_TARGET))
    heldout_fraction: float = field(default=0.01, metadata=within(0, 1))
    seed: int = 0
    num_shards: int | None = field(default=None, metadata=at_least(1))
    num_processes: int | None = field(default=None, metadata=at_least(1))
    example_layout: str | None = field(default=None, metadata=one_of(*LAYOUTS))
    tokenizer: str | None = field(default=None, metadata=one_of(*TOKENIZERS))
    heldout_corpus: str | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        fits = self.corpus_format != LINES or self.example_layout in (None, "contiguous")
        expected = f"contiguous for `corpus_format` {self.corpus_format}"
        check_setting(self, fits, "example_layout", expected)
        fits = self.tokenizer != "words" or not self.strip_accents
        check_setting(self, fits, "strip_accents", "false for `tokenizer` words")
        if self.tokenizer == "bpe":
            for name in ("do_lower_case", "strip_accents"):
                check_setting(self, not getattr(self, name), name, "false for `tokenizer` bpe")


@dataclass(frozen=True)
class BuildSettings:
    """Everything that determines the bytes of a data folder, as recorded in its manifest."""

    corpus_format: str
    corpus_units: int
    corpus_bytes: int
    corpus_digest: str
    vocabulary: dict[str, Any]  # `learned`, `vocab_size`, `digest` of a given one, switches, ...
    max_seq_length: int
    heldout_fraction: float
    seed: int
    num_shards: int
    example_layout: str
    heldout_corpus: dict[str, Any] | None  # its units, bytes and digest

    @property
    def splits(self) -> tuple[str, ...]:
        """Returns the splits that have files."""
        held_out = self.heldout_fraction or self.heldout_corpus
        return ("train", "heldout") if held_out else ("train",)
