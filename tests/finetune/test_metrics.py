"""Answers, scores against known values, baselines, statistics, reports, and published figures."""

import json
import pathlib

import numpy as np
import pandas as pd
import pytest

from convbert.finetune import metrics
from convbert.finetune.declaration import GLUE_TASKS, TASKS
from convbert.finetune.encoding import Encoded, Split, best_paths
from convbert.finetune.kinds.base import Predicted
from convbert.finetune.kinds.span import QuestionExample
from convbert.finetune.kinds.tagging import TaggedExample
from convbert.finetune.kinds.texts import TextExample
from convbert.finetune.metrics import constant_answer
from convbert.finetune.published import PUBLISHED, published_rows
from convbert.finetune.report import AVERAGED_METRICS as AVERAGED
from convbert.finetune.report import (
    best_settings,
    glue_average,
    group_results,
    summary_line,
    write_report,
)
from convbert.finetune.results import summarize
from convbert.finetune.squad import SpanAnswer
from convbert.finetune.trial import write_predictions
from convbert.model.architectures import named_size
from tests.finetune.kinds_support import read_predictions, sentences, task_of, texts


def answers(task, examples, encoded, outputs):
    return task.plugin.answers(task, Split(examples, encoded), outputs, task.plugin.hparams())


def test_answers_of_texts_are_labels_or_in_their_unit():
    logits = np.array([[0.0, 1.0, 0.5], [3.0, 1.0, 0.0], [0.0, 0.0, 2.0]])
    assert answers(task_of("classification"), [], None, {"logits": logits}) == [1, 0, 2]
    task = task_of("regression", label_range=(1.0, 5.0))
    scores = np.array([0.0, 0.25, 1.5], np.float32)
    assert answers(task, [], None, {"score": scores}) == [1.0, 2.0, 7.0]


def test_answers_of_tagging_put_the_sequences_of_a_sentence_together():
    examples = sentences([0, 0, 0], [], [0])
    # Two sequences of the first sentence, one of the second without words, one of the third.
    weight = np.array([0, 1, 0, 1, 0, 0, 1, 0, 0, 0, 0, 1, 0], np.float32)
    tags = np.array([9, 1, 9, 2, 9, 9, 3, 9, 9, 9, 9, 4, 9], np.int32)
    splits, columns = np.array([0, 5, 8, 10, 13]), {"example": np.array([0, 0, 1, 2])}
    encoded = Encoded(splits, {"tag_weight": weight}, columns, 1)
    given = answers(task_of("tagging"), examples, encoded, {"tags": tags})
    assert given == [(1, 2, 3), (), (4,)]
    # Sentences of one word have paths.
    constants = {"start": [0, 3], "transitions": np.zeros([2, 2]), "end": [0, -1]}
    constants = {name: np.float32(value) for name, value in constants.items()}
    assert best_paths(np.zeros([2, 2], np.float32), [1, 0, 1], constants) == [(1,), (), (1,)]
    assert best_paths(np.zeros([0, 2], np.float32), [0, 0], constants) == [(), ()]


NAN = [np.nan, 1.0]
BINARY = task_of("classification", "matthews_corrcoef", "accuracy", "f1", "macro_f1")
SCORED = task_of("regression", "pearson", "spearman")
SEVERAL = task_of("multi_label", "micro_f1", "macro_f1", "accuracy", labels=("a", "b", "c"))
TAGS = ("B-LOC", "B-PER", "I-LOC", "I-PER", "O")
PLACES = task_of("tagging", "f1", "token_accuracy", labels=TAGS)


@pytest.mark.parametrize(
    ("task", "gold", "given", "expected"),
    [
        # 2 true positives, 2 true negatives.
        (BINARY, texts([1, 1, 1, 0, 0, 0]), [1, 1, 0, 1, 0, 0], [(4 - 1) / 9, 4 / 6, 2 / 3, 2 / 3]),
        (SCORED, texts([0.0, 1.0, 2.0]), [0.0, 1.0, 8.0], [8 / np.sqrt(2 * 38), 1]),
        # 2 of 3 labels are found and 2 of 3 given are right; by label 2/3, 1 and 0; one row of two.
        (SEVERAL, texts([(1, 0, 0), (1, 1, 0)]), [(1, 0, 0), (0, 1, 1)], [2 / 3, 5 / 9, 1 / 2]),
        (SEVERAL, texts([(1, 1, 0)]), [(1, 1, 0)], [1, 1, 1]),  # of those that occur
        # Of 3 entities, one too short; 3 predicted, 2 right; accuracy over words.
        (PLACES, sentences([1, 3, 4, 0], [4, 1]), [(1, 4, 4, 0), (4, 1)], [2 / 3, 5 / 6]),
        # What convention makes 0 is 0.
        (task_of("classification", "matthews_corrcoef"), texts([0, 1]), [1, 1], [0]),
        (task_of("tagging", "f1", labels=("O", "B-X")), sentences([0, 0]), [(0, 0)], [0]),
        (task_of("regression", "pearson"), texts([0.0, 1.0] * 2), [0.0, 0.0, 1.0, 1.0], [0]),
    ],
)
@pytest.mark.filterwarnings("error")
def test_scores_against_hand_counts(task, gold, given, expected):
    found = Predicted(task, gold, given)
    scores = task.plugin.score(found)
    assert list(scores) == list(task.metrics)  # the main metric first
    assert list(scores.values()) == pytest.approx([100 * value for value in expected])


@pytest.mark.parametrize(
    ("gold", "given"),
    [([3.0] * 3, [0.0, 1.0, 2.0]), ([0.0, 1.0, 2.0], [2.5] * 3), ([0.0], [2.0]), ([0.0, 1.0], NAN)],
)
@pytest.mark.filterwarnings("error")
def test_an_undefined_correlation_has_no_value(gold, given):
    task = task_of("regression", "spearman", "pearson")
    scores = task.plugin.score(Predicted(task, texts(gold), given))
    assert scores == {"spearman": None, "pearson": None}


@pytest.mark.parametrize(
    ("task", "examples", "expected"),
    [
        (task_of("classification"), texts([1, 0, 1, 1]), [1, 1, 1, 1]),
        (task_of("classification"), texts([1, 0]), [0, 0]),  # the first of equals
        (task_of("tagging"), sentences([1, 1, 0], [], [1]), [(1, 1, 1), (), (1,)]),
        (task_of("regression"), texts([1.0, 2.0]), None),
    ],
)
def test_the_most_frequent_label_is_the_baseline(task, examples, expected):
    assert task.plugin.baseline(examples) == expected


@pytest.mark.parametrize(
    ("gold", "given", "collapsed"),
    [
        ([1, 0, 1, 0], [1, 1, 1, 1], True),
        ([1, 0, 1, 0], [1, 1, 1, 0], False),
        ([0] * 70 + [1] * 70, [0] * 139 + [1], True),  # nearly all
        ([1, 1, 1], [1, 1, 1], False),  # and no other answer is right
    ],
)
def test_one_answer_to_all_is_marked(gold, given, collapsed):
    assert (constant_answer(given, gold) is not None) == collapsed


def test_scores_of_entities_by_type():
    labels = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
    own = task_of("tagging", "f1", labels=labels)
    gold = [[1, 2, 0, 3], [3, 4, 0]]
    answers = [[1, 2, 0, 0], [3, 0, 1]]
    given = Predicted(own, sentences(*gold), answers)
    found = pd.DataFrame(own.plugin.by_label(given)).T
    assert found.loc["PER", ["precision", "recall", "support"]].tolist() == [50.0, 100.0, 1.0]
    assert found.loc["LOC", ["precision", "recall", "support"]].tolist() == [0.0, 0.0, 2.0]
    # One of three found is right, of three that are there.
    assert metrics.entity_precision(given, gold) == pytest.approx(1 / 3)
    assert metrics.entity_recall(given, gold) == pytest.approx(1 / 3)


CLASSES = task_of("classification", labels=("bad", "good"))
TAGGED = task_of("tagging", labels=("DET", "NOUN", "VERB"))
QUESTION = QuestionExample("0", "who?", "Ada met Bob", ("Ada",), None, False)
ANSWER = SpanAnswer("Ada", "Ada", 0, 3, -1.0, -9.0)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            Predicted(CLASSES, texts([1]), [1], {"logits": np.log([[0.1, 0.9]])}),
            {"prediction": "good", "probabilities": {"bad": 0.1, "good": 0.9}, "label": "good"},
        ),
        (
            Predicted(task_of("regression"), [TextExample("0", "x", "y", None)], [float("nan")]),
            {"prediction": None},
        ),
        (
            Predicted(TAGGED, [TaggedExample("0", ("the", "dog"), (0, 1))], [(0, 2)]),
            {"words": ["the", "dog"], "prediction": ["DET", "VERB"], "label": ["DET", "NOUN"]},
        ),
        (
            Predicted(task_of("span"), [QUESTION], [ANSWER]),
            {"prediction": "Ada", "score": -1.0, "null_score": -9.0, "label": ["Ada"]},
        ),
    ],
)
def test_written_predictions(tmp_path, given, expected):
    write_predictions(str(tmp_path), "dev", given)
    assert read_predictions(tmp_path / "dev.jsonl") == [{"id": "0", **expected}]
    assert not list(tmp_path.glob("*.tmp*"))
    if given.task.kind == "span":  # the official files, too
        official = json.loads((tmp_path / "dev_predictions.json").read_text())
        assert official == {"0": expected["prediction"]}


def test_answers_to_glue_are_written_for_its_server(tmp_path):
    ids = ("10", "9", "2")  # as a shuffled data set gives them
    examples = [TextExample(name, "x", "y", None) for name in ids]
    for name, answers, lines in (
        ("rte", [0, 1, 1], ["2\tnot_entailment", "9\tnot_entailment", "10\tentailment"]),
        ("sts", [-0.5, 2.25, 5.5], ["2\t5.000", "9\t2.250", "10\t0.000"]),
    ):
        write_predictions(str(tmp_path), "test", Predicted(TASKS[name], examples, answers))
        written = (tmp_path / "test.tsv").read_text().splitlines()
        assert written == ["index\tprediction", *lines]


def result(task="cola", score=50.0, trial=0, rate=1e-4, init="pretrained", **more):
    metric = TASKS[task].metrics[0] if task in TASKS else "accuracy"
    split = TASKS[task].dev[0] if task in TASKS else "dev"
    setting = {"learning_rate": rate, "weight_decay_rate": 0.01, "num_train_epochs": 3.0}
    found = {"task": task, "kind": "classification", "setting": setting, "trial": trial}
    found |= {"seed": trial, "init": init, "model": "tiny", "main_metric": metric, "collapsed": {}}
    found |= {"objective": "replaced_token_detection", "scores": {split: {metric: score}}}
    found["hparams"] = {"encoder": named_size("convbert-small").to_json()}
    return found | {"folder": f"{task}/trial_{trial}"} | more


def trials(scores, **same):
    return [result(score=score, trial=trial, **same) for trial, score in enumerate(scores)]


def regression(score, trial=0, **more):
    scores = {"dev": {"spearman": score, "pearson": score}}
    return result("sts", trial=trial, scores=scores, **more)


def test_statistics():
    summary = summarize([50.0, 60.0, 40.0, 70.0])
    assert summary.pop("standard_error") == pytest.approx(12.9099 / 2, abs=1e-4)
    assert summary == {"median": 55.0, "mean": 55.0, "best": 70.0, "worst": 40.0}
    assert summarize([50.0]) == dict.fromkeys(("median", "mean", "best", "worst"), 50.0)
    summary = summarize([None, 60.0, 30.0])  # an undefined score counts as 0 beside others
    assert (summary["median"], summary["mean"], summary["worst"]) == (30.0, 30.0, 0.0)
    assert summarize([None, None]) == {}


@pytest.mark.parametrize(
    "settings",
    [
        # Of the highest median, not of the best run.
        [trials([90.0, 10.0, 10.0]), trials([30.0, 20.0, 20.0], rate=3e-4)],
        [
            [regression(score, i) for i, score in enumerate([None, None, 80.0])],
            [regression(score, i, rate=3e-4) for i, score in enumerate([10.0, 10.0, 10.0])],
            [regression(None, rate=1e-3)],
        ],
    ],
)
def test_the_best_setting_has_the_highest_median(settings):
    results = [run for runs in settings for run in runs]
    for ordered in (results, results[::-1]):
        (best,) = best_settings(group_results(ordered))
        assert best.setting["learning_rate"] == 3e-4


def test_the_average_is_of_the_medians_of_eight_tasks():
    assert {name: TASKS[name].metrics[0] for name in GLUE_TASKS} == AVERAGED
    runs = [run for task in GLUE_TASKS if task != "sts" for run in trials([0, 10, 80], task=task)]
    runs += [regression(score, trial) for trial, score in enumerate((30, 60, 90))]
    best = best_settings(group_results(runs))
    assert glue_average(best) == pytest.approx((7 * 10 + 60) / 8)
    assert glue_average(best[1:]) is None


def test_write_report(tmp_path):
    both = {"dev": {"matthews_corrcoef": 40.0}, "test": {"matthews_corrcoef": 30.0}}
    runs = [
        result(scores=both, baselines={"dev": 0.0}),
        result(score=44.0, trial=1),
        result(score=0.0, trial=2, collapsed={"dev": "every prediction is '1'"}),
        result(score=20.0, rate=3e-4),
        *trials([10.0, 20.0], init="random"),
        regression(None),
        result("a|b", 70.0, setting={"doc_stride": 64, "how": "x"}, model=None),
    ]
    for number, content in enumerate(runs):
        run = tmp_path / content["task"] / f"setting{number}" / f"trial_{content['trial']}"
        run.mkdir(parents=True)
        (run / "result.json").write_text(json.dumps(content))
    (tmp_path / "sts" / "setting0" / "trial_7").mkdir(parents=True)
    (tmp_path / "sts" / "setting0" / "trial_7" / "task.json").touch()  # begun, not finished
    text = pathlib.Path(write_report(str(tmp_path))).read_text(encoding="utf-8")
    (table,) = (part.splitlines() for part in text.split("\n\n") if part.startswith("| "))
    names, _, *cells = [[x.strip() for x in line.strip("|").split(" | ")] for line in table]
    rows = [dict(zip(names, row, strict=True)) for row in cells]
    medians = [row["median"].strip("*") for row in rows]
    assert medians == ["40.0", "20.0", "15.0", "undefined", "70.0"]
    assert [row["median"][0] == "*" for row in rows] == [True, False, True, True, True]
    assert (rows[0]["mean"], rows[0]["most frequent label"]) == ("28.0 ± 14.0", "0.0")
    assert "59.4 ± 1.4 (mean" in rows[0]["published"]
    assert rows[0]["other medians"] == "test matthews_corrcoef 30.0"
    assert "doc_stride 64, how x" in rows[-1]["setting"]
    assert "cola trial 2 (dev: every prediction is '1')" in text
    assert "cola trial 2" in summary_line(runs)
    assert "sts/setting0/trial_7" in text
    assert f'convbert.load("{pathlib.Path("cola/setting1/trial_1")}")' in text
    table = pd.read_csv(tmp_path / "runs.csv", dtype=str, keep_default_na=False)
    assert len(table) == len(runs)
    assert {*table["scores.dev.matthews_corrcoef"]} >= {"40.0", ""}
    assert all((tmp_path / folder / "result.json").exists() for folder in table.folder)


@pytest.mark.parametrize(
    "row", [row for row in PUBLISHED if {*GLUE_TASKS} < {*row.scores}], ids=lambda row: row.size
)
def test_the_average_is_that_of_the_eight_tasks(row):
    """The papers' averages match their cells, so no cell was copied wrongly."""
    mean = sum(row.scores[task] for task in GLUE_TASKS) / 8
    assert mean == pytest.approx(row.scores["average"], abs=0.051)


def test_published_figures_are_those_of_the_same_architecture():
    run, other = result(), named_size("convbert-small").replace(span_kernel="key")
    assert len(published_rows(run)) > 1
    assert not published_rows(run | {"hparams": {"encoder": other.to_json()}})
