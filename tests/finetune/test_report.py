"""Statistics, the choice of settings, averages, and the report's files."""

import json
import pathlib

import pandas
import pytest

from errors import InputError
from finetune.glue import GLUE_TASKS, TASKS
from finetune.report import summary_line, write_report
from finetune.results import (
    AVERAGED_METRICS,
    Summary,
    best_settings,
    glue_average,
    group_results,
    read_results,
)

# After an intended change of the layout, replace it by the file that the failed test names.
GOLDEN = pathlib.Path(__file__).with_name("report_golden.md")
CONSTANT_GOLD = {"dev": dict.fromkeys(("spearman", "pearson"), "every gold label is 3")}


def result(task="cola", score=50.0, trial=0, rate=1e-4, init="pretrained", **more):
    metric = TASKS[task].metrics[0] if task in TASKS else "accuracy"
    split = TASKS[task].dev[0] if task in TASKS else "dev"
    return {
        "task": task,
        "kind": "classification",
        "setting": {"learning_rate": rate, "weight_decay_rate": 0.01, "num_train_epochs": 3.0},
        "trial": trial,
        "seed": trial,
        "init": init,
        "model": "tiny",
        "model_size": "convbert-small",
        "main_metric": metric,
        "scores": {split: {metric: score}},
        "collapsed": {},
        "steps": 10,
        "seconds": 1.5,
    } | more


def trials(scores, **same):
    return [result(score=score, trial=trial, **same) for trial, score in enumerate(scores)]


def regression(score, trial=0, **more):
    own = {"main_metric": "spearman", "undefined": CONSTANT_GOLD if score is None else {}}
    scores = {"dev": {"spearman": score, "pearson": score}}
    return result("sts", trial=trial, scores=scores, **own, **more)


def constant_answer(answer, score, metric):
    return {"dev": {"name": "one answer", "answer": answer, "scores": {metric: score}}}


def runs_of_every_sort():
    """Collapsed and undefined ones, several settings, models, splits, baselines, odd names."""
    both = {"dev": {"matthews_corrcoef": 40.0}, "test": {"matthews_corrcoef": 30.0}}
    undefined = constant_answer("1", None, "matthews_corrcoef")
    runs = [
        result(scores=both, baselines=undefined),
        result(score=44.0, trial=1, baselines=undefined),
        result(score=0.0, trial=2, collapsed={"dev": "every prediction is '1'"}),
        result(score=20.0, rate=3e-4),
        *trials([10.0, 20.0], init="random"),
        *trials([55.0, 60.0], task="rte"),
        *trials([40.0, 50.0], task="rte", init="random"),
        regression(None, baselines=constant_answer(3.0, None, "spearman")),
        regression(None, trial=1),
        regression(-0.01, init="random"),
        result(
            "a|b",
            70.0,
            setting={"learning_rate": 1e-3, "doc_stride": 64, "how": "x"},
            model=None,
            model_size=None,
            baselines=constant_answer("c|d", 75.0, "accuracy"),
        ),
    ]
    other = {"model": "other", "model_size": "electra-small"}
    return runs + [result(task, 50.0 + i, **other) for i, task in enumerate(GLUE_TASKS)]


def write_results(folder, results):
    for number, content in enumerate(results):
        run = folder / content["task"] / f"setting{number:02d}" / f"trial_{content['trial']}"
        run.mkdir(parents=True)
        (run / "result.json").write_text(json.dumps(content))


def test_statistics():
    summary = Summary.of([50.0, 60.0, 40.0, 70.0])
    assert (summary.runs, summary.median, summary.mean) == (4, 55.0, 55.0)
    assert (summary.best, summary.worst) == (70.0, 40.0)
    assert summary.standard_error == pytest.approx(12.9099 / 2, abs=1e-4)
    assert Summary.of([50.0]).standard_error is None
    summary = Summary.of([None, 60.0, 30.0])  # an undefined score counts as 0 beside others
    assert (summary.median, summary.mean, summary.worst, summary.undefined) == (30.0, 30.0, 0.0, 1)
    assert Summary.of([None, None]) == Summary(2, None, None, None, None, None, 2)


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
    for in_some_order in (results, results[::-1]):
        (best,) = best_settings(group_results(in_some_order))
        assert best.setting["learning_rate"] == 3e-4


def test_best_settings_of_pretrained_and_random_are_chosen_apart():
    results = [result(score=50.0), result(score=20.0, init="random")]
    best = best_settings(group_results(results))
    assert [group.init for group in best] == ["pretrained", "random"]


def test_average_is_of_the_eight_tasks_or_not_given():
    results = [result(task, 10.0 * number) for number, task in enumerate(GLUE_TASKS, 1)]
    average, missing = glue_average(best_settings(group_results(results)))
    assert average == pytest.approx(45.0)
    assert missing == []
    average, missing = glue_average(best_settings(group_results(results[1:])))
    assert average is None
    assert missing == [GLUE_TASKS[0]]
    assert {name: TASKS[name].metrics[0] for name in GLUE_TASKS} == AVERAGED_METRICS


def test_average_takes_the_papers_metric_of_the_headline_split():
    scores = {"dev": {"pearson": 10.0, "spearman": 30.0}}
    results = [result(task, 50.0) for task in GLUE_TASKS if task != "sts"]
    results.append(result("sts", main_metric="pearson", scores=scores))
    average, _ = glue_average(best_settings(group_results(results)))
    assert average == pytest.approx((7 * 50.0 + 30.0) / 8)


@pytest.mark.parametrize("backwards", [False, True])
def test_write_report(tmp_path, backwards):
    runs = runs_of_every_sort()
    write_results(tmp_path, runs)
    if backwards:  # the same runs in other folders
        for name in ("cola", "rte"):
            (tmp_path / name).rename(tmp_path / f"z{name}")
    (tmp_path / "sts" / "setting00" / "trial_7").mkdir(parents=True)
    path = pathlib.Path(write_report(str(tmp_path)))
    assert path.read_text(encoding="utf-8") == GOLDEN.read_text(encoding="utf-8"), path

    scores = pandas.read_csv(tmp_path / "report.csv", dtype=str, keep_default_na=False)
    cola = scores[(scores.task == "cola") & (scores.model == "tiny")]
    columns = ["split", "best_setting", "runs", "median", "collapsed_runs"]
    found = [" ".join(row) for row in cola[columns].to_numpy()]
    assert found == ["dev 1 3 40.0 1", "test 1 1 30.0 1", "dev 0 1 20.0 0", "dev 1 2 15.0 0"]
    assert cola.standard_error.to_list()[1:] == ["", "", "5.0"]
    (sts,) = scores[(scores.metric == "pearson") & (scores.init == "pretrained")].itertuples()
    assert (sts.median, sts.undefined, sts.above_baseline) == ("", "2", "")
    assert scores.doc_stride.to_list()[-1] == "64"
    table = pandas.read_csv(tmp_path / "runs.csv", dtype=str, keep_default_na=False)
    assert len(table) == len(runs)
    assert {*table[table.model == "tiny"]["dev matthews_corrcoef"]} >= {"40.0", ""}
    assert all((tmp_path / folder / "result.json").exists() for folder in table.folder)
    (collapsed,) = table[table.collapsed != ""].itertuples()
    assert (collapsed.task, collapsed.trial) == ("cola", "2")
    assert (tmp_path / "report.png").read_bytes().startswith(b"\x89PNG")
    assert not list(tmp_path.glob("*.tmp*"))


def test_what_does_not_apply_is_left_out(tmp_path):
    write_results(tmp_path, [result("own", 70.0), result("own", 71.0, trial=1)])
    text = pathlib.Path(write_report(str(tmp_path))).read_text(encoding="utf-8")
    assert [line for line in text.splitlines() if line[:2] == "##"] == [
        "## Best setting of each task"
    ]
    assert "undefined" not in text


def test_what_is_no_folder_of_runs(tmp_path):
    with pytest.raises(InputError, match=str(tmp_path)):
        write_report(str(tmp_path))
    write_results(tmp_path, [result(scores={"dev": {"accuracy": 1.0}})])
    with pytest.raises(InputError, match=r"result\.json.*matthews_corrcoef"):
        read_results(str(tmp_path))


def test_summary_line():
    results = [result(score=40.0), result(score=50.0, trial=1), result("rte", score=60.0)]
    assert summary_line(results) == (
        "cola 45.0 (matthews_corrcoef, median of 2 runs); rte 60.0 (accuracy, 1 run); "
        "one trial decides nothing, use --num_trials: rte"
    )
    all_eight = [result(task, 50.0) for task in GLUE_TASKS]
    assert "average of the eight tasks 50.0" in summary_line(all_eight)
    line = summary_line(runs_of_every_sort())
    assert "1 of 22 runs collapsed: cola trial 2" in line
    assert "sts undefined (spearman, median of 2 runs" in line
    assert "sts dev spearman, pearson: every gold label is 3" in line
