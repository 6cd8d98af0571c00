"""Scores of answers by SQuAD's official evaluation, and the files that it reads."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import files
from finetune.squad.examples import QuestionExample

if TYPE_CHECKING:
    from finetune.squad.decode import SpanAnswer


def official_scores(
    examples: Sequence[QuestionExample], answers: Sequence[SpanAnswer], threshold: float | None
) -> dict[str, float]:
    """Exact match and F1, times 100, by SQuAD's own scripts (in tf-models-official).

    Args:
        examples: the questions with their gold answers.
        answers: one per question.
        threshold: version 2: the question counts as unanswerable where `null_score` is above it;
            None for version 1.

    Returns:
        `exact_match` and `f1`. For version 2 both are at `threshold`, and so are, where there are
        such questions, HasAns_exact, HasAns_f1, NoAns_exact and NoAns_f1; best_exact and best_f1
        are those at the thresholds best_exact_thresh and best_f1_thresh, which were chosen on these
        very answers.
    """
    questions = [
        {"id": example.id, "answers": [{"text": text} for text in example.answers]}
        for example in examples
    ]
    dataset = [{"paragraphs": [{"qas": questions}]}]
    if threshold is None:
        from official.nlp.tools import squad_evaluate_v1_1

        scores = squad_evaluate_v1_1.evaluate(dataset, _texts(examples, answers))
        return {"exact_match": 100.0 * scores["exact_match"], "f1": 100.0 * scores["final_f1"]}

    from official.nlp.tools import squad_evaluate_v2_0

    # Its own threshold is fixed at 1, meant for probabilities; "" is how a prediction says so.
    decided = squad_evaluate_v2_0.evaluate(dataset, _texts(examples, answers, threshold))
    odds = {example.id: answer.null_score for example, answer in zip(examples, answers)}
    swept = squad_evaluate_v2_0.evaluate(dataset, _texts(examples, answers), odds)
    scores = {"exact_match": decided["exact"], "f1": decided["f1"]}
    for name in ("HasAns_exact", "HasAns_f1", "NoAns_exact", "NoAns_f1"):
        if name in decided:
            scores[name] = decided[name]
    for name in ("exact", "f1"):
        scores[f"best_{name}"] = swept[f"final_{name}"]
        scores[f"best_{name}_thresh"] = swept[f"final_{name}_thresh"]
    return {name: float(value) for name, value in scores.items()}


def write_predictions(
    folder: str,
    split: str,
    examples: Sequence[QuestionExample],
    answers: Sequence[SpanAnswer],
    threshold: float | None,
) -> None:
    """Writes answers as the official scripts read them, by question id.

    SPLIT_predictions.json: the text; version 2: "" where `null_score` is above `threshold`.
    SPLIT_nbest_predictions.json: the best answers with log probabilities and probabilities.
    SPLIT_null_odds.json (version 2): `null_score`.

    Raises:
        InputError: a file that cannot be written.
    """
    nbest, odds = {}, {}
    for example, answer in zip(examples, answers):
        nbest[example.id] = [span._asdict() for span in answer.nbest]
        odds[example.id] = answer.null_score
    contents = {"predictions": _texts(examples, answers, threshold), "nbest_predictions": nbest}
    if threshold is not None:
        contents["null_odds"] = odds
    for name, content in contents.items():
        files.write_json(os.path.join(folder, f"{split}_{name}.json"), content)


def decided(answer: SpanAnswer, threshold: float | None) -> str:
    """The answer's text, or "" where the question counts as unanswerable."""
    return "" if threshold is not None and answer.null_score > threshold else answer.text


def _texts(examples, answers, threshold: float | None = None) -> dict[str, str]:
    """Question id -> text."""
    return {example.id: decided(answer, threshold) for example, answer in zip(examples, answers)}
