"""Two systems and the n-gram baseline by one command, on a tiny text."""

from __future__ import annotations

import json
import pathlib
import random
import subprocess
import sys

import pytest

from examples import penn_treebank

ROOT = pathlib.Path(__file__).parents[2]
HPARAMS = {
    "num_train_steps": 4,
    "num_warmup_steps": 2,
    "train_batch_size": 2,
    "max_seq_length": 16,
    "embedding_size": 16,
    "save_checkpoints_steps": 2,
    "iterations_per_loop": 1,
    "model_hparam_overrides": {
        "hidden_size": 32,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
    },
}


def test_a_report_of_another_step_is_made_again(tmp_path, monkeypatch):
    def execute(*command):
        path = pathlib.Path(command[command.index("--output") + 1])
        path.write_text(json.dumps({"step": len(calls) + 7}))
        calls.append(path.name)

    calls = []
    monkeypatch.setattr(penn_treebank, "execute", execute)
    for step in (7, 7, 8):
        assert penn_treebank.measure(str(tmp_path), "data", 0, step) == {"step": step}
    assert calls == ["perplexity-0.json"] * 2


@pytest.mark.slow  # needs two minutes: every run is a process
def test_all_of_it_and_again(tmp_path):
    draw = random.Random(0)
    for name, count in (("train", 60), ("valid", 12)):
        lines = (" ".join(draw.choices("abcdefgh", k=draw.randrange(12))) for _ in range(count))
        (tmp_path / f"{name}.txt").write_text("\n".join(lines) + "\n")
    command = [sys.executable, "-m", "examples.penn_treebank", "--seeds=1", "--order=3"]
    command += [f"--train={tmp_path}/train.txt", f"--heldout={tmp_path}/valid.txt"]
    command += [f"--output_dir={tmp_path}/runs", "--hparams", json.dumps(HPARAMS)]
    for _ in range(2):
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=900, check=False
        )
        assert done.returncode == 0, done.stderr
        table = (tmp_path / "runs/table.md").read_text()
        assert done.stdout.endswith(table)
    assert "training is finished: step 4" in done.stderr + done.stdout
    rows = table.splitlines()
    assert [row.split(" | ")[1:3] for row in rows[2:4]] == [["1", "4"]] * 2
    for system in penn_treebank.SYSTEMS.values():
        folder = tmp_path / "runs" / f"{system.format(size='small')}-0"
        report = json.loads((folder / "perplexity-0.json").read_text())
        assert f"{report['perplexity']:.2f}" in table
        assert report["step"] == 4
