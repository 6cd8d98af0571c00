"""The GLUE archive: names, order, words and counts of the server."""

import json
import os
import zipfile

import pytest

from errors import InputError
from finetune.glue import TASKS
from finetune.submission import SERVER_FILES, write_glue_archive


def add_run(folder, task, score, predicted=None, *, trial=0, split="test", **more):
    """A run's result and predictions, of (id, prediction)."""
    run = folder / task / more.get("name", "setting") / f"trial_{trial}"
    os.makedirs(run / "predictions", exist_ok=True)
    metric, headline = TASKS[task].metrics[0], TASKS[task].dev[0]
    result = {
        "task": task,
        "setting": {"learning_rate": more.get("rate", 1e-4)},
        "trial": trial,
        "init": more.get("init", "pretrained"),
        "model": more.get("model", "tiny"),
        "main_metric": metric,
        "scores": {headline: {metric: score}},
        "collapsed": {headline: more["collapsed"]} if "collapsed" in more else {},
    }
    (run / "result.json").write_text(json.dumps(result))
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


def test_best_run_of_the_best_setting_that_predicted_the_test_set(tmp_path, capsys):
    for trial, score in enumerate([10.0, 90.0, 20.0]):  # median 20
        add_run(tmp_path, "cola", score, ZEROS, trial=trial, name="a", rate=1e-4)
    add_run(tmp_path, "cola", 40.0, ZEROS, trial=0, name="b", rate=3e-4)
    add_run(tmp_path, "cola", 50.0, ONES, trial=1, name="b", rate=3e-4)
    add_run(tmp_path, "cola", 60.0, None, trial=2, name="b", rate=3e-4)
    add_run(tmp_path, "cola", 99.0, ZEROS, name="c", init="random")
    contents = archive(write_glue_archive(str(tmp_path)))
    assert contents["CoLA.tsv"].splitlines()[1] == "0\t1"
    assert f"CoLA.tsv: {tmp_path / 'cola' / 'b' / 'trial_1'}" in capsys.readouterr().out


def test_a_collapsed_run_is_taken_only_where_all_are(tmp_path, capsys):
    collapsed = {"collapsed": "every prediction is '0'"}
    add_run(tmp_path, "cola", 60.0, ZEROS, trial=0, **collapsed)
    write_glue_archive(str(tmp_path))
    assert "CoLA.tsv" in capsys.readouterr().err

    add_run(tmp_path, "cola", 10.0, ONES, trial=0, name="lower", rate=3e-4)
    add_run(tmp_path, "cola", 99.0, ZEROS, trial=0, name="random", init="random")
    contents = archive(write_glue_archive(str(tmp_path)))
    assert contents["CoLA.tsv"].splitlines()[1] == "0\t1"
    assert capsys.readouterr().err == ""


def test_missing_files_are_named_or_filled(tmp_path, capsys):
    add_run(tmp_path, "cola", 40.0, ONES)
    write_glue_archive(str(tmp_path))
    said = capsys.readouterr().out
    names = [file.name for file in SERVER_FILES]
    assert all((name in said) == (name != "CoLA.tsv") for name in names[1:])
    contents = archive(write_glue_archive(str(tmp_path), fill_missing=True))
    assert "WNLI.tsv: FILLED with '0'" in capsys.readouterr().out
    assert list(contents) == names
    assert all(set(file.labels) == set(TASKS[file.task].labels) for file in SERVER_FILES)
    counts = {name: text.count("\n") - 1 for name, text in contents.items()}
    assert counts == {file.name: file.lines for file in SERVER_FILES}
    assert contents["STS-B.tsv"].splitlines()[1] == "0\t2.701"


@pytest.mark.parametrize(
    "runs",
    [
        {"cola": all_of(1062, "1")},
        {"cola": [(1, "1"), *ONES[1:]]},
        {"cola": all_of(1063, "acceptable")},
        {"sts": all_of(1379, None)},
        {"cola": None},
        {"cola": None, "rte": None},
    ],
)
def test_what_the_server_would_reject(tmp_path, runs):
    for (task, predicted), model in zip(runs.items(), ("tiny", "other")):
        add_run(tmp_path, task, 40.0, predicted, model=model)
    with pytest.raises(InputError):
        write_glue_archive(str(tmp_path))
    assert not (tmp_path / "submission.zip").exists()
