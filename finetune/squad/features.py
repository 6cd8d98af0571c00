"""Questions to sequences of token ids, one for each window of the context, with their labels."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from data.tokenizers import create_tokenizer
from data.vocabulary import Vocabulary
from finetune.encoded import Encoded
from finetune.encoding import from_ragged, in_chunks
from finetune.squad.examples import QuestionExample
from text.alignment import covering
from text.layout import TextLayout
from text.windows import Windows, context_windows

_PLACES = ("char_start", "char_end", "max_context")


def encode_questions(
    examples: Sequence[QuestionExample],
    vocabulary: Vocabulary,
    *,
    max_seq_length: int,
    max_query_length: int,
    doc_stride: int,
) -> Encoded:
    """Lays out [CLS] question [SEP] window [SEP], see `text.windows.context_windows`.

    A question has all windows, with or without the answer: as in the original code (whose comment
    says otherwise), one without it has [CLS] as its span, and `is_impossible` of the question. An
    answer that is only a part of a piece is labelled by the whole piece.

    Returns:
        Encoded with more columns of tokens, all int32: `char_start`, `char_end` (the piece's
        characters in the context, the end exclusive; 0, 0 outside of the context), `max_context`
        (1 where no other window shows more on both sides of the piece). Columns of sequences:
        `example` and, where every example is labelled, `start_position`, `end_position` (first and
        last token of the answer, inclusive, in the sequence) and `is_impossible`, int32.
        `truncated` counts questions that were cut and contexts that were divided.
    """
    layout = TextLayout(create_tokenizer(vocabulary), max_seq_length)
    settings = {"max_query_length": max_query_length, "doc_stride": doc_stride}
    labelled = all(item.is_impossible or item.answer_start is not None for item in examples)
    cut_questions = 0

    def encode_chunk(chunk: Sequence[QuestionExample]) -> Encoded:
        nonlocal cut_questions
        question = tf.constant([item.question for item in chunk], tf.string)
        context = tf.constant([item.context for item in chunk], tf.string)
        windows = context_windows(layout, question, context, **settings)
        cut_questions += int(np.sum(windows.cut))
        tokens = {"input_ids": windows.ids, "segment_ids": windows.segment_ids}
        tokens |= {name: getattr(windows.places, name) for name in _PLACES}
        encoded = from_ragged(tokens, windows.places.example, windows.divided | windows.cut)
        if labelled:
            encoded.sequences.update(_labels(chunk, windows))
        return encoded

    encoded = in_chunks(encode_chunk, examples, lambda item: len(item.context) + len(item.question))
    if cut_questions:
        print(
            f"{cut_questions:,} of {len(examples):,} questions were cut to"
            f" {max_query_length} tokens",
            file=sys.stderr,
        )
    return encoded


def _labels(examples: Sequence[QuestionExample], windows: Windows) -> dict[str, np.ndarray]:
    """The tokens that cover each answer where it is marked, if they are all in the window.

    Some answers begin or end inside of a piece ("one" of "iPhone"), and the tokens say more than
    they do. The same words elsewhere in the context would not: but there they answer nothing.
    (The original, too, stays at the place, and takes all of the word between whitespace.)
    """
    start = np.array([-1 if x.answer_start is None else x.answer_start for x in examples], np.int64)
    length = np.array([len(x.answers[0]) if x.answers else 0 for x in examples], np.int64)
    covered = covering(windows.contexts, windows.context, start, start + length)
    covered = [tokens.numpy() for tokens in covered]
    example = windows.places.example.numpy()
    first, last = (np.where((start >= 0) & (covered[0] <= covered[1]), x, -1) for x in covered)
    first, last = first[example], last[example]
    inside = (first >= windows.start) & (last < windows.end) & (first >= 0)
    offset = (windows.first - windows.start).numpy()
    impossible = np.array([item.is_impossible for item in examples], np.int32)
    return {
        "start_position": np.where(inside, first + offset, 0).astype(np.int32),
        "end_position": np.where(inside, last + offset, 0).astype(np.int32),
        "is_impossible": impossible[example],
    }
