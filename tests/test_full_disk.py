"""An output's disk, read-only or full after any number of bytes: an error names the file.

    POINTS=10 python -m pytest -m slow -s tests/test_full_disk.py

Needs the right to mount a file system in memory, of 200 MB; without it the tests are skipped.
"""

import os
import shutil
import subprocess

import pytest

from tests.build_support import content
from tests.command_support import MADE_OF_A_MODEL, Command, building, making
from tests.damage_support import random_draw
from tests.pretraining_support import arguments, build_data, checkpoint_tensors, metrics, run
from tests.test_run_finetuning import arguments as finetuning_arguments
from tests.test_run_finetuning import results, reviews  # noqa: F401  (fixtures)

POINTS = int(os.environ.get("POINTS", "2"))
PAGE = 4096
HPARAMS = {"objective": "masked_lm", "num_train_steps": 20, "keep_checkpoint_max": 0}

pytestmark = pytest.mark.slow  # needs half a minute for each command


@pytest.fixture
def disk(tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=200m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("needs the right to mount a file system")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def filled(disk, command, state, tmp_path):
    """Runs a command with less space than it needs, then again with enough: the state of its
    folder should be that of a run that was left alone."""
    draw, whole = random_draw(), tmp_path / "whole"
    assert command(whole).finish().returncode == 0
    size = sum(-(-len(data) // PAGE) * PAGE for data in content(whole).values())
    failed = 0
    for number in range(POINTS):
        folder, filler = disk / f"run{number}", disk / "filler"
        status = os.statvfs(disk)
        space = draw.randrange(size // 2) if number == 0 else draw.randrange(size)
        with filler.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, status.f_bavail * status.f_bsize - space)
        done = command(folder).finish()
        assert done.returncode in (0, 1), (space, done.stderr)
        assert "Traceback" not in done.stderr, (space, done.stderr)
        if done.returncode:
            failed += 1
            assert str(disk) in done.stderr, (space, done.stderr)
            print(f"{space:,} of {size:,} bytes: {done.stderr.strip().splitlines()[-1]}")
        filler.unlink()
        again = command(folder).finish()
        assert again.returncode == 0, (space, again.stderr)
        assert state(folder) == state(whole), space
        shutil.rmtree(folder)
    print(f"{failed} of {POINTS} failed first")
    assert failed


def test_pretraining(disk, tmp_path):
    data = build_data(tmp_path)

    def command(folder):
        return Command("run_pretraining.py", *arguments(data, folder, HPARAMS, do_eval=True))

    def state(folder):
        tensors = checkpoint_tensors(folder, 20)
        return {name: value.tobytes() for name, value in tensors.items()}, metrics(folder)

    filled(disk, command, state, tmp_path)


def test_a_sweep(disk, tmp_path, model_dir, reviews):  # noqa: F811  (fixtures)
    def command(folder):
        line = finetuning_arguments(model_dir, reviews, folder, num_trials=2)
        return Command("run_finetuning.py", *line)

    filled(disk, command, results, tmp_path)


def test_data_building(disk, tmp_path):
    build_data(tmp_path, count=2000, parts=12)
    filled(disk, lambda folder: building(tmp_path, folder), content, tmp_path)


@pytest.mark.parametrize("form", MADE_OF_A_MODEL)
def test_what_is_made_of_a_model(form, disk, tmp_path):
    run(build_data(tmp_path), tmp_path / "model", HPARAMS)
    command = lambda folder: making(form, tmp_path / "model", folder)  # noqa: E731
    filled(disk, command, lambda folder: content(folder).keys(), tmp_path)


def test_a_read_only_disk(disk, tmp_path):
    data, model = build_data(tmp_path), disk / "model"
    run(data, model, HPARAMS)
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    before = content(disk)
    train = ["run_pretraining.py", *arguments(data, disk / "new", HPARAMS)]
    longer = ["run_pretraining.py", *arguments(data, model, HPARAMS | {"num_train_steps": 30})]
    export = ["export_savedmodel.py", f"--model_dir={model}"]
    predict = ["-m", "convbert.serving.predict", f"--model={model}"]
    build = ["build_pretraining_data.py", f"--corpus={tmp_path / 'data_corpus'}"]
    build += [f"--vocab={tmp_path / 'data_vocabulary'}", "--max_seq_length=32"]
    failing = [train, longer, [*export, f"--output_dir={disk / 'saved'}"]]
    failing += [[*predict, f"--output={disk / 'answers'}"], [*build, f"--output_dir={disk / 'd'}"]]
    failing.append(["run_pretraining.py", *arguments(data, model, HPARAMS)])  # which is finished
    for line in failing:
        done = Command(*line, text="w1 w2").finish()
        assert done.returncode == 1, (line, done.stderr)
        assert "Traceback" not in done.stderr
        assert str(disk) in done.stderr
    evaluate = ["run_pretraining.py", *arguments(data, model, HPARAMS), "--nodo_train", "--do_eval"]
    for line in ([*export, f"--output_dir={tmp_path / 'saved'}"], predict, evaluate):
        done = Command(*line, text="w1 w2").finish()
        assert done.returncode == 0, (line, done.stderr)
    assert "heldout: " in done.stderr  # of the evaluation
    assert content(disk) == before
