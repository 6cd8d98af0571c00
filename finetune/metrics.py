"""Predictions to answers, and answers to the scores that the papers report."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from errors import InputError

if TYPE_CHECKING:  # so that a declaration's metrics are checked without importing TensorFlow
    from finetune.encoded import Encoded
    from finetune.hparams import FinetuningHParams
    from finetune.task import Example, Task

# Regression scores closer together than this share of the task's range are constant.
_CONSTANT = 1e-6

# ---------------------------------------------------------------- from predictions to answers


def answers(
    task: Task,
    examples: Sequence[Example],
    encoded: Encoded,
    predictions: dict[str, np.ndarray],
    hparams: FinetuningHParams,
) -> list:
    """One answer per example, from what the network predicts for every row.

    Args:
        task: what was predicted.
        examples: the examples of the split.
        encoded: their rows.
        predictions: classification: `logits` [n, L]; regression: `score` [n], in [0, 1]; tagging:
            `tags` int [total], along the tokens of `encoded`; span: what
            `finetune.squad.decode.decode_answers` takes.
        hparams: of the decoding of spans.

    Returns:
        Classification: indices into `task.labels`. Regression: floats in the unit of
        `task.label_range`. Tagging: a tuple of one index into `task.labels` per word. Span:
        `SpanAnswer`s.
    """
    if task.kind == "span":
        from finetune.squad.decode import decode_answers

        return decode_answers(examples, encoded, predictions, hparams)
    if task.kind == "tagging":
        # Rows are in the order of the sentences and of their words: so are the first pieces.
        tags = predictions["tags"][encoded.tokens["tag_weight"] > 0].tolist()
        ends = np.cumsum([0, *(len(example.words) for example in examples)])
        return [tuple(tags[start:end]) for start, end in itertools.pairwise(ends)]
    if task.kind == "classification":
        values = np.argmax(predictions["logits"], axis=-1)
    else:
        low, high = task.label_range
        values = low + (high - low) * np.asarray(predictions["score"], np.float64)
    return values[np.argsort(encoded.rows["example"], kind="stable")].tolist()


# ---------------------------------------------------------------- scores


def score(
    task: Task,
    examples: Sequence[Example],
    answers: Sequence,
    hparams: FinetuningHParams | None = None,
) -> dict[str, float | None]:
    """The task's metrics, times 100 as the papers print them.

    A score that is not a number, such as the correlation with a constant, is None; `undefined` has
    the reason. Where a convention makes it 0 (F1 and Matthews' correlation of constants), it is 0.

    Args:
        task: whose `metrics` are wanted.
        examples: with gold labels.
        answers: as from the function `answers`.
        hparams: with `qa_na_threshold`, for span tasks; None: the original's threshold.

    Returns:
        metric -> score, the main one first. Span tasks: what the official SQuAD scorer gives.

    Raises:
        InputError: a metric does not apply to such a task.
    """
    if task.kind == "span":
        from finetune.squad.score import official_scores

        threshold = {} if hparams is None else {"threshold": hparams.qa_na_threshold}
        scores = official_scores(examples, answers, version_2=task.version_2, **threshold)
        first = {name: scores[name] for name in task.metrics if name in scores}
        return first | scores
    check_metrics(task)
    field = "tags" if task.kind == "tagging" else "label"
    gold = [getattr(example, field) for example in examples]
    if any(label is None for label in gold):
        raise ValueError(f"{task.name}: examples should have labels to be scored")
    scores = {}
    for name in task.metrics:
        with warnings.catch_warnings():  # about what is constant or never predicted
            warnings.simplefilter("ignore")
            value = float(METRICS[name][task.kind](task, gold, answers))
        scores[name] = 100.0 * value if np.isfinite(value) else None
    return scores


def undefined(
    task: Task, examples: Sequence[Example], answers: Sequence, scores: dict[str, float | None]
) -> dict[str, str]:
    """Why scores have no value: metric -> reason, for those that `score` gave as None.

    Args:
        task: what was predicted.
        examples: as for `score`.
        answers: as for `score`.
        scores: what `score` returned.
    """
    without = [name for name, value in scores.items() if value is None]
    return dict.fromkeys(without, _reason(task, examples, answers)) if without else {}


def _reason(task: Task, examples: Sequence[Example], answers: Sequence) -> str:
    gold = [example.label for example in examples]
    if len(gold) < 2:
        return "there is one example only"
    if len(set(gold)) == 1:
        return f"every gold label is {gold[0]:.4g}"
    return collapsed(task, answers) or "the score is not a number"


def check_metrics(task: Task) -> None:
    """Refuses metrics that do not exist or do not apply to the task.

    Raises:
        InputError: names the metric, and which ones there are.
    """
    names = [name for name, kinds in METRICS.items() if task.kind in kinds]
    for name in task.metrics:
        if name not in names:
            raise InputError(
                f"{task.name}: `metrics` of a {task.kind} task should be among "
                f"{', '.join(names)}. Received: {name!r}"
            )
    if task.kind == "classification" and "f1" in task.metrics and len(task.labels) > 2:
        raise InputError(
            f"{task.name}: the metric f1 is of the second of two labels; of more, use macro_f1. "
            f"Received: {len(task.labels)} labels"
        )
    if task.kind == "tagging" and "f1" in task.metrics:
        plain = [tag for tag in task.labels if tag != "O" and tag[1:2] != "-"]
        if plain:
            raise InputError(
                f"{task.name}: the metric f1 counts spans of tags such as B-PER and I-PER; of "
                f"other tags, use token_accuracy. Received: {plain[0]!r}"
            )


def collapsed(
    task: Task, answers: Sequence, hparams: FinetuningHParams | None = None
) -> str | None:
    """What all answers are, where they are all the same; None where they differ.

    Such a run has learned nothing, and its score (0 for Matthews' and other correlations, the
    share of the most frequent label for accuracy) should not hide in an average.

    Args:
        task: what was predicted.
        answers: as from the function `answers`.
        hparams: as for `score`.
    """
    if task.kind == "regression":
        scores, (low, high) = np.array(answers, np.float64), task.label_range
        if not np.all(np.isfinite(scores)):
            return "a predicted score is not finite"
        if len(scores) > 1 and np.ptp(scores) <= _CONSTANT * (high - low):
            return f"every prediction is {scores[0]:.4g}"
        return None
    if task.kind == "span":
        return _collapsed_spans(task, answers, hparams)
    if task.kind == "tagging":
        answers = [tag for tags in answers for tag in tags]
    if len(answers) < 2 or len(set(answers)) > 1:
        return None
    return f"every prediction is {task.labels[answers[0]]!r}"


def _collapsed_spans(
    task: Task, answers: Sequence, hparams: FinetuningHParams | None
) -> str | None:
    from finetune.squad.score import QA_NA_THRESHOLD

    if len(answers) < 2:
        return None
    if task.version_2:
        threshold = QA_NA_THRESHOLD if hparams is None else hparams.qa_na_threshold
        answered = {answer.null_score <= threshold for answer in answers}
        if answered == {False}:
            return "no question is answered"
    texts = {answer.text for answer in answers}
    return f"every prediction is {texts.pop()!r}" if len(texts) == 1 else None


# ---------------------------------------------------------------- the metrics


def _accuracy(task: Task, gold: list, answers: Sequence) -> float:
    from sklearn.metrics import accuracy_score

    return accuracy_score(gold, answers)


def _binary_f1(task: Task, gold: list, answers: Sequence) -> float:
    from sklearn.metrics import f1_score

    return f1_score(gold, answers, pos_label=1, average="binary", zero_division=0)


def _macro_f1(task: Task, gold: list, answers: Sequence) -> float:
    from sklearn.metrics import f1_score

    return f1_score(gold, answers, average="macro", zero_division=0)


def _matthews_corrcoef(task: Task, gold: list, answers: Sequence) -> float:
    from sklearn.metrics import matthews_corrcoef

    return matthews_corrcoef(gold, answers)


def _pearson(task: Task, gold: list, answers: Sequence) -> float:
    from scipy.stats import pearsonr

    return pearsonr(gold, answers)[0] if len(gold) > 1 else np.nan


def _spearman(task: Task, gold: list, answers: Sequence) -> float:
    from scipy.stats import spearmanr

    return spearmanr(gold, answers)[0] if len(gold) > 1 else np.nan


def _token_accuracy(task: Task, gold: list, answers: Sequence) -> float:
    flat = [[tag for tags in sentences for tag in tags] for sentences in (gold, answers)]
    return _accuracy(task, *flat)


def _entity_f1(task: Task, gold: list, answers: Sequence) -> float:
    from seqeval.metrics import f1_score

    named = [
        [[task.labels[i] for i in tags] for tags in sentences] for sentences in (gold, answers)
    ]
    return f1_score(*named, zero_division=0)


# Name -> kind of task -> function of (task, gold, answers), both as the function `answers` returns
# them; 1 is the best. The official scorer has those of span tasks under the names given here.
_Metric = Callable[["Task", list, Sequence], float]
METRICS: dict[str, dict[str, _Metric | None]] = {
    "accuracy": {"classification": _accuracy},
    "f1": {"classification": _binary_f1, "tagging": _entity_f1, "span": None},
    "macro_f1": {"classification": _macro_f1},
    "matthews_corrcoef": {"classification": _matthews_corrcoef},
    "pearson": {"regression": _pearson},
    "spearman": {"regression": _spearman},
    "token_accuracy": {"tagging": _token_accuracy},
    "exact_match": {"span": None},
}
