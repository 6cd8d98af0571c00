"""Hours of pre-training, and of a client's requests: memory, open files and pace stay level.

    SOAK_MINUTES=120 SOAK_OUTPUT=soak python -m pytest -m slow -s tests/test_soak.py

writes what was measured each ten seconds, and a picture of it, to the folder SOAK_OUTPUT.
"""

import contextlib
import os
import pathlib
import signal
import time

import numpy as np
import pandas as pd
import pytest

from convbert.analysis import pictures
from convbert.serving.export import export
from convbert.serving.load import load_model_directory
from convbert.training.monitoring import read_metrics
from tests.command_support import Command, Started
from tests.pretraining_support import arguments, build_data, run

MINUTES = float(os.environ.get("SOAK_MINUTES", "5"))
LEVEL = 0.02  # of the memory, after a warm-up of a quarter of the time
HPARAMS = {"model_size": "convbert-tiny", "train_batch_size": 16, "max_seq_length": 32}
HPARAMS |= {"num_train_steps": 10**8, "iterations_per_loop": 20}
HPARAMS |= {"save_checkpoints_steps": 500, "num_eval_steps": 4}
# A request each tenth of a second, of any number of texts of any length; some are edge cases.
CLIENT = """
import sys, time
import numpy as np
import convbert
model, end = convbert.load(sys.argv[1]), time.monotonic() + float(sys.argv[2])
draw, count = np.random.default_rng(0), 0
names = [name for name in model.signatures if name != "continue_text"]
while time.monotonic() < end:
    began = time.monotonic()
    texts = [" ".join(f"w{i}" for i in draw.integers(0, 70, n)) for n in
             draw.integers(0, 60, draw.integers(1, 17))]
    model.ask(names[count % len(names)], [text + " [MASK]" for text in texts])
    count += 1
    with open(sys.argv[3], "a") as file:
        file.write(f"{time.time()} {time.monotonic() - began}\\n")
    time.sleep(max(0, began + 0.1 - time.monotonic()))
"""

pytestmark = pytest.mark.slow  # needs SOAK_MINUTES each


def watched(pid: int) -> tuple[float, pd.DataFrame]:
    """When it began, and a process's memory [GiB], without files' pages, open files, threads."""
    rows, began = [], time.time()
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
        while (now := time.time()) < began + 60 * MINUTES:
            status = pathlib.Path(f"/proc/{pid}/status").read_text()
            fields = dict(line.split(":", 1) for line in status.splitlines())
            row = {"minutes": (now - began) / 60, "threads": int(fields["Threads"])}
            row["memory"] = int(fields["RssAnon"].split()[0]) / 2**20
            rows.append({**row, "files": len(os.listdir(f"/proc/{pid}/fd"))})
            time.sleep(min(10.0, MINUTES))
    return began, pd.DataFrame(rows)


def assert_level(name: str, found: pd.DataFrame, pace: pd.DataFrame) -> None:
    """Writes and draws what was found. The last quarter is as the one after the warm-up. The pace
    is of `minutes`, and the `seconds` of a step or request that ended then."""
    if output := os.environ.get("SOAK_OUTPUT"):
        os.makedirs(output, exist_ok=True)
        found.round(4).to_csv(f"{output}/{name}.csv", index=False)
        draw(f"{output}/{name}.png", found, pace)
    end, grown = found["minutes"].max(), []
    for column in ("memory", "files", "threads", "seconds"):
        rows = pace if column == "seconds" else found
        place = rows["minutes"] / end
        first, last = (rows[column][place.between(*of)] for of in ((0.25, 0.5), (0.75, 1)))
        print(f"{name}, {column}: {first.median():.4g}, then {last.median():.4g}")
        # Machines' own scatter of the pace is below this.
        limits = {"memory": first.median() * (1 + LEVEL), "seconds": 1.2 * first.median()}
        if not last.median() <= limits.get(column, first.max()):
            grown.append(column)
    assert grown == []


def draw(path: str, found: pd.DataFrame, pace: pd.DataFrame) -> None:
    figure, axes = pictures.panels(1, 3, 4, 2.6)
    pace = pace.groupby((100 * pace["minutes"] / found["minutes"].max()).round()).median()
    columns = {"memory": "memory [GiB]", "files": "open files"}
    columns["seconds"] = "step or request, s (median)"
    for axis, (column, label) in zip(axes[0], columns.items()):
        rows = pace if column == "seconds" else found
        axis.plot(rows["minutes"], rows[column], linewidth=1)
        axis.set(xlabel="minutes", ylabel=label, ylim=(0, 1.2 * rows[column][1:].max()))
    pictures.save(figure, path)


def test_pretraining(tmp_path):
    data = build_data(tmp_path, count=2000, num_shards=4, parts=4)
    line = arguments(data, tmp_path / "m", HPARAMS, defaults={}, do_eval=True)
    command = Command("run_pretraining.py", *line)
    began, found = watched(command.process.pid)
    command.send(signal.SIGTERM)
    done = command.finish()
    assert done.returncode == 128 + signal.SIGTERM, done.stderr
    rows = pd.DataFrame(read_metrics(str(tmp_path / "m")))
    rows = rows[rows["split"] == "train"]
    print(f"\n{rows['step'].max():,} steps")
    assert np.isfinite(rows["loss"]).all()
    pace = {"minutes": (rows["time"] - began) / 60}
    pace["seconds"] = rows["time"].diff() / rows["step"].diff()
    assert_level("pretraining", found, pd.DataFrame(pace))


def test_a_client(tmp_path):
    run(build_data(tmp_path), tmp_path / "m", {"num_train_steps": 10})
    export(load_model_directory(str(tmp_path / "m")), str(tmp_path / "saved"), "run")
    rows = tmp_path / "rows"
    client = Started(CLIENT, tmp_path / "saved", 60 * MINUTES, rows)
    began, found = watched(client.process.pid)
    status, _, error = client.ended()
    assert status == 0, error
    pace = pd.read_csv(rows, sep=" ", names=["minutes", "seconds"])
    print(f"\n{len(pace):,} requests")
    pace["minutes"] = (pace["minutes"] - began) / 60
    assert_level("client", found, pace)
