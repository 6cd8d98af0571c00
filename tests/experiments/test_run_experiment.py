"""Experiments end to end."""

import dataclasses
import itertools
import json
import random
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from convbert.common.errors import InputError
from convbert.experiments import declaration, forecast, parts, report, runs
from convbert.model import flops
from convbert.pretrain.objectives.masked_lm import MaskedLMSettings
from tests.command_support import Command
from tests.command_support import run as run_command
from tests.finetune.kinds_support import declared_reviews
from tests.pretraining_support import HPARAMS, build_data

SMALL = {name: value for name, value in HPARAMS.items() if name != "num_train_steps"}
SMALL["objective"] = "masked_lm"  # half as much to trace
EPOCH = {"num_train_epochs": 1}
LOSS = {"score": "heldout loss", "lower_is_better": True}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("experiments")
    build_data(folder)
    declared_reviews(folder, 24, 12)
    (folder / "recipe.json").write_text(json.dumps({"about": {}, **SMALL}))
    write(folder)
    return folder


def write(folder, name="pair", scale=(), **changes):
    recipe = {"recipe": str(folder / "recipe.json")}
    attention = {"conv_type": "noconv", "head_ratio": 1}
    hour = {"hparams": SMALL, "steps": 6, "seeds": 2, "evaluations": 2, "checkpoints": 1}
    hour |= {"num_trials": 1, "recipe": "", "tasks": {str(folder / "own.json"): EPOCH}}
    better = {"better": "mixed", "than": "attention"}
    values = {
        "about": {"source": "a test"},
        "systems": {
            "mixed": {**recipe, "published": {"average": 80.0}},
            "attention": {**recipe, "hparams": attention},
        },
        "claims": [{**better, "score": "own", "published": 1.0}, {**better, **LOSS}],
        "scales": {"hour": {**hour, **dict(scale)}},
        **changes,
    }
    path = folder / f"{name}.json"
    path.write_text(json.dumps(values))
    return str(path)


def planned(path, output, folder):
    folders = {"output_dir": str(output), "tasks_dir": str(folder)}
    data_dirs = {"": str(folder / "data")}
    experiment = declaration.load(path, "hour", **folders, data_dirs=data_dirs)
    return experiment, parts.plan(experiment)


def execute(path, output, folder):
    experiment, found = planned(path, output, folder)
    parts.make_all(experiment, found)
    return report.write(experiment, found, "command").removesuffix("/report.md")


def results(folder):
    return pd.read_csv(f"{folder}/results.csv").drop(columns=["hours", "commit"])


@pytest.fixture(scope="module")
def whole(place):
    return execute(str(place / "pair.json"), place / "whole", place)


@pytest.mark.slow  # pre-trains and fine-tunes
def test_the_report(whole):
    frame = results(whole)
    assert frame.groupby(["system", "seed"]).ngroups == 4
    tuned = frame[frame["score"] == "own accuracy"]
    assert len(tuned) == 4
    assert {*tuned["trial"], *tuned["step"]} == {0, 6}
    commits = pd.read_csv(f"{whole}/results.csv")["commit"]
    assert commits.str[:10].nunique() == 1  # also of fine-tuning
    assert commits.notna().all()
    loss = frame[frame["score"] == "heldout loss"]
    assert sorted(loss["step"].unique()) == [3, 6]
    pair = loss[loss["step"] == 6].pivot(index="seed", columns="system", values="value")
    text = Path(f"{whole}/report.md").read_text()
    row = next(line for line in text.splitlines() if line.startswith("| mixed lower"))
    *_, shown, _, seeds, _ = [cell.strip() for cell in row.strip("|").split("|")]
    assert float(shown) == pytest.approx((pair["mixed"] - pair["attention"]).mean(), abs=2e-4)
    assert seeds == "2"
    assert "average 80" in text
    for name in ("curves.png", "scores.png"):
        assert Path(f"{whole}/{name}").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.slow  # needs twenty seconds: two pre-trainings
def test_recorded_results_count_as_done(place, whole, tmp_path, monkeypatch):
    """results.csv of another machine is enough; what is not in it is made, and what is, stays. A
    run that keeps more checkpoints is another one, with the same scores."""
    monkeypatch.setattr(runs.pretraining, "prepared", None)
    there = tmp_path / "pair-hour"
    shutil.copytree(whole, there)
    assert not parts.left(*planned(str(place / "pair.json"), tmp_path, place))
    execute(str(place / "pair.json"), tmp_path, place)
    found, recorded = (pd.read_csv(f"{folder}/results.csv") for folder in (there, whole))
    pd.testing.assert_frame_equal(found, recorded)
    monkeypatch.undo()
    systems = json.loads((place / "pair.json").read_text())["systems"]
    scale = {"seeds": 1, "num_trials": 2, "checkpoints": 2}
    path = write(place, "more", scale, systems={"mixed": systems["mixed"]}, claims=[])
    made, expected = results(execute(path, tmp_path, place)), results(whole)
    made, expected = made.drop(columns="source"), expected.drop(columns="source")
    accuracy = made[made["score"] == "own accuracy"]
    assert [*zip(accuracy["step"], accuracy["trial"])] == [(3, 0), (3, 1), (6, 0), (6, 1)]
    expected = expected[(expected["seed"] == 0) & (expected["system"] == "mixed")]
    heldout = ~made["score"].str.startswith("own")
    same = made[(made["trial"] != 1) & (heldout | (made["step"] == 6))].reset_index(drop=True)
    pd.testing.assert_frame_equal(same, expected.reset_index(drop=True))
    execute(write(place, "pair", {"seeds": 1}), tmp_path, place)  # less of what is recorded
    write(place)
    found = pd.read_csv(f"{there}/results.csv")
    assert (found["seed"] == 0).equals(found.pop("counts"))
    pd.testing.assert_frame_equal(found, recorded.drop(columns="counts"), check_like=True)


@pytest.mark.slow  # needs seven seconds: two pre-trainings
def test_a_diverging_run_does_not_stop_the_others(place, whole):
    recipe = {"recipe": str(place / "recipe.json")}
    systems = {"wild": {**recipe, "reduced": {"hour": {"learning_rate": 1e30}}}, "tame": recipe}
    claims = [{"better": "tame", "than": "wild", **LOSS}]
    path = write(place, "wild", {"seeds": 1, "tasks": {}}, systems=systems, claims=claims)
    found = execute(path, place / "whole", place)
    text = Path(f"{found}/report.md").read_text()
    assert "wild, seed 0: diverged" in text
    assert "not run" in text
    assert set(results(found)["system"]) >= {"tame"}


def test_the_best_of_a_grid_counts(place, tmp_path):
    """It is chosen for a system, not for each seed; a system may have another than the next."""
    tasks = {str(place / "own.json"): {**EPOCH, "grid": [{}, {"learning_rate": 1e-3}]}}
    experiment, found = planned(write(place, "grid", {"tasks": tasks}), tmp_path, place)
    first, low, high = [part.source for part in parts.parts(experiment, found[0])]
    assert len({first, low, high}) == 3
    values = {"a": {"low": (1, 9), "high": (6, 5)}, "b": {"low": (3, 3), "high": (2, 2)}}
    rows = [
        (f"{system}{seed}/{point}", system, seed, 6, score, trial, values[system][point][seed])
        for system, seed, point in itertools.product("ab", (0, 1), ("low", "high"))
        for trial, score in (("0", "own accuracy"), ("1", "own accuracy"))
    ]
    rows.append(("a0", "a", 0, 6, "heldout loss", "", 2.0))
    rows.append(("a0/low", "a", 0, 6, "own collapsed", "0", 1.0))
    rows.append(("b0/few", "b", 0, 6, "own accuracy", "0", 99.0))  # of one seed alone
    frame = pd.DataFrame(
        rows, columns=["source", "system", "seed", "step", "score", "trial", "value"]
    )
    best = report.best_of_grids(frame, "median")
    assert {*best["source"]} == {"a0", "a0/high", "a1/high", "b0/low", "b1/low"}
    assert report.errors_table(best)["own accuracy"].tolist() == ["5.5 ± 0.5", "3 ± 0"]
    nothing = Path(report.write(experiment, found, "command")).read_text()  # is made so far
    assert nothing.count("not finished") == len(found)
    made = [(first, "heldout loss", "", 1), (low, "own accuracy", 0, 3)]
    made.append((high, "own accuracy", 0, 5))
    rows = pd.DataFrame(made, columns=["source", "score", "trial", "value"])
    rows.assign(step=6, flops=1, hours=1).to_csv(f"{experiment.folder}/results.csv", index=False)
    text = Path(report.write(experiment, found, "command")).read_text()
    assert re.search(r'best setting *\| {"learning_rate": 0.001}', text)
    kept = pd.read_csv(f"{experiment.folder}/results.csv").fillna("").sort_values("value")
    assert kept["setting"].tolist() == ["", "{}", '{"learning_rate": 0.001}']
    assert kept["counts"].tolist() == [True, False, True]


def test_settings_that_save_memory(place, tmp_path):
    """They rename no run; a limit above the batch is the batch, which another one divides."""
    experiment, found = planned(str(place / "pair.json"), tmp_path, place)
    for limit, size in ((2, 2), (64, 4)):
        given = {"micro_batch_size": limit, "rematerialize": True}
        run = runs.plan(dataclasses.replace(experiment, run_values=given))[0]
        settings = run.command.run_settings
        assert (settings.micro_batch_size, settings.rematerialize) == (size, True)
        assert run.source == found[0].source
    line = [*arguments_of(place, tmp_path), "--dry_run", "--micro_batch_size=3"]
    assert "micro_batch_size" in run_command(*line, status=1).stderr


def test_what_is_suspicious_is_noted(place, tmp_path):
    """A loss that stays where the warm-up left it; what diverged after pre-training."""
    experiment, found = planned(str(place / "pair.json"), tmp_path, place)
    losses = {"mixed": (9.0, 6.0, 5.9, 5.8), "attention": (9.0, 6.0, 5.4, 5.9)}
    rows = [
        (system, 0, step, "heldout masked_lm_loss", "", loss)
        for system, of in losses.items()
        for step, loss in zip((1, 2, 4, 6), of)
    ]
    names = ["system", "seed", "step", "score", "trial", "value"]
    frame = pd.DataFrame(rows, columns=names).assign(source="a")
    runs.fail([*parts.parts(experiment, found[1])][1].folder, "why")
    said = [line for line in report.notes(experiment, found, frame[::-1]) if "seed 0" in line]
    systems = [line.split(",")[0] for line in said]
    assert systems == ["mixed", "mixed", "attention", "attention"]
    assert all("0 of 1 of own" in line for line in said[1::2])
    continued = [dataclasses.replace(run, start=run) for run in found]
    assert len([*report.notes(experiment, continued, frame)]) == len(said) + 1  # less of one
    assert (found[0].system, found[0].hparams.num_warmup_steps) == ("mixed", 2)


def test_bad_input_is_found_before_anything_runs(place, tmp_path):
    recipe = {"recipe": str(place / "recipe.json")}
    claim = {"better": "mixed", "than": "attention"}
    lists = {"rescoring": {"dev": "a", "test": "b"}}
    for changes, scale, words in (
        ({"sytems": {}}, {}, "systems"),
        ({"systems": {"mixed": {"recipes": ""}}}, {}, "`recipe`"),
        ({"systems": {"mixed": {**recipe, "hparams": {"mask_porb": 0.1}}}}, {}, "mask_prob"),
        ({}, {"stepz": 3}, "steps"),
        ({}, {"steps": 2}, "num_warmup_steps"),
        ({}, {"hours": 1.0}, "one of"),
        ({}, {"measures": {"concentratoin": {}}}, "concentration"),
        ({}, {"measures": {"concentration": {"max_exmples": 5}}}, "max_examples"),
        ({}, {"measures": {"concentration": {}}}, "MRPC"),
        ({}, {"measures": {"rescoring": {"dev": "a"}}}, "`test`"),
        ({}, {"tasks": {"colla": {}}}, "cola"),
        ({}, {"tasks": {"cola": {}}}, "CoLA"),
        ({}, {"tasks": {"cola": {"num_epochs": 1}}}, "num_train_epochs"),
        ({}, {"tasks": {"cola": {"num_trials": 2}}}, "num_trials"),
        *(({}, {"tasks": {"cola": {"grid": of}}}, "grid") for of in ({}, [], [{}, {}])),
        ({"claims": [{**claim, "better": "mixd"}]}, {}, "mixed"),
        ({"claims": [{**claim, "scales": ["hours"]}]}, {}, "`hour`"),
        ({"claims": [{**claim, "score": "heldoot loss"}]}, {}, "`heldout`"),
        ({"claims": [claim]}, {}, "`average`"),  # of one task
        ({"claims": [{**claim, "score": "rescoring of it a b"}]}, {"measures": lists}, "of it"),
        ({"systems": {"mixed": {"hparams": {}}}}, {}, "recipe"),
    ):
        changes = changes if "systems" not in changes else {**changes, "claims": []}
        path = write(place, "bad", scale, **changes)
        with pytest.raises(InputError, match=words):
            planned(path, tmp_path / "out", place)
    with pytest.raises(InputError, match="convbert_table3"):
        declaration.load("convbert_tabel3", "hour")
    assert not (tmp_path / "out").exists()


def test_what_determines_a_run_names_it(place, tmp_path, monkeypatch):
    """Plug-ins do; the original's name of an objective does not; a start's settings are its own."""
    recipe = {"recipe": str(place / "recipe.json")}
    (place / "steps.json").write_text(json.dumps({"learning_rate": 1e-3}))
    short = {n: of for n, of in SMALL.items() if n in ("num_warmup_steps", "train_batch_size")}
    values = {n: of for n, of in SMALL.items() if n not in (*short, "objective")}
    of_system = {**recipe, "hparams": {**values, "electra_objective": False}}
    more = {"recipe": str(place / "steps.json"), "continue_from": "mixed", "steps_factor": 2.0}
    path = write(
        place, "named", {"hparams": short}, systems={"mixed": of_system, "more": more}, claims=[]
    )
    first, then = planned(path, tmp_path, place)[1][:2]
    assert then.hparams.objective == first.hparams.objective
    assert (first.steps, then.steps) == ((6,), (12,))
    plugin = {"plugins": {"my.py": "digest"}}
    monkeypatch.setattr(runs.plugins, "recorded", lambda: plugin)
    assert planned(path, tmp_path, place)[1][0].source != first.source


def test_tasks_are_told_apart_by_their_names(place, tmp_path, monkeypatch):
    """Two files may both be called task.json."""
    tasks = {}
    for name in ("alpha", "beta"):
        (tmp_path / name).mkdir()
        path = declared_reviews(tmp_path / name, 3, 3, name=name)
        tasks[shutil.move(path, f"{tmp_path}/{name}/task.json")] = EPOCH
    path = write(place, "twice", {"tasks": tasks}, claims=[])
    experiment, found = planned(path, tmp_path, place)
    result = {"trial": 0, "scores": {"dev": {"accuracy": 50.0}}, "main_metric": "accuracy"}
    monkeypatch.setattr(parts, "read_results", lambda folder: ([result], []))
    rows = [row for part in [*parts.parts(experiment, found[0])][1:] for row in part.rows()]
    assert [row[1] for row in rows] == ["alpha accuracy", "beta accuracy"]
    with pytest.raises(InputError, match="names"):
        planned(write(place, "same", {"tasks": {**tasks, "alpha": {}}}), tmp_path, place)


def test_what_determines_a_score_names_it(place, tmp_path, monkeypatch):
    """The content of files does, not where they are."""
    monkeypatch.chdir(place)

    def sources():
        measure = {"rescoring": {"dev": "lists", "test": "lists"}}
        path = write(place, "named", {"tasks": {"own.json": EPOCH}, "measures": measure})
        parts._digest_of_file.cache_clear()
        experiment, found = planned(path, tmp_path, place)
        return [part.source for part in parts.parts(experiment, found[0])]

    (place / "lists").write_text("{}")
    experiment, found = planned(str(place / "pair.json"), tmp_path, place)  # an absolute path
    model, tuned, measured = sources()
    assert [model, tuned] == [part.source for part in parts.parts(experiment, found[0])]
    (place / "lists").write_text("[]")
    *same, other = sources()
    assert same == [model, tuned]
    assert other != measured
    shutil.copytree(place, tmp_path / "elsewhere")
    monkeypatch.chdir(tmp_path / "elsewhere")
    parts._digest_of_files.cache_clear()
    assert sources() == [model, tuned, other]


def test_an_objective_whose_operations_are_unknown(place, tmp_path, monkeypatch):
    """It can have a budget of steps, not of FLOPs."""
    monkeypatch.setattr(MaskedLMSettings, "operations", lambda *given: flops.UNCOUNTED)
    experiment, found = planned(str(place / "pair.json"), tmp_path, place)
    assert np.isnan(found[0].flops())
    with pytest.raises(InputError):
        forecast.table(experiment, parts.left(experiment, found))
    with pytest.raises(InputError, match="masked_lm"):
        planned(write(place, "counted", {"steps": None, "flops": 1e9}), tmp_path, place)


def test_budgets_in_hours_and_flops(place, tmp_path, monkeypatch):
    """They replace the steps of the scale."""
    monkeypatch.setattr(runs, "seconds_per_step", lambda hparams, **how: 2.0)
    path = write(place, "budget", {"steps": None})
    file = json.loads(Path(path).read_text())
    scale = {n: of for n, of in file["scales"]["hour"].items() if n != "steps"}

    def runs_of(**budget):
        file["scales"]["hour"] = {**scale, **budget}
        Path(path).write_text(json.dumps(file))
        return planned(path, tmp_path, place)[1]

    assert {run.steps[-1] for run in runs_of(hours=1.0)} == {1800}
    for run in runs_of(flops=1e9):
        assert abs(run.flops() - 1e9) <= runs.flops_per_step(run.hparams) / 2


def test_the_forecast(place, tmp_path, monkeypatch):
    """Hours come from one measured step; a continued run counts its own steps only."""
    recipe = {"recipe": str(place / "recipe.json")}
    systems = {"first": recipe, "then": {**recipe, "continue_from": "first", "steps_factor": 1.5}}
    path = write(place, "long", {"steps": 3600}, systems=systems, claims=[])
    experiment, found = planned(path, tmp_path, place)
    monkeypatch.setattr(forecast, "seconds_per_step", lambda hparams: 2.0)
    text = forecast.table(experiment, parts.left(experiment, found))
    rows = [line.split("|") for line in text.splitlines()]
    hours = {row[1].strip(): row[5].strip() for row in rows if len(row) > 7}
    assert (float(hours["first"]), float(hours["then"])) == (2.0, 1.0)
    assert found[1].flops() == pytest.approx(1.5 * found[0].flops())
    monkeypatch.setattr(runs.Run, "trained", True)
    assert "pre-training" not in forecast.table(experiment, parts.left(experiment, found))


def arguments_of(place, output):
    arguments = ["run_experiment.py", f"--experiment={place / 'pair.json'}"]
    arguments += [f"--data_dir={place / 'data'}", f"--tasks_dir={place}"]
    return [*arguments, f"--output_dir={output}"]


def test_flags_that_name_nothing(place, tmp_path):
    line = [*arguments_of(place, tmp_path), "--dry_run"]
    assert "mixed" in run_command(*line, "--only=mixd", status=1).stderr
    assert "a, b" in run_command(*line, "--only=a, b", status=1).stderr  # is one name
    assert "NAME=FOLDER" in run_command(*line, "--data_dir=a,b", status=1).stderr


@pytest.mark.slow
def test_two_processes_share_the_runs(place, whole, tmp_path):
    both = [Command(*arguments_of(place, tmp_path)) for _ in range(2)]
    ends = [command.finish() for command in both]
    assert [end.returncode for end in ends] == [0, 0]
    made = [(end.stdout + end.stderr).count("step 6: ") for end in ends]
    assert min(made) > 0
    assert sum(made) == 4
    pd.testing.assert_frame_equal(results(tmp_path / "pair-hour"), results(whole))


@pytest.mark.slow
def test_killed_at_random_moments(place, whole, tmp_path):
    arguments = arguments_of(place, tmp_path)
    draw, killed = random.Random(0), 0
    for _ in range(5):
        command = Command(*arguments)
        command.wait_until(command.has_begun)
        try:
            command.process.join(draw.uniform(1, 8))
            killed += command.process.is_alive()
        finally:
            command.kill()
    assert killed == 5
    done = Command(*arguments).finish()
    assert done.returncode == 0, done.stderr
    pd.testing.assert_frame_equal(results(tmp_path / "pair-hour"), results(whole))
    reports = [Path(f"{of}/report.md").read_text() for of in (tmp_path / "pair-hour", whole)]
    one, other = (re.sub("(?m)^(    |Commits).*", "", text) for text in reports)
    assert one == other
