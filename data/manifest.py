"""The manifest of a data folder: counts, settings, vocabulary; written last.

A folder with `manifest.json` is finished. Folders built by the original ELECTRA code have none and
are read without it.
"""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any

from convbert.common import files, storage
from convbert.common.errors import InputError, located
from convbert.common.settings import typed

MANIFEST = "manifest.json"


def read_manifest(data_dir: str) -> dict[str, Any] | None:
    """Returns the manifest of a data folder, or None if it has none (as ELECTRA's folders)."""
    path = os.path.join(data_dir, MANIFEST)
    if not storage.exists(path):
        return None
    content = files.read_json(path)
    with located(path):
        for name, entry in typed("files", content.get("files", {}), dict[str, dict]).items():
            for field in ("records", "bytes"):
                typed(f"{field} of {name}", entry.get(field), int)
        typed("settings", content.get("settings", {}), dict)
    return content


def build_settings(data_dir: str) -> dict[str, Any]:
    """Returns the settings that a data folder was built with; {} without a manifest."""
    return (read_manifest(data_dir) or {}).get("settings", {})


def settings_digest(data_dir: str) -> str | None:
    """Returns the SHA-256 (hexadecimal) of a folder's build settings; None without a manifest."""
    settings = build_settings(data_dir)
    text = json.dumps(settings, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest() if settings else None


def reject_other_data(model_dir: str, record: dict[str, Any], data_dir: str) -> None:
    """Raises InputError if a model (record: hparams.json) was trained on other data."""
    given, trained = settings_digest(data_dir), record["hparams"].get("data")
    if None not in (trained, given) and trained != given:
        before = record["run_settings"].get("data_dir") or "a folder that is not recorded"
        raise InputError(
            f"{model_dir} holds a run on other data: --data_dir was {before} there, is {data_dir}"
            " now. Give the former, or another --model_dir (and --continue_from this one to start"
            " from its weights)"
        )
