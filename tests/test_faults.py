"""Kills and damaged files: whatever happens to a run, it ends with the weights of one left alone.

    python -m pytest -m slow -s tests/test_faults.py

prints the table: what was done, which files were named, how the run ended.
"""

from __future__ import annotations

import os
import random
import shutil
import time

import numpy as np
import pytest

from tests.build_support import content
from tests.command_support import Command
from tests.pretraining_support import arguments, build_data, checkpoint_tensors, metrics
from training.checkpointing import latest_checkpoint

STEPS, KEPT, KILLS = 120, 3, 4
HPARAMS = {
    "objective": "masked_lm",  # half as much to trace, which is what takes time
    "num_train_steps": STEPS,
    "save_checkpoints_steps": 5,  # so that many kills hit the writing of a checkpoint
    "iterations_per_loop": 5,
    "keep_checkpoint_max": KEPT,
}


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 16
    path.write_bytes(content)


def absolute(path):
    """As of a folder that was moved."""
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
    table, middle = [], None
    for moment in sorted(draw.sample(range(STEPS // 8, STEPS - 10), KILLS)):
        killed.wait_until(lambda moment=moment: last_step(tmp_path / "killed") >= moment)
        time.sleep(draw.uniform(0, 0.1))
        killed.kill()
        reached, left = last_step(tmp_path / "killed"), leftovers(tmp_path / "killed")
        table.append([f"SIGKILL at step {reached}", ", ".join(left), ""])
        if middle is None and reached > STEPS // 4:
            middle = shutil.copytree(tmp_path / "killed", tmp_path / "middle")
        killed = start(tmp_path / "killed")
    for process, name in ((whole, "whole"), (killed, "killed")):
        done = process.finish()
        assert done.returncode == 0, f"{name}: {done.stderr}"
    table[-1][2] = difference(tmp_path / "killed", tmp_path / "whole")

    names = list(FAULTS)
    for pair in zip(names[::2], [*names[1::2], None]):
        running = [(name, *begin(name, middle, tmp_path, start)) for name in pair if name]
        for name, damaged, before, process in running:
            table.append([name, *ending(name, damaged, before, process, tmp_path)])
    print()
    for what, named, end in table:
        print(f"| {what} | {named} | {end or 'resumed'} |")
    for what, _, end in table:
        assert end in ("", "the same", "rejected, nothing written"), what


def last_step(model_dir):
    return max((row["step"] for row in metrics(model_dir)), default=0)


def leftovers(model_dir):
    names = os.listdir(model_dir / "checkpoints")
    return sorted(name for name in names if "_temp" in name or ".tmp" in name)


def begin(name, middle, tmp_path, start):
    """Damages a copy of the run that was killed in the middle, and starts it again."""
    newest_faults, next_faults, list_fault, _ = FAULTS[name]
    folder = shutil.copytree(middle, tmp_path / name)
    checkpoints = folder / "checkpoints"
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
    files = [f"model.ckpt-{step}" for step, _, _ in damaged]
    if list_fault is not None:
        list_fault(checkpoints / "checkpoint")
    (folder / ".lock").unlink(missing_ok=True)  # of the process that was killed
    return files, content(folder), start(folder)


def ending(name, damaged, before, process, tmp_path):
    """The damaged checkpoints that were named, and how the run ended."""
    folder, expected = tmp_path / name, FAULTS[name][-1]
    done = process.finish()
    named = [file for file in damaged if f"{folder}/checkpoints/{file}" in done.stderr]
    if "Traceback" in done.stderr or done.returncode != expected:
        return ", ".join(named), f"exit status {done.returncode}: {done.stderr[-500:]}"
    if not named and damaged:
        return "", "the damage is not named"
    if expected:
        changed = content(folder) != before or len(named) < len(damaged)
        return ", ".join(named), "overwritten" if changed else "rejected, nothing written"
    return ", ".join(named), difference(folder, tmp_path / "whole")


def difference(model_dir, whole):
    """ "the same", or in what a finished run differs from the one that was left alone."""
    expected, found = (checkpoint_tensors(folder, STEPS) for folder in (whole, model_dir))
    assert len(expected) > 60
    if set(found) != set(expected):
        return "other variables"
    wrong = [name for name, value in expected.items() if not np.array_equal(found[name], value)]
    if wrong:
        return f"{len(wrong)} of {len(expected)} variables differ"
    rows = [metrics(folder) for folder in (whole, model_dir)]
    if rows[0] != rows[1]:
        return "other measurements"
    kept = len(list((model_dir / "checkpoints").glob("*.index")))
    if leftovers(model_dir) or kept != KEPT:
        return f"left behind: {os.listdir(model_dir / 'checkpoints')}"
    return "the same"
