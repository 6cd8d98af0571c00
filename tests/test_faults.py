"""Kills and damaged files: whatever happens to a run, it ends with the weights of one left alone.

    python -m pytest -m slow -s tests/test_faults.py

prints the table: what was done, which files were named, how the run ended. With MOMENTS=12 in the
environment, pre-training, a sweep and data building are stopped 60 times each.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time

import pytest

from convbert.training.checkpointing import latest_checkpoint
from tests import test_run_finetuning
from tests.build_support import content
from tests.command_support import MADE_OF_A_MODEL, Command, building, making
from tests.damage_support import cut, flip
from tests.pretraining_support import HPARAMS as DEFAULTS
from tests.pretraining_support import arguments, assert_same_run, build_data, metrics, run
from tests.test_run_finetuning import model_dir, reviews  # noqa: F401  (fixtures)

GRID = {"learning_rate": [1e-2, 5e-3]}

STEPS, KEPT, KILLS = 120, 3, 4
HPARAMS = {
    "objective": "masked_lm",  # half as much to trace, which is what takes time
    "num_train_steps": STEPS,
    "save_checkpoints_steps": 5,  # so that many kills hit the writing of a checkpoint
    "iterations_per_loop": 5,
    "keep_checkpoint_max": KEPT,
}


def absolute(path):
    """Gives the paths of a folder that was moved."""
    path.write_text(path.read_text().replace('"model', '"/somewhere/else/checkpoints/model'))


INDEX, DATA = ".index", ".data-00000-of-00001"
# What is done to the newest checkpoint, and to the one before; to the list; the run's exit status.
FAULTS = {
    "data cut": ([(DATA, cut)], [], None, 0),
    "data flip": ([(DATA, flip)], [], None, 0),
    "index cut": ([(INDEX, cut)], [], None, 0),
    "index and list delete": ([(INDEX, os.unlink)], [], os.unlink, 0),
    "list delete": ([], [], os.unlink, 0),
    "list cut": ([], [], cut, 0),
    "list absolute": ([], [], absolute, 0),
    "two newest flip, data delete": ([(DATA, flip)], [(DATA, os.unlink)], None, 0),
    "all cut": ([(DATA, cut)], "all", None, 1),
}


@pytest.fixture
def start(tmp_path):
    """Starts the real command in a model directory."""
    data_dir = build_data(tmp_path, num_shards=3)
    return lambda folder: Command("run_pretraining.py", *arguments(data_dir, folder, HPARAMS))


@pytest.mark.slow  # needs two minutes: 16 processes train, two at a time
def test_a_run_ends_with_the_same_weights_whatever_happens(start, tmp_path):
    seed = int(os.environ.get("FAULTS_SEED", time.time_ns() % 2**32))  # other moments each time
    print(f"\nFAULTS_SEED={seed}")  # does it again
    draw = random.Random(seed)
    whole, killed = start(tmp_path / "whole"), start(tmp_path / "killed")
    middle = None
    for moment in sorted(draw.sample(range(STEPS // 8, STEPS - 10), KILLS)):
        killed.wait_until(lambda moment=moment: last_step(tmp_path / "killed") >= moment)
        time.sleep(draw.uniform(0, 0.1))
        killed.kill()
        reached = last_step(tmp_path / "killed")
        print(f"| SIGKILL at step {reached} | {', '.join(leftovers(tmp_path / 'killed'))} | |")
        if middle is None and reached > STEPS // 4:
            middle = shutil.copytree(tmp_path / "killed", tmp_path / "middle")
        killed = start(tmp_path / "killed")
    for process in (whole, killed):
        done = process.finish()
        assert done.returncode == 0, done.stderr
    assert_ended_as(tmp_path / "whole", tmp_path / "killed")

    names = list(FAULTS)
    for first in range(0, len(names), 2):
        pair = names[first : first + 2]
        running = [begin(name, middle, tmp_path / name, start) for name in pair]
        for name, begun in zip(pair, running, strict=True):
            assert_repaired(name, tmp_path, *begun)


def last_step(folder):
    return max((row["step"] for row in metrics(folder)), default=0)


def leftovers(folder):
    names = os.listdir(folder / "checkpoints")
    return sorted(name for name in names if "_temp" in name or ".tmp" in name)


def begin(name, middle, folder, start):
    """Damages a copy of the run that was killed in the middle, and starts it again."""
    newest_faults, next_faults, list_fault, _ = FAULTS[name]
    checkpoints = shutil.copytree(middle, folder) / "checkpoints"
    steps = sorted(int(path.stem.split("-")[1]) for path in checkpoints.glob("*.index"))
    while steps[-1] > int(latest_checkpoint(str(folder)).split("-")[-1]):
        steps.pop()  # the kill came while it was written
    if next_faults == "all":
        damaged = [(step, DATA, cut) for step in steps]
    else:
        damaged = [(steps[-1], *fault) for fault in newest_faults]
        damaged += [(steps[-2], *fault) for fault in next_faults]
    for step, part, damage in damaged:
        damage(checkpoints / f"model.ckpt-{step}{part}")
    if list_fault is not None:
        list_fault(checkpoints / "checkpoint")
    (folder / ".lock").unlink(missing_ok=True)  # of the process that was killed
    return {f"model.ckpt-{step}" for step, _, _ in damaged}, content(folder), start(folder)


def assert_repaired(name, tmp_path, damaged, before, process):
    """Damaged checkpoints are named, and the run ends as if nothing had happened, or untouched."""
    folder, status = tmp_path / name, FAULTS[name][-1]
    done = process.finish()
    named = {file for file in damaged if f"{folder}/checkpoints/{file}" in done.stderr}
    print(f"| {name} | {', '.join(sorted(named))} | {'rejected' if status else 'the same'} |")
    assert "Traceback" not in done.stderr
    assert done.returncode == status, done.stderr
    assert bool(named) == bool(damaged), done.stderr
    if status:
        assert named == damaged
        assert content(folder) == before
    else:
        assert_ended_as(tmp_path / "whole", folder)


def assert_ended_as(whole, folder):
    """Weights and measurements are those of the run that was left alone; nothing is left over."""
    assert_same_run(folder, whole, STEPS)
    assert len(list((folder / "checkpoints").glob("*.index"))) == KEPT
    assert not leftovers(folder)


# ---------------------------------------------------------------- every command, at any moment

MOMENTS = int(os.environ.get("MOMENTS", "3"))  # of each objective; five times as many of the others
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
WIDTHS = dict(DEFAULTS["model_hparam_overrides"])
XLNET = {name: value for name, value in WIDTHS.items() if name != "embedding_size"}
OBJECTIVES = {
    "replaced_token_detection": ({}, {}),
    "masked_lm": ({}, {}),
    "self_critic": ({}, {}),
    "causal_lm": (
        {"model_hparam_overrides": {**WIDTHS, "causal": True}},
        {"example_layout": "contiguous"},
    ),
    "permutation_lm": (
        {"model_size": "xlnet-tiny", "model_hparam_overrides": XLNET},
        {"example_layout": "contiguous"},
    ),
}


def interrupted(start, folder, count, check):
    """Sends processes SIGNALS in turn, at random moments; each is started again.

    Args:
        start: starts the command whose output is `folder / name`, given the name.
        count: of the signals. If a run ends before, the next is begun.
        check: called with the names of a run that nobody disturbed, and of a finished one.
    """
    seed = int(os.environ.get("FAULTS_SEED", time.time_ns() % 2**32))
    print(f"\nFAULTS_SEED={seed}")
    draw, began = random.Random(seed), time.monotonic()
    assert start("whole").finish().returncode == 0
    longest, sent, runs = time.monotonic() - began, 0, 0
    while sent < count:
        runs, name, status = runs + 1, f"run{runs}", None
        while status != 0:
            process, until = start(name), time.monotonic() + draw.uniform(0, longest)
            while sent < count and process.poll() is None and time.monotonic() < until:
                time.sleep(0.005)
            number = SIGNALS[sent % len(SIGNALS)]
            while number == signal.SIGINT and not process.has_begun():
                time.sleep(0.005)  # Python's own handler would raise KeyboardInterrupt
            if sent < count and process.poll() is None:
                process.send(number)
                sent += 1
            done = process.finish()
            status = done.returncode
            what = (seed, sent, status, done.stderr)
            if status == 128 + number:
                assert f"stopped by {number.name}" in done.stderr, what
                assert "Traceback" not in done.stderr, what
                assert not (folder / name / ".lock").exists(), what
            else:
                assert status in (0, -number), what
        check("whole", name)
    print(f"{sent} signals, {runs} runs")


@pytest.mark.slow  # needs half a minute each
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_pretraining_at_any_moment(objective, tmp_path):
    changes, options = OBJECTIVES[objective]
    hparams = {"objective": objective, "num_train_steps": 40, "iterations_per_loop": 2, **changes}
    data = build_data(tmp_path, **options)

    def start(name):
        line = arguments(data, tmp_path / name, hparams, do_eval=True)
        return Command("run_pretraining.py", *line)

    interrupted(
        start, tmp_path, MOMENTS, lambda a, b: assert_same_run(tmp_path / b, tmp_path / a, 40)
    )


@pytest.mark.slow  # needs two minutes
def test_a_sweep_at_any_moment(model_dir, reviews, tmp_path):  # noqa: F811  (fixtures)
    def start(name):
        line = test_run_finetuning.arguments(model_dir, reviews, tmp_path / name, num_trials=2)
        return Command("run_finetuning.py", *line, f"--sweep={json.dumps(GRID)}")

    def check(whole, name):
        expected = test_run_finetuning.results(tmp_path / whole)
        assert len(expected) == 4
        assert test_run_finetuning.results(tmp_path / name) == expected
        reports = [(tmp_path / of / "report.md").read_text() for of in (whole, name)]
        assert reports[0] == reports[1]

    interrupted(start, tmp_path, 5 * MOMENTS, check)


@pytest.mark.slow  # needs a minute
def test_data_building_at_any_moment(tmp_path):
    build_data(tmp_path, count=2000, parts=12)

    def check(whole, name):
        assert content(tmp_path / name) == content(tmp_path / whole)

    interrupted(lambda name: building(tmp_path, tmp_path / name), tmp_path, 5 * MOMENTS, check)


@pytest.mark.slow  # needs two minutes each
@pytest.mark.parametrize("form", MADE_OF_A_MODEL)
def test_exports_and_conversions_at_any_moment(form, tmp_path):
    """The output appears when it is complete."""
    run(build_data(tmp_path), tmp_path / "model", {"objective": "masked_lm", "num_train_steps": 4})

    def check(whole, name):
        found, expected = content(tmp_path / name), content(tmp_path / whole)
        assert found.keys() == expected.keys()
        if form not in ("savedmodel", "litert"):  # with names that differ each time
            assert found == expected

    def start(name):
        folder = tmp_path / name
        if folder.exists():  # it was stopped after that
            check("whole", name)
            shutil.rmtree(folder)
        return making(form, tmp_path / "model", folder)

    interrupted(start, tmp_path, 2 * MOMENTS, check)
