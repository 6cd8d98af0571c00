"""Baselines, statistics, the choice of settings, the report's files, and the GLUE archive."""

import json
import pathlib
import zipfile

import pandas
import pytest

from common.errors import InputError
from finetune.declaration import GLUE_TASKS, TASKS
from finetune.kinds.predicted import baseline, draws
from finetune.kinds.span import QuestionExample
from finetune.published import PUBLISHED, published_rows
from finetune.report import compare, report_text, write_report
from finetune.results import AVERAGED_METRICS as AVERAGED
from finetune.results import best_settings, glue_average, group_results, summarize
from finetune.squad import SpanAnswer
from finetune.submission import SERVER_FILES, write_glue_archive
from model.architectures import named_size
from tests.finetune.kinds_support import predicted, sentences, task_of, texts

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
        "objective": "replaced_token_detection",
        "hparams": {"encoder": named_size("convbert-small").to_json()},
        "main_metric": metric,
        "scores": {split: {metric: score}},
        "collapsed": {},
        "steps": 10,
        "seconds": 1.5,
        "folder": f"{task}/trial_{trial}",
    } | more


def trials(scores, **same):
    return [result(score=score, trial=trial, **same) for trial, score in enumerate(scores)]


def write_run(folder, setting, content):
    run = folder / content["task"] / setting / f"trial_{content['trial']}"
    run.mkdir(parents=True, exist_ok=True)
    (run / "result.json").write_text(json.dumps(content))
    return run


def regression(score, trial=0, **more):
    own = {"main_metric": "spearman", "undefined": CONSTANT_GOLD if score is None else {}}
    scores = {"dev": {"spearman": score, "pearson": score}}
    return result("sts", trial=trial, scores=scores, **own, **more)


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


def test_averages_are_of_eight_tasks_by_the_statistic_and_the_metrics_asked_for():
    assert {name: TASKS[name].metrics[0] for name in GLUE_TASKS} == AVERAGED
    scores = [{"dev": {"pearson": p, "spearman": s}} for p, s in ((10, 30), (20, 60), (60, 90))]
    runs = [run for task in GLUE_TASKS if task != "sts" for run in trials([0, 10, 80], task=task)]
    runs += [result("sts", trial=i, scores=found) for i, found in enumerate(scores)]
    best = best_settings(group_results(runs))
    assert glue_average(best) == pytest.approx((7 * 10 + 60) / 8)
    assert glue_average(best, "mean") == pytest.approx((7 * 30 + 60) / 8)
    assert glue_average(best, "best", {"sts": "pearson"}) == pytest.approx((7 * 80 + 60) / 8)
    assert glue_average(best[1:]) is None


def test_write_report(tmp_path):
    both = {"dev": {"matthews_corrcoef": 40.0}, "test": {"matthews_corrcoef": 30.0}}
    runs = [
        result(scores=both),
        result(score=44.0, trial=1),
        result(score=0.0, trial=2, collapsed={"dev": "every prediction is '1'"}),
        result(score=20.0, rate=3e-4),
        *trials([10.0, 20.0], init="random"),
        regression(None),
        regression(None, trial=1),
        result("a|b", 70.0, setting={"doc_stride": 64, "how": "x"}, model=None),
    ]
    for number, content in enumerate(runs):
        write_run(tmp_path, f"setting{number:02d}", content)
    (tmp_path / "sts" / "setting00" / "trial_7").mkdir(parents=True)
    text = pathlib.Path(write_report(str(tmp_path))).read_text(encoding="utf-8")
    tables = []
    for lines in (part.splitlines() for part in text.split("\n\n") if part.startswith("| ")):
        names, _, *rows = [[x.strip() for x in line.strip("|").split(" | ")] for line in lines]
        tables.append([dict(zip(names, row, strict=True)) for row in rows])
    rows, published, *_ = tables
    medians = [row["median"].strip("*") for row in rows]
    assert medians == ["40.0", "20.0", "15.0", "undefined", "70.0"]
    assert [row["median"][0] == "*" for row in rows] == [True, False, True, True, True]
    assert rows[0]["mean"] == "28.0 ± 14.0"
    cells = ("task", "ours", "published")
    assert [published[0][name] for name in cells] == ["cola", "28.0", "59.4 ± 1.4"]  # means
    assert rows[0]["other medians"] == "test matthews_corrcoef 30.0"
    assert "doc_stride 64, how x" in rows[-1]["setting"]
    assert "cola trial 2 (dev: every prediction is '1')" in text
    assert "sts dev spearman, pearson: every gold label is 3" in text
    assert "sts/setting00/trial_7" in text
    assert f'convbert.load("{pathlib.Path("cola/setting01/trial_1")}")' in text
    table = pandas.read_csv(tmp_path / "runs.csv", dtype=str, keep_default_na=False)
    assert len(table) == len(runs)
    assert {*table["scores.dev.matthews_corrcoef"]} >= {"40.0", ""}
    assert all((tmp_path / folder / "result.json").exists() for folder in table.folder)
    assert not list(tmp_path.glob("*.tmp*"))


RTD, MLM = "replaced_token_detection", "masked_lm"


def rows_of(size, objective, **changes):
    encoder = named_size(size).replace(**changes).to_json()
    run = {"init": "pretrained", "objective": objective, "hparams": {"encoder": encoder}}
    return published_rows(run)


def averages(size, objective, **changes):
    rows = rows_of(size, objective, **changes)
    return [row.scores["average"] for row in rows if "average" in row.scores]


@pytest.mark.parametrize(
    "row", [row for row in PUBLISHED if {*GLUE_TASKS} < {*row.scores}], ids=lambda row: row.size
)
def test_the_average_is_that_of_the_eight_tasks(row):
    """What the papers average, and that no cell was copied wrongly."""
    mean = sum(row.scores[task] for task in GLUE_TASKS) / 8
    assert mean == pytest.approx(row.scores["average"], abs=0.051)


def test_rows_are_of_an_architecture_and_an_objective():
    assert averages("convbert-medium-small", RTD) == [82.1, 82.8]
    assert averages("electra-small", RTD) == [79.7, 80.3, 81.1, 80.38, 76.8, 77.6]
    assert averages("bert-small", "self_critic") == [81.32]
    assert averages("bert-base", MLM) == [82.2, 86.4]
    assert averages("convbert-small", MLM) == [75.9]
    assert averages("bert-small", None) == averages("convbert-tiny", RTD) == []
    (race,) = rows_of("xlnet-base", "permutation_lm")
    assert race.scores == {"race_middle": 69.2}
    other = averages("convbert-small", RTD, vocab_size=99, hidden_dropout_prob=0.0)
    assert other == averages("convbert-small", RTD)


QUESTIONS = [
    QuestionExample("1", "q", "a b c", ("a b",), 0, False),
    QuestionExample("2", "q", "a b c", (), None, True),
]
SPANS = [SpanAnswer("a b", "a b", 0, 0, 0.0, -9.0, ())] * 2
VERSION_2 = task_of("span", "f1", "exact_match", version_2=True)


CLASSES = task_of("classification", "accuracy", "f1", "matthews_corrcoef")
MEAN = task_of("regression", "spearman")
TAGS = task_of("tagging", "token_accuracy", "f1", labels=("B-PER", "O"))
WORDS = sentences([1, 1, 0], [], [1])


@pytest.mark.parametrize(
    ("task", "examples", "name", "answer", "scores"),
    [
        (CLASSES, texts([1, 0, 1, 1]), "most frequent label", "yes", [75.0, 600 / 7, 0.0]),
        (CLASSES, texts([1, 0]), "most frequent label", "no", [50.0, 0.0, 0.0]),  # the first
        (MEAN, texts([1.0, 2.0, 4.5]), "mean", 2.5, [None]),  # which has no correlation
        (TAGS, WORDS, "most frequent tag", "O", [75.0, 0.0]),
        (VERSION_2, QUESTIONS, "no answer", "", [50.0] * 2),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_the_best_constant_answer(task, examples, name, answer, scores):
    given = SPANS if task is VERSION_2 else [x.tags if task is TAGS else x.label for x in examples]
    found = baseline(predicted(task, examples, given))
    low, high = found.pop("lead")
    assert low <= high
    assert [*found.pop("scores").values()] == [x and pytest.approx(x) for x in scores]
    assert found == {"name": name, "answer": answer}


@pytest.mark.parametrize(
    ("copies", "right", "above"),
    # Three right answers of three, where two of three have the label: chance does that often.
    [(1, 3, False), (100, 3, True), (100, 2, False)],
)
def test_a_few_examples_decide_nothing(copies, right, above):
    task, labels = task_of("classification", "accuracy"), [1, 1, 0]
    answers = labels if right == 3 else [1, 1, 1]
    given = predicted(task, texts(labels * copies), answers * copies)
    scores = {"dev": task.plugin.score(given)}
    run = result("wnli", scores=scores, baselines={"dev": baseline(given)})
    (group,) = group_results([run])
    assert ("not clearly above most" in report_text([group])) == (not above)


def test_an_undefined_baseline_counts_as_zero():
    task = task_of("regression", "spearman")
    gold = [1.0, 2.0, 3.0, 4.0] * 9
    for answers, told in ((gold, "mean"), (gold[::-1], "not clearly above mean")):
        given = predicted(task, texts(gold), answers)
        found = {"dev": task.plugin.score(given)}, {"dev": baseline(given)}
        (group,) = group_results([result("sts", scores=found[0], baselines=found[1])])
        assert compare(group) == f"{told} undefined, so 0"


def test_an_example_that_is_drawn_twice_counts_twice():
    """Scores of questions are by id."""
    task = VERSION_2
    examples = [*QUESTIONS, QuestionExample("3", "q", "a b c", ("a b",), 0, False)]
    given = predicted(task, examples, [SPANS[0]] * 3)
    found = {round(task.plugin.score(part)["f1"]) for part in draws(given, 99)}
    assert found == {0, 33, 67, 100}


def add_run(folder, task, score, predicted=None, *, trial=0, split="test", name="setting", **more):
    """A run's result and predictions, of (id, prediction)."""
    if "collapsed" in more:
        more["collapsed"] = {TASKS[task].dev[0]: more["collapsed"]}
    run = write_run(folder, name, result(task, score, trial, **more))
    (run / "predictions").mkdir(exist_ok=True)
    if predicted is not None:
        rows = [json.dumps({"id": str(i), "prediction": p}) + "\n" for i, p in predicted]
        (run / "predictions" / f"{split}.jsonl").write_text("".join(rows))


def archive(path):
    with zipfile.ZipFile(path) as file:
        return {name: file.read(name).decode() for name in file.namelist()}


def all_of(lines, prediction):
    return list(enumerate([prediction] * lines))


ZEROS, ONES = all_of(1063, "0"), all_of(1063, "1")  # of CoLA


def test_order_words_and_range(tmp_path):
    rte = [(i, "entailment" if i % 2 else "not_entailment") for i in range(3000)]
    add_run(tmp_path, "rte", 60.0, rte[::-1])  # as a shuffled data set gives them
    add_run(tmp_path, "sts", 80.0, [(i, (i % 8 - 1) / 1.1) for i in range(1379)])
    add_run(tmp_path, "cola", 40.0, ONES)
    for split, lines in (("test_matched", 9796), ("test_mismatched", 9847), ("diagnostic", 1104)):
        add_run(tmp_path, "mnli", 80.0, all_of(lines, "neutral"), split=split)
    contents = archive(write_glue_archive(str(tmp_path)))
    assert " ".join(sorted(contents)) == "AX.tsv CoLA.tsv MNLI-m.tsv MNLI-mm.tsv RTE.tsv STS-B.tsv"
    assert contents["AX.tsv"].splitlines()[-1] == "1103\tneutral"
    lines = contents["RTE.tsv"].splitlines()
    assert lines[:3] == ["index\tprediction", "0\tnot_entailment", "1\tentailment"]
    assert len(lines) == 3001
    scores = contents["STS-B.tsv"].splitlines()
    assert scores[1:4] == ["0\t0.000", "1\t0.000", "2\t0.909"]
    assert scores[8] == "7\t5.000"
    assert contents["CoLA.tsv"].endswith("1062\t1\n")


def test_the_run_that_is_taken_of_the_best_setting(tmp_path, capsys):
    """It has predicted the test set, and is not collapsed unless all are."""
    add_run(tmp_path, "cola", 60.0, ZEROS, name="d", collapsed="every prediction is '0'")
    write_glue_archive(str(tmp_path))
    assert "CoLA.tsv" in capsys.readouterr().err
    for trial, score in enumerate([10.0, 90.0, 20.0]):  # median 20
        add_run(tmp_path, "cola", score, ZEROS, trial=trial, name="a", rate=2e-4)
    for trial, (score, rows) in enumerate([(40.0, ZEROS), (50.0, ONES), (60.0, None)]):
        add_run(tmp_path, "cola", score, rows, trial=trial, name="b", rate=3e-4)
    add_run(tmp_path, "cola", 99.0, ZEROS, name="c", init="random")
    contents = archive(write_glue_archive(str(tmp_path)))
    assert contents["CoLA.tsv"].splitlines()[1] == "0\t1"
    said = capsys.readouterr()
    assert f"CoLA.tsv: {tmp_path / 'cola' / 'b' / 'trial_1'}" in said.out
    assert said.err == ""


def test_missing_files_are_named_or_filled(tmp_path, capsys):
    add_run(tmp_path, "cola", 40.0, ONES)
    write_glue_archive(str(tmp_path))
    said = capsys.readouterr().out
    names = [file.name for file in SERVER_FILES]
    assert all((name in said) == (name != "CoLA.tsv") for name in names[1:])
    contents = archive(write_glue_archive(str(tmp_path), fill_missing=True))
    assert "WNLI.tsv: FILLED with '0'" in capsys.readouterr().out
    assert list(contents) == names
    counts = {name: text.count("\n") - 1 for name, text in contents.items()}
    assert counts == {file.name: file.lines for file in SERVER_FILES}
    assert contents["STS-B.tsv"].splitlines()[1] == "0\t2.701"


@pytest.mark.parametrize(
    "runs",
    [
        {"cola": all_of(1062, "1")},
        {"cola": [(1, "1"), *ONES[1:]]},
        {"sts": all_of(1379, None)},
        {"cola": None},
        {"cola": None, "rte": None},
    ],
)
def test_what_the_server_would_reject(tmp_path, runs):
    for (task, rows), model in zip(runs.items(), ("tiny", "other")):
        add_run(tmp_path, task, 40.0, rows, model=model)
    with pytest.raises(InputError):
        write_glue_archive(str(tmp_path))
    assert not (tmp_path / "submission.zip").exists()
