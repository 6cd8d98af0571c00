"""Questions whose answers are spans of their contexts, as SQuAD has them."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from errors import InputError, located
from files import write_json
from finetune.hparams import FinetuningHParams
from finetune.kinds.base import Error, Kind
from finetune.kinds.predicted import Predicted, constant_answer, quoted
from plugins import lazily
from settings import at_least, check_setting, typed

if TYPE_CHECKING:
    from data.vocabulary import Vocabulary
    from finetune.encoding import Encoded
    from finetune.squad import SpanAnswer
    from finetune.task import Task
    from finetune.task_files import Source
    from model import BackboneConfig

_encode_questions = lazily("finetune.squad:encode_questions")
_decode_answers = lazily("finetune.squad:decode_answers")
_span_answer = lazily("finetune.squad:SpanAnswer")
_head = lazily("model.heads.span:SpanHead")


@dataclasses.dataclass(frozen=True)
class SpanHParams(FinetuningHParams):
    """Hyper-parameters of question answering; the original's names and defaults."""

    max_query_length: int = field(default=64, metadata=at_least(1))  # tokens of a question
    doc_stride: int = field(default=128, metadata=at_least(1))  # tokens between windows
    n_best_size: int = field(default=20, metadata=at_least(1))  # answers kept per question
    max_answer_length: int = field(default=30, metadata=at_least(1))  # tokens
    answerable_classifier: bool = True  # whether a question has an answer (version 2)
    answerable_uses_start_logits: bool = True
    answerable_weight: float = field(default=0.5, metadata=at_least(0))  # of its loss
    joint_prediction: bool = True  # the end is predicted given the start, by beam search
    beam_size: int = field(default=20, metadata=at_least(1))
    qa_na_threshold: float = -2.75  # null odds above which predictions say "no answer"


@dataclasses.dataclass(frozen=True)
class QuestionExample:
    """A question whose answer is a span of its context."""

    id: str
    question: str
    context: str
    answers: tuple[str, ...]  # gold ones, of which a development set has several
    answer_start: int | None  # offset of the first in `context`; None: unlabelled, unanswerable
    is_impossible: bool  # whether the context holds no answer (SQuAD 2.0)


class Span(Kind):
    """The first and the last token of the answer; answers are `SpanAnswer`s."""

    name = "span"
    formats: ClassVar = {"squad": ".json", "tfds": None}
    metrics: ClassVar = {"f1": None, "exact_match": None}  # of the official scorer
    default_metrics = ("f1", "exact_match")
    hparams = SpanHParams
    shaping = ("max_seq_length", "max_query_length", "doc_stride")
    shortened = "divided into windows that overlap"
    head_is_shared = True
    signatures = staticmethod(lazily("signatures.spans:signatures"))

    def check_columns(self, task: Task, split: str) -> None:
        """Files of SQuAD say what their fields are."""

    def example(self, source: Source, identity: str, where: Any, row: dict) -> QuestionExample:
        """The question of a row with `question`, `context`, `answers` and `is_impossible`.

        `answers` and their places may be missing outside of the training split, `is_impossible`
        everywhere: then the question has an answer.
        """
        task, training = source.task, source.split == source.task.train
        question, context = (typed(name, row.get(name), str) for name in ("question", "context"))
        impossible = typed("is_impossible", row.get("is_impossible", False), bool)
        given = () if impossible else row.get("answers", ())
        answers, starts = [], []
        for number, answer in enumerate(typed("answers", given, tuple[dict[str, Any], ...])):
            with located(f"answers[{number}]"):
                answers.append(typed("text", answer.get("text"), str))
                if not answers[-1].strip():
                    raise InputError("`text` should be more than whitespace")
                if training or answer.get("answer_start") is not None:
                    starts.append(typed("answer_start", answer.get("answer_start"), int))
                    _check_start(answers[-1], starts[-1], context)
        # Without answers there is nothing to train on, and nothing to measure by.
        if not (answers or (task.version_2 if impossible else source.is_test)):
            raise InputError(
                "the question should have an answer; without one are test splits, and, with"
                " `version_2`, questions marked `is_impossible`"
            )
        start = next(iter(starts), None)
        return QuestionExample(identity, question, context, tuple(answers), start, impossible)

    def defaults(self, task: Task) -> dict[str, Any]:
        return {"num_train_epochs": 2.0, "max_seq_length": 512}

    def check_hparams(self, hparams: SpanHParams) -> None:
        """See Kind.check_hparams: a window needs room for a question and some context."""
        most = hparams.max_seq_length - 3
        room = most - hparams.max_query_length
        check_setting(hparams, room >= 1, "max_query_length", f"below {most}")
        fits = hparams.doc_stride <= room
        check_setting(hparams, fits, "doc_stride", f"at most {room}, a window's context")

    def encode(
        self,
        task: Task,
        examples: Sequence[QuestionExample],
        vocabulary: Vocabulary,
        hparams: SpanHParams,
    ) -> Encoded:
        """One sequence for each window of a context, see `finetune.squad`."""
        return _encode_questions(
            examples,
            vocabulary,
            max_seq_length=hparams.max_seq_length,
            max_query_length=hparams.max_query_length,
            doc_stride=hparams.doc_stride,
        )

    def head(self, task: Task, config: BackboneConfig, hparams: SpanHParams) -> Any:
        return _head(config, hparams, version_2=task.version_2)

    def answers(
        self,
        task: Task,
        examples: Sequence[QuestionExample],
        encoded: Encoded,
        outputs: Mapping[str, np.ndarray],
        hparams: SpanHParams,
    ) -> list[SpanAnswer]:
        return _decode_answers(examples, encoded, outputs, hparams)

    def score(self, predicted: Predicted) -> dict[str, float | None]:
        """What the official SQuAD scorer gives, the task's metrics first."""
        scores = official_scores(predicted.examples, predicted.answers, _threshold(predicted))
        first = {name: scores[name] for name in predicted.task.metrics if name in scores}
        return first | scores

    def collapsed(self, predicted: Predicted) -> str | None:
        threshold = _threshold(predicted)
        texts = [decided(answer, threshold) for answer in predicted.answers]
        gold = [example.answers[0] if example.answers else "" for example in predicted.examples]
        return constant_answer(texts, gold)

    def constant(
        self, task: Task, examples: Sequence[QuestionExample]
    ) -> tuple[str, str, list[SpanAnswer]] | None:
        """See Kind.constant: SQuAD 1.1 has no such answer."""
        if not task.version_2:
            return None
        nothing = _span_answer("", 0, 0, 0.0, float("inf"), ())
        return "no answer", "", [nothing] * len(examples)

    def gold(self, task: Task, example: QuestionExample) -> list[str] | None:
        """See Kind.gold: all gold answers."""
        return list(example.answers) if example.answers or example.is_impossible else None

    def row(self, predicted: Predicted, number: int) -> dict[str, Any]:
        """{"prediction": text, "score": log probability, "null_score"}."""
        answer = predicted.answers[number]
        scores = {"score": float(answer.score), "null_score": float(answer.null_score)}
        return {"prediction": decided(answer, _threshold(predicted)), **scores}

    def error(self, predicted: Predicted, number: int) -> Error | None:
        """Answers without a word in common with a gold one (F1 of 0), the most probable first.

        "No answer" is among them.
        """
        example, answer = predicted.examples[number], predicted.answers[number]
        threshold = _threshold(predicted)
        if official_scores([example], [answer], threshold)["f1"] > 0:
            return None
        text = decided(answer, threshold)
        # The null score is a logit; its log probability compares with that of a span.
        sure = answer.score if text else -float(np.logaddexp(0.0, -answer.null_score))
        gold = ", ".join(dict.fromkeys(example.answers)) or "no answer"
        said = f"Predicted **{text or 'no answer'}**, {sure:.2f}; it is **{gold}**."
        return sure, said + quoted(example.question, example.context)

    def write_files(self, predicted: Predicted, folder: str, split: str) -> None:
        """The files that the official scripts read."""
        write_predictions(
            folder, split, predicted.examples, predicted.answers, _threshold(predicted)
        )

    def request(self, task: Task, example: QuestionExample) -> dict[str, Any]:
        return {"question": example.question, "context": example.context}

    def answer_of(self, task: Task, values: Mapping[str, Any]) -> SpanAnswer:
        """See Kind.answer_of; where there is none, the best span is not known."""
        names = ("answer", "start", "end", "score", "null_score")
        return _span_answer(*(values[name] for name in names), ())

    def answer_row(self, values: dict[str, Any], labels: Sequence[str]) -> dict[str, Any]:
        places = {name: values[name] for name in ("start", "end", "score", "null_score")}
        return {"prediction": values["answer"], **places}


def _threshold(predicted: Predicted) -> float | None:
    """The null score above which a question counts as unanswerable; None where all have answers."""
    return predicted.hparams.qa_na_threshold if predicted.task.version_2 else None


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
    """
    nbest, odds = {}, {}
    for example, answer in zip(examples, answers):
        nbest[example.id] = [span._asdict() for span in answer.nbest]
        odds[example.id] = answer.null_score
    contents = {"predictions": _texts(examples, answers, threshold), "nbest_predictions": nbest}
    if threshold is not None:
        contents["null_odds"] = odds
    for name, content in contents.items():
        write_json(os.path.join(folder, f"{split}_{name}.json"), content)


def decided(answer: SpanAnswer, threshold: float | None) -> str:
    """The answer's text, or "" where the question counts as unanswerable."""
    return "" if threshold is not None and answer.null_score > threshold else answer.text


def _texts(examples, answers, threshold: float | None = None) -> dict[str, str]:
    """Question id -> text."""
    return {example.id: decided(answer, threshold) for example, answer in zip(examples, answers)}


def _check_start(text: str, start: int, context: str) -> None:
    """Raises InputError if an answer is not at `start` in `context`."""
    there = context[max(start, 0) : max(start, 0) + len(text)]
    if start < 0 or there != text:
        found = context.find(text)
        hint = "occurs nowhere there" if found < 0 else f"stands at {found}"
        raise InputError(
            f"the answer {text!r} should stand at character {start} of its context,"
            f" counted from 0 (it {hint}). Received: {there!r}"
        )
