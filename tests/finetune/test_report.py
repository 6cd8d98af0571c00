"""Statistics, the choice of settings, averages, and the report's files."""

import csv
import io
import json
import pathlib

import pytest

from errors import InputError
from finetune.glue import GLUE_TASKS, TASKS
from finetune.report import report_text, summary_line, write_report
from finetune.results import (
    AVERAGED_METRICS,
    Summary,
    best_settings,
    glue_average,
    group_results,
    read_results,
)


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


def write_results(folder, results):
    for number, content in enumerate(results):
        run = folder / content["task"] / f"setting{number}" / f"trial_{content['trial']}"
        run.mkdir(parents=True)
        (run / "result.json").write_text(json.dumps(content))


def test_statistics():
    summary = Summary.of([50.0, 60.0, 40.0, 70.0])
    assert (summary.runs, summary.median, summary.mean) == (4, 55.0, 55.0)
    assert (summary.best, summary.worst) == (70.0, 40.0)
    assert summary.standard_error == pytest.approx(12.9099 / 2, abs=1e-4)
    assert Summary.of([50.0]).standard_error is None


def test_best_setting_is_that_of_the_highest_median_not_of_the_best_run():
    results = [result(score=s, trial=i, rate=1e-4) for i, s in enumerate([90.0, 10.0, 10.0])]
    results += [result(score=s, trial=i, rate=3e-4) for i, s in enumerate([30.0, 20.0, 20.0])]
    for in_some_order in (results, results[::-1]):
        (best,) = best_settings(group_results(in_some_order))
        assert best.setting["learning_rate"] == 3e-4
        assert best.headline.median == 20.0


def test_best_settings_of_pretrained_and_random_are_chosen_apart():
    results = [result(score=50.0), result(score=20.0, init="random")]
    assert [group.init for group in best_settings(group_results(results))] == [
        "pretrained",
        "random",
    ]


def test_average_is_of_the_eight_tasks_or_not_given():
    results = [result(task, 10.0 * number) for number, task in enumerate(GLUE_TASKS, 1)]
    average, missing = glue_average(best_settings(group_results(results)))
    assert average == pytest.approx(45.0)
    assert missing == []
    average, missing = glue_average(best_settings(group_results(results[1:])))
    assert average is None
    assert missing == [GLUE_TASKS[0]]
    assert "wnli" not in AVERAGED_METRICS


def test_average_takes_the_papers_metric_of_the_headline_split():
    scores = {"dev": {"pearson": 10.0, "spearman": 30.0}}
    results = [result(task, 50.0) for task in GLUE_TASKS if task != "sts"]
    results.append(result("sts", main_metric="pearson", scores=scores))
    average, _ = glue_average(best_settings(group_results(results)))
    assert average == pytest.approx((7 * 50.0 + 30.0) / 8)


def test_averaged_metrics_are_the_main_ones_of_the_tasks():
    assert {name: TASKS[name].metrics[0] for name in GLUE_TASKS} == AVERAGED_METRICS


def test_a_collapsed_run_is_named_and_counted():
    collapsed = result(score=0.0, trial=1, collapsed={"dev": "every prediction is '1'"})
    results = [result(score=40.0), collapsed, result(score=50.0, trial=2)]
    text = report_text(group_results(results))
    assert "| 3 | **40.0** | 30.0 | 15.3 | 50.0 | 0.0 | 1 |" in text
    assert "trial 1 (seed 1): dev: every prediction is '1'" in text
    assert "1 of 3 runs collapsed: cola trial 1" in summary_line(results)
    assert "ollapsed runs" not in report_text(group_results(results[:1]))


def test_report_shows_the_published_figure_with_its_source():
    text = report_text(group_results([result(score=40.0), result(score=1.0, init="random")]))
    assert "| 59.4 [1] |" in text
    assert "[1] ConvBERT author response, Table 6 (mean; RTD, 32 GB, 1M updates)" in text
    random_row = next(line for line in text.splitlines() if "| random |" in line)
    assert random_row.endswith("| - |")


def test_report_says_which_tasks_the_average_lacks():
    text = report_text(group_results([result()]))
    assert "not given, sst, mrpc, sts, qqp, mnli, qnli, rte not run" in text
    assert "Average of the eight" not in report_text(group_results([result("own")]))


def test_comparison_with_random_weights():
    results = [result(score=s, trial=i) for i, s in enumerate([40.0, 50.0])]
    results += [result(score=s, trial=i, init="random") for i, s in enumerate([10.0, 20.0])]
    results += [result("rte", score=s, trial=i) for i, s in enumerate([55.0, 60.0])]
    results += [result("rte", score=s, trial=i, init="random") for i, s in enumerate([54.0, 57.0])]
    text = report_text(group_results(results))
    assert "| 15.0 (10.0 to 20.0, n = 2) | 45.0 (40.0 to 50.0, n = 2) | +30.0 | yes |" in text
    assert "| +2.0 | no |" in text
    assert "so in 1 of 2." in text
    assert "against random" not in report_text(group_results(results[:2]))


def test_write_report(tmp_path):
    both = {"dev": {"matthews_corrcoef": 40.0}, "test": {"matthews_corrcoef": 30.0}}
    write_results(
        tmp_path,
        [
            result(scores=both),
            result(score=44.0, trial=1),
            result(score=20.0, rate=3e-4),
            result("own", score=70.0, setting={"learning_rate": 1e-3, "doc_stride": 64}),
        ],
    )
    unfinished = tmp_path / "cola" / "setting0" / "trial_7"
    unfinished.mkdir()
    path = write_report(str(tmp_path))
    text = pathlib.Path(path).read_text(encoding="utf-8")
    assert text.startswith("# Fine-tuning results\n\n4 finished runs of 2 tasks")
    assert "1 unfinished run: `cola/setting0/trial_7`" in text
    assert "learning rate 0.0001, weight decay 0.01, epochs 3" in text
    assert "## All settings" in text
    assert "| cola | test matthews_corrcoef | tiny | pretrained | 1 | **30.0** | 30.0 | - |" in text

    rows = list(csv.DictReader(io.StringIO((tmp_path / "report.csv").read_text())))
    assert [row["split"] for row in rows] == ["dev", "test", "dev", "dev"]
    assert [row["best_setting"] for row in rows] == ["1", "1", "0", "1"]
    assert [row["runs"] for row in rows] == ["2", "1", "1", "1"]
    assert float(rows[0]["median"]) == 42.0
    assert rows[1]["standard_error"] == ""
    assert rows[3]["doc_stride"] == "64"
    assert rows[0]["doc_stride"] == ""
    runs = list(csv.DictReader(io.StringIO((tmp_path / "runs.csv").read_text())))
    assert [row["dev matthews_corrcoef"] for row in runs] == ["40.0", "44.0", "20.0", ""]
    assert runs[0]["folder"] == "cola/setting0/trial_0"
    assert (tmp_path / "report.png").read_bytes().startswith(b"\x89PNG")
    assert not list(tmp_path.glob("*.tmp*"))


def test_the_same_runs_give_the_same_report(tmp_path):
    results = [result(score=s, trial=i) for i, s in enumerate([40.0, 50.0, 45.0])]
    texts = []
    for name, order in (("a", results), ("b", results[::-1])):
        write_results(tmp_path / name, order)
        texts.append(pathlib.Path(write_report(str(tmp_path / name))).read_bytes())
    assert texts[0] == texts[1]


def test_refuses_a_folder_without_runs(tmp_path):
    with pytest.raises(InputError, match="should hold finished runs"):
        write_report(str(tmp_path))


def test_refuses_a_result_without_its_main_metric(tmp_path):
    write_results(tmp_path, [result(scores={"dev": {"accuracy": 1.0}})])
    with pytest.raises(InputError, match="matthews_corrcoef"):
        read_results(str(tmp_path))


def test_summary_line():
    results = [result(score=40.0), result(score=50.0, trial=1), result("rte", score=60.0)]
    assert summary_line(results) == (
        "cola 45.0 (matthews_corrcoef, median of 2 runs); rte 60.0 (accuracy, 1 run); "
        "one trial decides nothing, use --num_trials: rte"
    )
    all_eight = [result(task, 50.0) for task in GLUE_TASKS]
    assert "average of the eight tasks 50.0" in summary_line(all_eight)


# ---------------------------------------------------------------- undefined scores


def regression(score, trial=0, reason="every prediction is 2.5", **more):
    scores = {"spearman": score, "pearson": score}
    undefined = {"dev": dict.fromkeys(scores, reason)} if score is None else {}
    own = {"scores": {"dev": scores}, "undefined": undefined, "main_metric": "spearman"}
    return result("sts", trial=trial, **own, **more)


def test_an_undefined_score_counts_as_zero_beside_others():
    summary = Summary.of([None, 60.0, 30.0])
    assert (summary.median, summary.mean, summary.worst, summary.undefined) == (30.0, 30.0, 0.0, 1)
    assert Summary.of([None, None]) == Summary(2, None, None, None, None, None, 2)
    results = [regression(s, i) for i, s in enumerate([None, None, 80.0])]
    results += [regression(s, i, rate=3e-4) for i, s in enumerate([10.0, 10.0, 10.0])]
    results += [regression(None, rate=1e-3)]
    for in_some_order in (results, results[::-1]):
        (best,) = best_settings(group_results(in_some_order))
        assert best.setting["learning_rate"] == 3e-4


def test_a_report_survives_undefined_scores(tmp_path):
    gold = {"reason": "every gold label is 3"}
    results = [regression(None, i, **gold) for i in range(2)]
    results += [regression(None, init="random", **gold), result("rte", score=60.0)]
    write_results(tmp_path, results)
    text = pathlib.Path(write_report(str(tmp_path))).read_text(encoding="utf-8")
    assert "| sts | dev spearman | tiny | pretrained |" in text
    assert "| 2 | **undefined** | undefined | - | undefined | undefined |" in text
    assert "dev spearman, pearson: every gold label is 3, 2 runs" in text
    assert "sts undefined" in text.split("Average of the eight")[1]
    assert "against random" not in text
    rows = list(csv.DictReader(io.StringIO((tmp_path / "report.csv").read_text())))
    sts = next(row for row in rows if row["task"] == "sts")
    assert (sts["median"], sts["undefined"], sts["above_baseline"]) == ("", "2", "")
    runs = list(csv.DictReader(io.StringIO((tmp_path / "runs.csv").read_text())))
    assert "every gold label is 3" in runs[0]["undefined"]
    assert runs[0]["dev spearman"] == ""
    line = summary_line(results)
    assert "sts undefined (spearman, median of 2 runs)" in line
    assert "every gold label is 3" in line
