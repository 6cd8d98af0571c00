"""Questions whose answers are spans of their contexts, as SQuAD has them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from errors import InputError
from finetune.hparams import FinetuningHParams
from finetune.kinds.base import Error, Kind
from finetune.kinds.predicted import Predicted, constant_answer, quoted
from finetune.squad import score
from finetune.squad.examples import QuestionExample, question_of_row, read_squad
from plugins import lazily
from settings import at_least, check_setting

if TYPE_CHECKING:
    from data.vocabulary import Vocabulary
    from finetune.encoded import Encoded
    from finetune.squad.decode import SpanAnswer
    from finetune.task import Task
    from finetune.task_files import Source
    from model import BackboneConfig

_encode_questions = lazily("finetune.squad.features:encode_questions")
_decode_answers = lazily("finetune.squad.decode:decode_answers")
_span_answer = lazily("finetune.squad.decode:SpanAnswer")
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


class Span(Kind):
    """The first and the last token of the answer; answers are `SpanAnswer`s."""

    name = "span"
    formats: ClassVar = {"squad": ".json", "tfds": None}
    metrics: ClassVar = {"f1": None, "exact_match": None}  # of the official scorer
    default_metrics = ("f1", "exact_match")
    hparams = SpanHParams
    shaping = ("max_seq_length", "max_query_length", "doc_stride")
    shortened = "divided into windows that overlap"
    signatures = "span"

    def check_columns(self, task: Task, split: str) -> None:
        """Files of SQuAD say what their fields are."""

    def read(self, source: Source) -> list[QuestionExample]:
        task = source.task
        if task.format == "tfds":
            names = ("id", "question", "context", "answers")
            names += ("is_impossible",) if task.version_2 else ()
            rows = source.rows(columns={name: name for name in names})
            examples = [question_of_row(row, where) for where, row in rows]
        else:
            examples = read_squad(source.path, training=source.split == task.train)
        for example in examples:
            # Without answers there is nothing to train on, and nothing to measure by.
            allowed = task.version_2 if example.is_impossible else source.is_test
            if not (example.answers or allowed):
                raise InputError(
                    f"{source.path}, question {example.id}: should have an answer; without one are"
                    f" test splits, and, with `version_2`, questions marked `is_impossible`"
                )
        return examples

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
        """One sequence for each window of a context, see `finetune.squad.features`."""
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
        scores = score.official_scores(predicted.examples, predicted.answers, _threshold(predicted))
        first = {name: scores[name] for name in predicted.task.metrics if name in scores}
        return first | scores

    def collapsed(self, predicted: Predicted) -> str | None:
        threshold = _threshold(predicted)
        texts = [score.decided(answer, threshold) for answer in predicted.answers]
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
        return {"prediction": score.decided(answer, _threshold(predicted)), **scores}

    def error(self, predicted: Predicted, number: int) -> Error | None:
        """Answers without a word in common with a gold one (F1 of 0), the most probable first.

        "No answer" is among them.
        """
        example, answer = predicted.examples[number], predicted.answers[number]
        threshold = _threshold(predicted)
        if score.official_scores([example], [answer], threshold)["f1"] > 0:
            return None
        text = score.decided(answer, threshold)
        # The null score is a logit; its log probability compares with that of a span.
        sure = answer.score if text else -float(np.logaddexp(0.0, -answer.null_score))
        gold = ", ".join(dict.fromkeys(example.answers)) or "no answer"
        said = f"Predicted **{text or 'no answer'}**, {sure:.2f}; it is **{gold}**."
        return sure, said + quoted(example.question, example.context)

    def write_files(self, predicted: Predicted, folder: str, split: str) -> None:
        """The files that the official scripts read, see `finetune.squad.score`."""
        score.write_predictions(
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
