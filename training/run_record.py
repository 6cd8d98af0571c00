"""File names in a model directory, and its record of settings."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
from typing import Any

from convbert.common import files, storage
from convbert.common.errors import InputError
from convbert.common.settings import differences

CHECKPOINT_FOLDER = "checkpoints"
HPARAMS_FILE = "hparams.json"
TASK_FILE = "task.json"  # of a fine-tuned model
RESULT_FILE = "result.json"  # of a finished fine-tuning
_PACKAGES = ("tensorflow", "tf_keras", "tensorflow-text", "tf-models-official", "numpy")


def read_record(model_dir: str) -> dict[str, Any]:
    """Reads and checks `hparams.json`: "hparams", "run_settings" and further objects."""
    path = os.path.join(model_dir, HPARAMS_FILE)
    record = {"run_settings": {}, **files.read_json(path)}
    for name in ("hparams", "run_settings"):
        if not isinstance(record.get(name), dict) or (name == "hparams" and not record[name]):
            expected = f"`{name}` should be an object of settings; the file is damaged"
            raise InputError(f"{path}: {expected}. Received: {record.get(name)!r}")
    return record


def trained_length(model_dir: str) -> int | None:
    """Returns `max_seq_length` of pre-training; None if that of a converted model is unknown."""
    record = read_record(model_dir)
    return (record["run_settings"].get("converted") or record["hparams"]).get("max_seq_length")


def describe_run(model_dir: str, hparams: dict[str, Any], run_settings: dict[str, Any]) -> None:
    """Writes `hparams.json` into a model directory, creating it if necessary.

    `hparams` are the resolved settings that change results; other settings are not compared.
    """
    storage.makedirs(model_dir)
    record = {
        "hparams": hparams,
        "run_settings": run_settings,
        "versions": {name: importlib.metadata.version(name) for name in _PACKAGES},
        "git_commit": git_commit(),
    }
    files.write_json(os.path.join(model_dir, HPARAMS_FILE), record)


def reject_other_run(folder: str, saved: dict[str, Any], now: dict[str, Any], advice: str) -> None:
    """Raises InputError with the differences and `advice` if a folder holds another run."""
    key = "plugins"  # compared by content, wherever the files are
    if sorted(saved.get(key, {}).values()) == sorted(now.get(key, {}).values()):
        saved, now = ({k: v for k, v in of.items() if k != key} for of in (saved, now))
    if changed := differences(saved, now):
        lines = "\n  ".join(changed)
        raise InputError(f"{folder} holds a run of another configuration:\n  {lines}\n{advice}")


def git_commit() -> str | None:
    """Returns this code's commit, with "-dirty" if files differ; None outside its repository."""
    folder, file = os.path.split(os.path.abspath(__file__))
    # An installed package may lie in a repository of the user's, which does not track this file.
    tracked = ["git", "ls-files", "--error-unmatch", file]
    describe = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    options: dict[str, Any] = {"cwd": folder, "capture_output": True, "text": True, "check": True}
    try:
        subprocess.run(tracked, **options)
        return subprocess.run(describe, **options).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
