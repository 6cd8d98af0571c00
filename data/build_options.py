"""What a data folder is built of and how, checked without TensorFlow."""

from __future__ import annotations

from dataclasses import dataclass, field

from data.examples import MIN_TARGET
from data.vocabulary import TOKENIZERS
from settings import at_least, check_fields, check_setting, one_of, within

LAYOUTS = ("segments", "contiguous", "ordered")
LANGUAGE_MODEL_FORMATS = ("language_model", "tfds_language_model")  # have lines, not documents
DEFAULT_VOCAB_SIZES = {"wordpiece": 30522, "sentencepiece": 32000, "words": None}  # None: all


def separates_lines(tokenizer: str, corpus_format: str) -> bool:
    """Whether a stream has a separator behind each line, and not behind each document."""
    return tokenizer == "words" or corpus_format in LANGUAGE_MODEL_FORMATS


@dataclass(frozen=True)
class BuildOptions:
    """What to build.

    Attributes:
        corpus: path (or name) of the corpus.
        corpus_format: one of `data.corpus.CORPUS_FORMATS`.
        output_dir: the data folder.
        vocab: a vocab.txt, a SentencePiece model or a folder that holds one; None learns one.
        vocab_size: of the learned vocabulary. None: see `DEFAULT_VOCAB_SIZES`.
        do_lower_case: None takes it from beside the vocabulary, else True; of words and of
            SentencePiece False.
        strip_accents: likewise, else as the casing; of SentencePiece True.
        max_seq_length: S.
        heldout_fraction: share of the text that is held out, in [0, 1).
        seed: of examples, order, held-out split.
        num_shards: record files per split; None gives files of about SHARD_BYTES of text.
        max_undecodable_share: the largest number of bytes that are not UTF-8 per character of the
            text and of its files, see `data.readers.base.Corpus.decode`; 0 rejects any. Changes
            nothing in the result, nor does the next one.
        num_processes: None means one per core, fewer where there is little text.
        example_layout: one of `LAYOUTS`, see data/example_layouts.py; None: contiguous for words
            and for corpora of language models.
        tokenizer: of a vocabulary that is learned, one of `data.vocabulary.TOKENIZERS`;
            None is the first; of a
            vocabulary that is given, None or what that says.
        heldout_corpus: held-out text of its own, in the same format; `heldout_fraction` is 0 then.
    """

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
    max_undecodable_share: float = field(default=0.1, metadata=at_least(0))
    num_processes: int | None = field(default=None, metadata=at_least(1))
    example_layout: str | None = field(default=None, metadata=one_of(*LAYOUTS))
    tokenizer: str | None = field(default=None, metadata=one_of(*TOKENIZERS))
    heldout_corpus: str | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        documents = self.corpus_format not in LANGUAGE_MODEL_FORMATS
        fits = documents or self.example_layout != "segments"
        expected = f"contiguous for `corpus_format` {self.corpus_format}"
        check_setting(self, fits, "example_layout", expected)
        fits = self.tokenizer != "words" or not self.strip_accents
        check_setting(self, fits, "strip_accents", "false for `tokenizer` words")

    def layout(self, tokenizer: str) -> str:
        """The layout, where the vocabulary has this tokenizer."""
        contiguous = separates_lines(tokenizer, self.corpus_format)
        return self.example_layout or ("contiguous" if contiguous else "segments")

    @property
    def share_held_out(self) -> float:
        """The share of the corpus that is held out; none where another corpus is."""
        return 0.0 if self.heldout_corpus else self.heldout_fraction
