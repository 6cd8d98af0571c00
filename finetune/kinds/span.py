"""Questions whose answers are spans of their contexts, as in SQuAD."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, ClassVar

from convbert.common.errors import InputError, located
from convbert.common.files import write_json
from convbert.common.plugins import lazily
from convbert.common.settings import at_least, check_setting, present, typed
from convbert.finetune.hparams import FinetuningHParams
from convbert.finetune.kinds.base import Kind, Predicted, register
from convbert.finetune.metrics import constant_answer

if TYPE_CHECKING:
    from convbert.finetune.declaration import Task
    from convbert.finetune.squad import SpanAnswer
    from convbert.finetune.task_files import SplitSource
    from convbert.model import BackboneConfig

_span_answer = lazily("convbert.finetune.squad:SpanAnswer")
_head = lazily("convbert.model.heads.span:SpanHead")
_official_1 = lazily("official.nlp.tools.squad_evaluate_v1_1:evaluate")
_official_2 = lazily("official.nlp.tools.squad_evaluate_v2_0:evaluate")


@dataclasses.dataclass(frozen=True)
class SpanHParams(FinetuningHParams):
    """Hyper-parameters of question answering, with the original's names and defaults."""

    max_query_length: int = field(default=64, metadata=at_least(1))  # tokens of a question
    doc_stride: int = field(default=128, metadata=at_least(1))  # tokens between windows
    max_answer_length: int = field(default=30, metadata=at_least(1))  # tokens
    answerable_classifier: bool = True  # predicts if there is an answer (version 2)
    answerable_uses_start_logits: bool = True
    answerable_weight: float = field(default=0.5, metadata=at_least(0))  # of its loss
    joint_prediction: bool = True  # the end is predicted given the start, by beam search
    beam_size: int = field(default=20, metadata=at_least(1))
    qa_na_threshold: float = -2.75  # null odds above which there is no answer


@dataclasses.dataclass(frozen=True)
class QuestionExample:
    """A question whose answer is a span of its context."""

    id: str
    question: str
    context: str
    answers: tuple[str, ...]  # gold ones; development sets have several
    answer_start: int | None  # offset of the first in `context`; None: unlabelled or unanswerable
    is_impossible: bool  # whether the context holds no answer (SQuAD 2.0)


class Span(Kind):
    """Predicts the first and last token of the answer; answers are `SpanAnswer`s."""

    name = "span"
    formats: ClassVar = {"squad": ".json"}
    optional = ("id", "question", "context", "answers", "is_impossible")
    filled: ClassVar = {"squad": optional}
    hparams = SpanHParams
    defaults: ClassVar = {"num_train_epochs": 2.0, "max_seq_length": 512}
    shaping = ("max_query_length", "doc_stride")
    shortened = "divided into windows that overlap"
    encode = staticmethod(lazily("convbert.finetune.squad:encode_questions"))
    answers = staticmethod(lazily("convbert.finetune.squad:decode_answers"))
    metrics: ClassVar = {"f1": None, "exact_match": None}  # from the official scorer
    default_metrics = ("f1", "exact_match")
    served = ("start", "end", "score", "null_score")
    fields = ("version_2",)
    signatures = "span"

    def example(self, source: SplitSource, identity: str, row: dict) -> QuestionExample:
        """The question of a row with `question`, `context`, `answers` and `is_impossible`.

        `answers` and their offsets may be missing outside of the training split; `is_impossible`
        defaults to false.
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
        # Without answers, there is nothing to train on or to evaluate.
        if not (answers or (task.version_2 if impossible else source.is_test)):
            raise InputError(
                "the question should have an answer, except in test splits or, with"
                " `version_2`, if marked `is_impossible`"
            )
        start = next(iter(starts), None)
        return QuestionExample(identity, question, context, tuple(answers), start, impossible)

    def check_hparams(self, task: Task, hparams: SpanHParams, config: BackboneConfig) -> None:
        most = present(hparams.max_seq_length) - 3
        room = most - hparams.max_query_length
        check_setting(hparams, room >= 1, "max_query_length", f"below {most}")

    def head(self, task: Task, config: BackboneConfig, hparams: SpanHParams) -> Any:
        return _head(config, hparams, version_2=task.version_2)

    def score(self, predicted: Predicted) -> dict[str, float | None]:
        """Returns the scores of the official SQuAD scorer, the task's metrics first."""
        task = predicted.task
        scores = official_scores(predicted.examples, predicted.answers, task.version_2)
        return {**{name: scores[name] for name in task.metrics}, **scores}

    def collapsed(self, predicted: Predicted) -> str | None:
        gold = [example.answers[0] if example.answers else "" for example in predicted.examples]
        return constant_answer([answer.prediction for answer in predicted.answers], gold)

    def named(self, labels: Sequence[str], answer: SpanAnswer) -> str:
        return answer.prediction

    def gold(self, task: Task, example: QuestionExample) -> list[str] | None:
        return list(example.answers) if example.answers or example.is_impossible else None

    def row(self, predicted: Predicted, number: int) -> dict[str, Any]:
        answer = predicted.answers[number]
        scores = {"score": float(answer.score), "null_score": float(answer.null_score)}
        return {**super().row(predicted, number), **scores}

    def write_files(self, predicted: Predicted, folder: str, split: str) -> None:
        """Writes answers as the official scripts read them, by question id.

        SPLIT_predictions.json: the text, "" for unanswerable questions.
        SPLIT_null_odds.json (version 2): `null_score`.
        """
        found = {x.id: answer for x, answer in zip(predicted.examples, predicted.answers)}
        contents: dict[str, dict[str, Any]] = {
            "predictions": {key: answer.prediction for key, answer in found.items()}
        }
        if predicted.task.version_2:
            contents["null_odds"] = {key: answer.null_score for key, answer in found.items()}
        for name, content in contents.items():
            write_json(os.path.join(folder, f"{split}_{name}.json"), content)

    def request(self, task: Task, example: QuestionExample) -> dict[str, Any]:
        return {"question": example.question, "context": example.context}

    def answer_of(self, labels: Sequence[str], values: Mapping[str, Any]) -> SpanAnswer:
        """Converts outputs; the best span is unknown for unanswerable questions."""
        names = ("answer", "answer", "start", "end", "score", "null_score")
        found = _span_answer(*(values[name] for name in names))
        return found if found.start >= 0 else found._replace(text=None)


def official_scores(
    examples: Sequence[QuestionExample], answers: Sequence[SpanAnswer], version_2: bool
) -> dict[str, float]:
    """Computes `exact_match` and `f1`, times 100, by SQuAD's scripts (in tf-models-official).

    Version 2 also has HasAns_exact, HasAns_f1, NoAns_exact and NoAns_f1, if there are such
    questions, and, if all texts are known, best_exact and best_f1, at the thresholds
    best_exact_thresh and best_f1_thresh of `null_score`, which were chosen on the same answers.
    """
    questions = [
        {"id": example.id, "answers": [{"text": text} for text in example.answers]}
        for example in examples
    ]
    dataset = [{"paragraphs": [{"qas": questions}]}]
    predictions = {x.id: answer.prediction for x, answer in zip(examples, answers)}
    if not version_2:
        scores = _official_1(dataset, predictions)
        return {"exact_match": 100.0 * scores["exact_match"], "f1": 100.0 * scores["final_f1"]}
    # Its threshold is fixed at 1, for probabilities; here, "" marks unanswerable predictions.
    decided = _official_2(dataset, predictions)
    scores = {"exact_match": decided["exact"], "f1": decided["f1"]}
    names = ("HasAns_exact", "HasAns_f1", "NoAns_exact", "NoAns_f1")
    scores |= {name: decided[name] for name in names if name in decided}
    if any(answer.text is None for answer in answers):
        return {name: float(value) for name, value in scores.items()}
    texts = {x.id: answer.text for x, answer in zip(examples, answers)}
    odds = {x.id: answer.null_score for x, answer in zip(examples, answers)}
    # The script's lowest threshold is 0, a probability: these scores are counted from the lowest.
    lowest = min(odds.values()) - 1.0
    swept = _official_2(dataset, texts, {key: value - lowest for key, value in odds.items()})
    thresholds = {0.0: lowest, **{value - lowest: value for value in odds.values()}}
    for name in ("exact", "f1"):
        scores[f"best_{name}"] = swept[f"final_{name}"]
        scores[f"best_{name}_thresh"] = thresholds[swept[f"final_{name}_thresh"]]
    return {name: float(value) for name, value in scores.items()}


def _check_start(text: str, start: int, context: str) -> None:
    """Raises InputError if an answer is not at `start` in `context`."""
    there = context[max(start, 0) : max(start, 0) + len(text)]
    if start < 0 or there != text:
        first = context.find(text)
        place = f"it first occurs at {first}" if first >= 0 else "it does not occur there"
        raise InputError(
            f"the answer {text!r} should be at character {start} of its context, counted from 0."
            f" Received: {there!r}; {place}"
        )


register(Span())
