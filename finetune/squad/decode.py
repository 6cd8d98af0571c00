"""From what the network says of windows to the answers of questions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from finetune.encoded import Encoded
from finetune.squad.examples import QuestionExample


class Span(NamedTuple):
    """One possible answer.

    Attributes:
        text: a slice of the context.
        start: its first character in the context.
        end: one past its last character.
        start_log_prob: of the first token among those of its window.
        end_log_prob: of the last token, given the first where predicted jointly.
        probability: among the answers kept for the question; they sum to one.
    """

    text: str
    start: int
    end: int
    start_log_prob: float
    end_log_prob: float
    probability: float


class SpanAnswer(NamedTuple):
    """The answer to a question.

    Attributes:
        text: the best answer, were the question answerable; "" where no span is possible.
        start: its first character in the context.
        end: one past its last character.
        score: the sum of its log probabilities.
        null_score: how much speaks for no answer; compared with `qa_na_threshold`.
        nbest: the best answers of different text, this one first.
    """

    text: str
    start: int
    end: int
    score: float
    null_score: float
    nbest: tuple[Span, ...]


class _Candidates(NamedTuple):
    """Possible spans, sorted by question and falling score; each field [candidates]."""

    example: np.ndarray
    char_start: np.ndarray
    char_end: np.ndarray
    start_log_prob: np.ndarray
    end_log_prob: np.ndarray


def decode_answers(
    examples: Sequence[QuestionExample],
    encoded: Encoded,
    predictions: dict[str, np.ndarray],
    hparams: Any,
) -> list[SpanAnswer]:
    """Chooses every question's answer among the spans of all its windows.

    A span begins at a token that its window shows best (`max_context`), ends in the context, not
    before its beginning, and has at most `max_answer_length` tokens. Scores of different windows
    are compared as they are.

    Source: `write_predictions` in finetune/qa/qa_metrics.py of ELECTRA.

    Args:
        examples: the questions.
        encoded: from `encode_questions`.
        predictions: of `SpanHead.predict` for all n rows of `encoded`, in their order:
            start_log_probs, start_index [n, K]; end_log_probs, end_index [n, K, K];
            answerable_logit [n].
        hparams: with `n_best_size`, `max_answer_length` and `answerable_classifier`.

    Returns:
        One answer per question. `null_score` is the least `answerable_logit` of the question's
        windows, less the best answer's score if there is no answerability classifier.
    """
    candidates = _possible_spans(encoded, predictions, hparams.max_answer_length)
    bounds = np.searchsorted(candidates.example, np.arange(len(examples) + 1))
    nulls = np.full(len(examples), np.inf)
    np.minimum.at(nulls, encoded.rows["example"], predictions["answerable_logit"])
    answers = []
    for index, example in enumerate(examples):
        own = _Candidates(*(field[bounds[index] : bounds[index + 1]] for field in candidates))
        nbest = _distinct(example.context, own, hparams.n_best_size)
        best = nbest[0] if nbest else Span("", 0, 0, 0.0, 0.0, 1.0)
        score = best.start_log_prob + best.end_log_prob
        null = float(nulls[index]) - (0.0 if hparams.answerable_classifier else score)
        answers.append(SpanAnswer(best.text, best.start, best.end, score, null, nbest))
    return answers


def _possible_spans(
    encoded: Encoded, predictions: dict[str, np.ndarray], max_answer_length: int
) -> _Candidates:
    first, last = predictions["start_index"][:, :, None], predictions["end_index"]  # [n, K, K]
    offsets, lengths = encoded.row_splits[:-1, None, None], encoded.lengths[:, None, None]
    in_context = encoded.tokens["char_end"] > encoded.tokens["char_start"]  # [total]

    def token(index: np.ndarray) -> np.ndarray:
        """Of an index within a row, the one within `encoded`; padding counts as the last [SEP]."""
        return offsets + np.minimum(index, lengths - 1)

    possible = (last >= first) & (last - first < max_answer_length)
    possible &= in_context[token(last)]
    possible &= encoded.tokens["max_context"][token(first)] == 1
    row, i, j = np.nonzero(possible)
    start_log_prob = predictions["start_log_probs"][row, i]
    end_log_prob = predictions["end_log_probs"][row, i, j]
    example = encoded.rows["example"][row]
    order = np.lexsort((-(start_log_prob + end_log_prob), example))
    fields = (
        example,
        encoded.tokens["char_start"][encoded.row_splits[row] + first[row, i, 0]],
        encoded.tokens["char_end"][encoded.row_splits[row] + last[row, i, j]],
        start_log_prob,
        end_log_prob,
    )
    return _Candidates(*(field[order] for field in fields))


def _distinct(context: str, candidates: _Candidates, n_best_size: int) -> tuple[Span, ...]:
    """The first `n_best_size` spans of different text, with their probabilities."""
    chosen: dict[str, tuple] = {}
    for _, start, end, start_log_prob, end_log_prob in zip(*candidates):
        if len(chosen) == n_best_size:
            break
        span = (int(start), int(end), float(start_log_prob), float(end_log_prob))
        chosen.setdefault(context[start:end], span)
    scores = np.array([span[2] + span[3] for span in chosen.values()])
    weights = np.exp(scores - scores.max(initial=-np.inf)) if chosen else scores
    probabilities = (weights / weights.sum()).tolist() if chosen else []
    return tuple(
        Span(text, *span, probability)
        for (text, span), probability in zip(chosen.items(), probabilities)
    )
