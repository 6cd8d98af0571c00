"""Kills: whenever a run is stopped, it ends with the weights of one left alone.

    python -m pytest -m slow -s tests/test_faults.py

prints how runs ended; with MOMENTS=12, pre-training, a sweep and a build are stopped 60 times.
"""

import os
import shutil
import signal
import time

import pytest

from tests import test_run_finetuning
from tests.build_support import content
from tests.command_support import MADE_OF_A_MODEL, Command, building, making
from tests.damage_support import random_draw
from tests.pretraining_support import HPARAMS as DEFAULTS
from tests.pretraining_support import arguments, assert_same_run, build_data, run
from tests.test_run_finetuning import reviews  # noqa: F401  (fixtures)

MOMENTS = int(os.environ.get("MOMENTS", "3"))  # of each objective; five times as many of the others
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
WIDTHS = dict(DEFAULTS["model_hparam_overrides"])
XLNET = {name: value for name, value in WIDTHS.items() if name != "embedding_size"}
CONTIGUOUS = {"example_layout": "contiguous"}
OBJECTIVES = {
    **dict.fromkeys(("replaced_token_detection", "masked_lm", "self_critic"), ({}, {})),
    "causal_lm": ({"model_hparam_overrides": {**WIDTHS, "causal": True}}, CONTIGUOUS),
    "permutation_lm": ({"model_size": "xlnet-tiny", "model_hparam_overrides": XLNET}, CONTIGUOUS),
}


def interrupted(start, folder, count, check):
    """Sends so many of SIGNALS in turn, at random moments. A process that ends is started again,
    after a whole run under another name. `check` gets the names of an undisturbed run and of it."""
    draw, began = random_draw(), time.monotonic()
    assert start("whole").finish().returncode == 0
    longest, sent, runs = time.monotonic() - began, 0, 0
    while sent < count:
        runs, name, status = runs + 1, f"run{runs}", None
        while status != 0:
            left = (folder / name / ".lock").exists()  # by SIGKILL
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
            what = (sent, status, done.stderr)
            if status == 128 + number:
                assert f"stopped by {number.name}" in done.stderr, what
                assert "Traceback" not in done.stderr, what
                assert left or not (folder / name / ".lock").exists(), what
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

    def check(whole, name):
        assert_same_run(tmp_path / name, tmp_path / whole, 40)
        files = os.listdir(tmp_path / name / "checkpoints")
        assert not [file for file in files if "_temp" in file or ".tmp" in file]

    interrupted(start, tmp_path, MOMENTS, check)


@pytest.mark.slow  # needs two minutes
def test_a_sweep_at_any_moment(model_dir, reviews, tmp_path):  # noqa: F811  (fixtures)
    def start(name):
        line = test_run_finetuning.arguments(model_dir, reviews, tmp_path / name, num_trials=2)
        return Command("run_finetuning.py", *line, '--sweep={"learning_rate": [0.01, 0.005]}')

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
