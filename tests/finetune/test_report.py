"""Statistics, the choice of settings, the report's files, and published figures."""

import json
import pathlib

import pandas
import pytest

from convbert.finetune.declaration import GLUE_TASKS, TASKS
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
from convbert.model.architectures import named_size


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
    table = pandas.read_csv(tmp_path / "runs.csv", dtype=str, keep_default_na=False)
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
