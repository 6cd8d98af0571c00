"""Which run of a folder is served, and model directories that cannot be."""

import json

import numpy as np
import pytest
import tensorflow as tf

from convbert.finetune.load import load_fine_tuned
from convbert.finetune.results import choose_run
from convbert.serving.load import load_model_directory
from tests.damage_support import cut, delete, each, edit
from tests.finetune.kinds_support import rejects
from tests.serving.support import fine_tuned, pretrained, save, task


def write_result(folder, score, trial, init="pretrained", **more):
    (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
    result = {"task": "own", "setting": {}, "trial": trial, "init": init, **more}
    result = {"main_metric": "accuracy", "scores": {"dev": {"accuracy": score}}, **result}
    (folder / "result.json").write_text(json.dumps(result))


def test_of_a_folder_of_runs_the_highest_score_is_taken(tmp_path, capsys):
    """Of all runs: of any setting, from random weights, too."""
    for setting, scores in (("lr1", [70, 72, 71]), ("lr2", [50, 74, 60])):
        for trial, score in enumerate(scores):
            write_result(tmp_path / f"a/{setting}/trial_{trial}", score, trial)
    (tmp_path / "a/lr2/trial_3").mkdir()
    assert choose_run(str(tmp_path))["folder"] == str(tmp_path / "a/lr2/trial_1")
    write_result(tmp_path / "a/random/trial_0", 74.2, 0, "random")
    capsys.readouterr()
    record = choose_run(str(tmp_path))
    assert record["folder"] == str(tmp_path / "a/random/trial_0")
    assert (record["init"], record["score"], record["metric"]) == ("random", 74.2, "accuracy")
    said = capsys.readouterr()
    assert "a/random/trial_0" in said.err
    assert said.out == ""  # where commands print answers


@pytest.mark.parametrize(
    "other",
    [
        {"task": "other"},
        {"model": "other"},
        {"main_metric": "f1", "scores": {"dev": {"f1": 50}}},
        {"scores": {"dev_b": {"accuracy": 50}}},
    ],
)
def test_runs_that_do_not_compare_are_named(tmp_path, other):
    write_result(tmp_path / "a/x/trial_0", 99, 0)
    write_result(tmp_path / "a/y/trial_0", 98, 0, **other)
    with rejects(tmp_path):
        choose_run(str(tmp_path))


def spoil_weights(folder):
    objective = load_fine_tuned(str(folder)).objective
    objective.head.dense.bias.assign([0.0, np.nan, np.inf])
    save(folder, tf.train.Checkpoint(objective=objective), "weights")


@pytest.mark.parametrize(
    ("change", "length", "named"),
    [
        (edit("tokenizer_config.json", do_lower_case=False), None, "tokenizer_config.json"),
        (each("checkpoints/*.data*", delete), None, "weights-7"),
        (spoil_weights, None, "dense/bias"),
        (edit("config.json", hidden_act="relu"), None, "config.json"),
        (edit("task.json", labels=["b", "a"]), None, "task.json"),
        (each("none", delete), 65, "max_seq_length"),
    ],
)
def test_runs_that_cannot_be_served(tmp_path, change, length, named):
    fine_tuned(tmp_path, task("classification"), num_hidden_layers=1)
    change(tmp_path)
    with rejects(named):
        load_model_directory(str(tmp_path), max_seq_length=length)


def test_pre_trained_models_that_cannot_be_served(tmp_path):
    pretrained(tmp_path)
    for folder, length in (("nothing", None), ("checkpoints", None), (".", 65)):
        with rejects():
            load_model_directory(str(tmp_path / folder), max_seq_length=length)
    each("checkpoints/*.index", cut)(tmp_path)
    with rejects():
        load_model_directory(str(tmp_path))
