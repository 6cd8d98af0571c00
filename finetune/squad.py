"""Encodes questions as labelled windows of token ids, and decodes predictions to answers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import tensorflow as tf

from convbert.data.text.alignment import covering
from convbert.data.text.layout import TextLayout
from convbert.data.text.windows import Places, Windows, best_answers, context_windows, ranked_spans
from convbert.finetune.encoding import Encoded, Split, from_ragged, in_chunks

if TYPE_CHECKING:
    from convbert.finetune.declaration import Task
    from convbert.finetune.kinds.span import QuestionExample, SpanHParams

_PLACES = ("char_start", "char_end", "max_context")
_EXAMPLES_PER_CHUNK = 1024  # questions to decode at once


def encode_questions(
    task: Task, examples: Sequence[QuestionExample], layout: TextLayout, hparams: SpanHParams
) -> Encoded:
    """Lays out [CLS] question [SEP] window [SEP], see `data.text.windows.context_windows`.

    All windows of a question are used. A window without the answer has [CLS] as its span, and the
    question's `is_impossible`, as in the original code (unlike its comment). An answer that is only
    part of a piece is labelled by the whole piece.

    Returns the columns of `data.text.windows.Places` and, if all examples are labelled,
    `start_position`, `end_position` (first and last token of the answer, inclusive, in the
    sequence) and `is_impossible`, int32 [n].
    """
    settings = {name: getattr(hparams, name) for name in ("max_query_length", "doc_stride")}
    labelled = all(item.is_impossible or item.answer_start is not None for item in examples)

    def encode_chunk(chunk: Sequence[QuestionExample]) -> Encoded:
        question = tf.constant([item.question for item in chunk], tf.string)
        context = tf.constant([item.context for item in chunk], tf.string)
        windows = context_windows(layout, question, context, **settings)
        places = {name: getattr(windows.places, name) for name in _PLACES}
        truncated = int(np.sum(windows.truncated))
        encoded = from_ragged(windows, windows.places.example, truncated, **places)
        if labelled:
            encoded.sequences.update(_labels(chunk, windows))
        return encoded

    return in_chunks(encode_chunk, examples, lambda item: len(item.context) + len(item.question))


def _labels(examples: Sequence[QuestionExample], windows: Windows) -> dict[str, np.ndarray]:
    """Returns the tokens that cover each marked answer, if they are all in the window.

    Some answers begin or end inside of a piece ("one" of "iPhone"); the same words elsewhere in the
    context do not count. (The original uses the whole word between whitespace.)
    """
    start = np.array([-1 if x.answer_start is None else x.answer_start for x in examples], np.int64)
    length = np.array([len(x.answers[0]) if x.answers else 0 for x in examples], np.int64)
    found = covering(windows.contexts, windows.context, start, start + length)
    covered = [tokens.numpy() for tokens in found]
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


class SpanAnswer(NamedTuple):
    """The answer to a question."""

    prediction: str  # "" if predicted unanswerable, else `text`
    text: str | None  # the best answer, or "" if no span is possible; None if unknown
    start: int  # its first character in the context
    end: int  # one past its last character
    score: float  # the sum of its log probabilities
    null_score: float  # score for no answer; compared with `qa_na_threshold`


def decode_answers(
    task: Task, split: Split, predictions: Mapping[str, np.ndarray], hparams: SpanHParams
) -> list[SpanAnswer]:
    """Chooses each question's answer among all windows' spans, see `data.text.windows`.

    With `version_2`, questions are unanswerable above `qa_na_threshold`. `predictions` are outputs
    of `SpanHead.predict` for all n sequences, in order.
    """
    examples, encoded = split.examples, split.encoded
    numbers, answers = encoded.sequences["example"], []
    threshold = hparams.qa_na_threshold if task.version_2 else math.inf
    with tf.device("CPU:0"):
        columns = [
            tf.RaggedTensor.from_row_splits(encoded.tokens[name], encoded.row_splits)
            for name in _PLACES
        ]
        for start in range(0, len(examples), _EXAMPLES_PER_CHUNK):
            chunk = examples[start : start + _EXAMPLES_PER_CHUNK]
            windows = slice(*np.searchsorted(numbers, (start, start + len(chunk))))
            question = tf.constant(numbers[windows] - start, tf.int64)
            places = Places(question, *(column[windows] for column in columns))
            predicted = {name: tf.constant(values[windows]) for name, values in predictions.items()}
            best = best_answers(
                ranked_spans(places, predicted, hparams.max_answer_length),
                places,
                predicted["answerable_logit"],
                len(chunk),
                answerable_classifier=hparams.answerable_classifier,
            )
            rows = zip(*(field.numpy().tolist() for field in best[1:]))
            for example, (first, end, score, null_score) in zip(chunk, rows):
                text = example.context[first:end]
                prediction = "" if null_score > threshold else text
                answers.append(SpanAnswer(prediction, text, first, end, score, null_score))
    return answers
