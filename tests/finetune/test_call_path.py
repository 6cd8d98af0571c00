"""How many files a reader passes through from the command to a task's head."""

import json

import pytest

from tests.call_path_support import longest_path
from tests.finetune.kinds_support import HPARAMS, REVIEW, declared, reviews

MOST_FILES = 6


@pytest.mark.slow  # needs twelve seconds: a run is traced by the interpreter
def test_few_files_lead_from_the_command_to_a_head(model_dir, tmp_path):
    lines = reviews(16).to_json(orient="records", lines=True).splitlines()
    task = declared(tmp_path, {"train": lines, "dev": lines}, REVIEW, "jsonl")
    hparams = json.dumps({**HPARAMS, "max_steps": 1})
    line = [f"--model_dir={model_dir}", f"--task={task}", f"--output_dir={tmp_path / 'runs'}"]
    line.append(f"--hparams={hparams}")
    head = "model/heads/task.py"
    path = longest_path(tmp_path, "run_finetuning.py", head, line, "training/loop.py")
    assert len(path) <= MOST_FILES
