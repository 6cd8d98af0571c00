"""Learns a SentencePiece vocabulary from text, with the options of XLNet's."""

from __future__ import annotations

import io
from collections.abc import Iterable

import sentencepiece
import tensorflow as tf

from data.sentencepiece_model import END_OF_DOCUMENT, END_OF_PARAGRAPH, SPECIAL_PIECES
from data.sentencepiece_tokenization import normalize
from data.tokenization import batches
from data.vocabulary import Vocabulary
from errors import InputError

_PAD, _, _CLS, _SEP, _MASK = SPECIAL_PIECES
_OPTIONS = {
    "model_type": "unigram",
    "character_coverage": 0.99995,
    # The ids of XLNet: <unk> 0, <s> 1, </s> 2, <cls> 3, <sep> 4, <pad> 5, <mask> 6, <eod> 7, ...
    "control_symbols": [_CLS, _SEP, _PAD, _MASK, END_OF_DOCUMENT],
    "user_defined_symbols": [END_OF_PARAGRAPH, *'.()"-–£€'],  # noqa: RUF001
    "hard_vocab_limit": False,  # fewer pieces where the text yields no more
    "max_sentence_length": 1 << 30,  # bytes; longer lines would be left out
    # Threads add up their counts in their order, so the number decides the last bits of scores.
    "num_threads": 16,
    "minloglevel": 2,
}


def learn_sentencepiece(
    texts: Iterable[str],
    vocab_size: int,
    *,
    do_lower_case: bool = False,
    strip_accents: bool = True,
) -> Vocabulary:
    """Learns a unigram model of normalised text: the characters that texts are encoded in.

    The same texts give the same model, in every number of cores.

    Args:
        texts: lines of text; read once.
        vocab_size: number of pieces wanted, the special ones and single characters included.
        do_lower_case, strip_accents: see `Vocabulary`.

    Returns:
        `vocab_size` pieces, or fewer where the texts do not yield as many.

    Raises:
        InputError: `vocab_size` leaves no room, or there is nothing to learn from.
    """

    # All of them first: an error in an iterator would end SentencePiece's reading in silence.
    lines = []
    for batch in batches(texts):
        found = normalize(
            tf.constant(batch), do_lower_case=do_lower_case, strip_accents=strip_accents
        )
        found = (line.decode().replace("\0", "") for line in found.numpy())  # NUL is an error there
        lines.extend(filter(None, found))
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=model,
            vocab_size=vocab_size,
            **_OPTIONS,
        )
    except RuntimeError as error:
        raise InputError(
            f"`vocab_size` should suit the text. Received: {vocab_size}, of which SentencePiece"
            f" says: {' '.join(str(error).split())}"
        ) from error
    return Vocabulary.of_model(
        model.getvalue(), do_lower_case=do_lower_case, strip_accents=strip_accents
    )
