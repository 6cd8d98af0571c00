"""What text/layout.py asks of a tokenizer, whichever kind it is.

`data.tokenization.Tokenizer` (WordPiece) is one; one of SentencePiece gives its own `Frame`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    import tensorflow as tf


class Frame(NamedTuple):
    """The special pieces around the texts of a sequence, by their ids.

    BERT's [CLS] A [SEP] B [SEP] has `begin` ([CLS],) and `after_text` ([SEP],). XLNet's
    A <sep> B <sep> <cls> has `after_text` (<sep>,), `end` (<cls>,) and 2 as `end_segment`.

    Attributes:
        begin: before the first text, of its segment, which is 0.
        after_text: behind each text, of its segment.
        end: behind them all.
        end_segment: the segment of `end`.
    """

    begin: tuple[int, ...]
    after_text: tuple[int, ...]
    end: tuple[int, ...] = ()
    end_segment: int = 0

    def size(self, texts: int) -> int:
        """How many special pieces a sequence of one or two texts has."""
        return len(self.begin) + texts * len(self.after_text) + len(self.end)


class Pieces(Protocol):
    """The pieces that texts are cut into."""

    @property
    def unk_id(self) -> int:
        """Id of the piece that stands for a word without any."""


class PieceTokenizer(Protocol):
    """Cuts texts into pieces; adds no special ones, which is the layout's part."""

    vocabulary: Pieces

    @property
    def frame(self) -> Frame:
        """The special pieces of sequences."""

    def tokenize_ragged(self, lines: tf.Tensor) -> tf.RaggedTensor:
        """string [B] -> int32 [B, (pieces)]; also inside a graph."""
