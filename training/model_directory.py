"""Names of what a model directory holds, and its record of settings. Needs no TensorFlow."""

from __future__ import annotations

import os
import subprocess
from typing import Any

import files
from errors import InputError

CHECKPOINT_FOLDER = "checkpoints"
HPARAMS_FILE = "hparams.json"
TASK_FILE = "task.json"  # of a fine-tuned model
RESULT_FILE = "result.json"  # of a finished fine-tuning


def read_record(model_dir: str) -> dict[str, Any]:
    """What `hparams.json` says: "hparams", "run_settings" and more.

    Raises:
        InputError: there is no such file, or it holds something else.
    """
    path = os.path.join(model_dir, HPARAMS_FILE)
    record = {"run_settings": {}, **files.read_json(path)}
    for name in ("hparams", "run_settings"):
        if not isinstance(record.get(name), dict) or (name == "hparams" and not record[name]):
            raise InputError(
                f"{path}: `{name}` should be an object of settings, so the file is damaged."
                f" Received: {record.get(name)!r}"
            )
    return record


def git_commit() -> str | None:
    """Commit of this code, with "-dirty" when files differ from it; None outside a repository."""
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
            cwd=os.path.dirname(os.path.abspath(__file__)),
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return described.stdout.strip()
