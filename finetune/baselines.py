"""What the best answer that ignores its input scores, and whether results are above it.

Each kind of task says what that answer is (`Kind.constant`): the most frequent label of the split
itself, the mean of its scores, no answer to any question of SQuAD 2.0. A kind may know rules, too
(`Kind.baselines`), such as the option that shares most words with its context; then the best one
counts. The correlation with a constant is undefined; what predicts nothing correlates by 0 on
average, so an undefined baseline counts as 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from finetune.kinds.predicted import Predicted
from finetune.results import Group

if TYPE_CHECKING:
    from finetune.hparams import FinetuningHParams
    from finetune.task import Task


def baseline(task: Task, examples: Sequence, hparams: FinetuningHParams) -> dict[str, Any] | None:
    """What goes into `result.json`: the best answers to labelled examples without learning.

    Returns:
        {"name": what answers, "answer": the one answer to all, "scores": {metric: score, None where
        undefined}} of highest main metric; with "others", a list of such objects, where the kind
        has several. None where the task has none.
    """
    found = []
    for name, answer, answers in task.plugin.baselines(task, examples):
        scores = task.plugin.score(Predicted(task, examples, answers, hparams))
        scores = {metric: scores[metric] for metric in task.metrics}
        found.append({"name": name, "answer": answer, "scores": scores})
    if not found:
        return None
    best, *others = sorted(found, key=lambda item: -(item["scores"][task.metrics[0]] or 0.0))
    return best | {"others": others} if others else best


class Comparison(NamedTuple):
    """A group's median beside its baseline."""

    name: str  # what the baseline answers, such as "most frequent label"
    answer: str | float
    score: float  # of the baseline, 0 where undefined
    undefined: bool
    above: bool | None  # whether the median is above it; None where the median is undefined
    others: tuple[tuple[str, float | None], ...] = ()  # name and score of those that are lower

    def cell(self) -> str:
        """The score for a table, marked where the result is not above it."""
        score = "0 (undefined)" if self.undefined else f"{self.score + 0.0:.1f}"
        return f"{score}, **not above**" if self.above is False else score

    def words(self) -> str:
        """The same for a sentence."""
        score = "undefined, counts as 0" if self.undefined else f"{self.score + 0.0:.1f}"
        return f"{'not above ' if self.above is False else ''}{self.name}: {score}"


def compare(group: Group, split: str, metric: str) -> Comparison | None:
    """Compares a group's median with the baseline; None where no run recorded one."""
    for result in group.results:
        found = (result.get("baselines") or {}).get(split)
        if found and metric in found["scores"]:
            score = found["scores"][metric]
            median = group.summary(split, metric).median
            above = None if median is None else median > (score or 0.0)
            others = ((item["name"], item["scores"][metric]) for item in found.get("others", ()))
            return Comparison(
                found["name"], found["answer"], score or 0.0, score is None, above, tuple(others)
            )
    return None


def section(best: Sequence[Group]) -> str:
    """The report's section on baselines, as Markdown; "" where no run recorded one."""
    lines, compared = [], []
    for group in best:
        found = compare(group, group.split, group.metric)
        if found:
            compared.append(found)
            answer = f"{found.answer:.2f}" if isinstance(found.answer, float) else found.answer
            quoted = f" (`{answer}`)" if answer else ""
            score = "undefined" if found.undefined else f"{found.score + 0.0:.1f}"
            median = group.headline.median
            median = "undefined" if median is None else f"{median + 0.0:.1f}"
            verdict = {None: "not compared", False: "**not above it**", True: "above it"}
            lines.append(
                f"- {group.task}, {group.init} weights: {found.name}{quoted} on {group.split}: "
                f"{group.metric} {score}{_lower(found)}; the median of the runs, {median}, is "
                + verdict[found.above]
            )
    if not lines:
        return ""
    rules = any(found.others for found in compared)
    return (
        "## Baselines\n\nWhat one answer to everything scores on the development split: the most "
        "frequent label or tag, the mean, no answer. Its correlation is undefined and counts as "
        "0."
        + " Where rules without learning are known, the best one of all." * rules
        + "\n\n"
        + "\n".join(lines)
    )


def _lower(found: Comparison) -> str:
    """The baselines that are lower, in brackets."""
    told = (
        f"{name} {'undefined' if score is None else f'{score:.1f}'}" for name, score in found.others
    )
    return f" ({', '.join(told)})" if found.others else ""


def single_trials(best: Sequence[Group]) -> list[str]:
    """The tasks whose best setting has one run only, which decides nothing."""
    return list(dict.fromkeys(group.task for group in best if len(group.results) == 1))
