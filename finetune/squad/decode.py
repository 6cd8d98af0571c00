"""From what the network says of windows to the answers of questions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from finetune.encoded import Encoded
from finetune.squad.examples import QuestionExample
from text.windows import Places, best_answers, ranked_spans

_EXAMPLES_PER_CHUNK = 1024  # whose possible spans are sorted at once


class Span(NamedTuple):
    """One possible answer, `context[start:end]`.

    `probability` is among the answers kept for the question; `end_log_prob` is given the start
    where predicted jointly.
    """

    text: str
    start: int
    end: int
    start_log_prob: float
    end_log_prob: float
    probability: float


class SpanAnswer(NamedTuple):
    """The answer to a question."""

    text: str  # the best answer, were there one; "" where no span is possible
    start: int  # its first character in the context
    end: int  # one past its last character
    score: float  # the sum of its log probabilities
    null_score: float  # how much speaks for no answer; compared with `qa_na_threshold`
    nbest: tuple[Span, ...]  # the best answers of different text, this one first


def decode_answers(
    examples: Sequence[QuestionExample],
    encoded: Encoded,
    predictions: dict[str, np.ndarray],
    hparams: Any,
) -> list[SpanAnswer]:
    """Chooses every question's answer among the spans of all its windows, see `text.windows`.

    Args:
        examples: the questions.
        encoded: their windows.
        predictions: of `SpanHead.predict` for all n sequences, in their order:
            start_log_probs, start_index [n, K]; end_log_probs, end_index [n, K, K];
            answerable_logit [n].
        hparams: with `n_best_size`, `max_answer_length` and `answerable_classifier`.

    Returns:
        One answer per question. `null_score` is the least `answerable_logit` of the question's
        windows, less the best answer's score if there is no answerability classifier.
    """
    answers: list[SpanAnswer] = []
    with tf.device("CPU:0"):
        for start in range(0, len(examples), _EXAMPLES_PER_CHUNK):
            chunk = range(len(examples))[start : start + _EXAMPLES_PER_CHUNK]
            answers += _decode_chunk(examples, encoded, predictions, hparams, chunk)
    return answers


def _decode_chunk(
    examples: Sequence[QuestionExample],
    encoded: Encoded,
    predictions: dict[str, np.ndarray],
    hparams: Any,
    chunk: range,
) -> Iterator[SpanAnswer]:
    """The answers of some consecutive questions."""
    windows = slice(*np.searchsorted(encoded.sequences["example"], (chunk.start, chunk.stop)))
    splits = encoded.row_splits[windows.start : windows.stop + 1]

    def column(name: str) -> tf.RaggedTensor:
        values = encoded.tokens[name][splits[0] : splits[-1]]
        return tf.RaggedTensor.from_row_splits(values, splits - splits[0])

    example = tf.constant(encoded.sequences["example"][windows] - chunk.start, tf.int64)
    places = Places(example, column("char_start"), column("char_end"), column("max_context"))
    predicted = {name: tf.constant(values[windows]) for name, values in predictions.items()}
    spans = ranked_spans(places, predicted, hparams.max_answer_length)
    best = best_answers(
        spans,
        places,
        predicted["answerable_logit"],
        len(chunk),
        answerable_classifier=hparams.answerable_classifier,
    )
    bounds = np.searchsorted(spans.example, range(len(chunk) + 1)).tolist()
    columns = [field.numpy() for field in spans[1:]]
    best = zip(*(field.numpy().tolist() for field in best[1:]))
    for index, (start, end, score, null_score) in enumerate(best):
        context = examples[chunk[index]].context
        own = (column[bounds[index] : bounds[index + 1]] for column in columns)
        nbest = _distinct(context, zip(*own), hparams.n_best_size)
        yield SpanAnswer(context[start:end], start, end, score, null_score, nbest)


def _distinct(context: str, spans: Iterable[tuple], n_best_size: int) -> tuple[Span, ...]:
    """The first `n_best_size` spans of different text, with their probabilities."""
    chosen: dict[str, tuple] = {}
    for start, end, start_log_prob, end_log_prob in spans:
        if len(chosen) == n_best_size:
            break
        span = (int(start), int(end), float(start_log_prob), float(end_log_prob))
        chosen.setdefault(context[start:end], span)
    scores = np.array([span[2] + span[3] for span in chosen.values()])
    weights = np.exp(scores - scores.max(initial=-np.inf))
    probabilities = (weights / weights.sum()).tolist()
    return tuple(
        Span(text, *span, probability)
        for (text, span), probability in zip(chosen.items(), probabilities)
    )
