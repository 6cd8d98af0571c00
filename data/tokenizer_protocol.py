"""What models, data building and serving need of a tokenizer, whichever kind it is.

`data.vocabulary.Vocabulary` with `data.tokenization.Tokenizer` (WordPiece) is one; one of another
kind (SentencePiece) has these attributes and methods, and a layout of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    import tensorflow as tf


@runtime_checkable
class Pieces(Protocol):
    """The pieces that texts are cut into, and which of them are special.

    Attributes:
        tokens: all pieces, by id.
        size: how many there are.
        digest: tells the pieces, and how text is normalised for them, from others.
        pad_id, unk_id, cls_id, sep_id, mask_id: ids of the special pieces.
    """

    tokens: Sequence[str]

    @property
    def size(self) -> int: ...
    @property
    def digest(self) -> str: ...
    @property
    def pad_id(self) -> int: ...
    @property
    def unk_id(self) -> int: ...
    @property
    def cls_id(self) -> int: ...
    @property
    def sep_id(self) -> int: ...
    @property
    def mask_id(self) -> int: ...


@runtime_checkable
class PieceTokenizer(Protocol):
    """Cuts texts into pieces; adds no special ones, which is the layout's part."""

    vocabulary: Pieces

    def tokenize(self, lines: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Ids int32 [total] of all lines, and where each line begins, int64 [len(lines) + 1]."""

    def tokenize_ragged(self, lines: tf.Tensor) -> tf.RaggedTensor:
        """string [B] -> int32 [B, (pieces)]; also inside a graph."""


@runtime_checkable
class Layout(Protocol):
    """Where the special pieces of sequences of one and of two texts go, and what is truncated.

    BERT's is [CLS] text [SEP] and [CLS] text [SEP] text_pair [SEP]; XLNet's has its <cls> last.
    """

    def single(self, text: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Sequences of single texts, string [B]."""

    def pair(self, text: tf.Tensor, text_pair: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Sequences of pairs of texts, string [B] each."""
