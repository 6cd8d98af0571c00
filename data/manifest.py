"""The record of what a data folder holds: counts, settings, vocabulary; written last.

A folder with `manifest.json` is a finished one. Folders built by the original ELECTRA code have
none and are read without it.
"""

from __future__ import annotations

import collections
import hashlib
import importlib.metadata
import json
import os
from typing import Any

import files
import storage
from errors import InputError
from settings import differences

MANIFEST = "manifest.json"


def read_manifest(data_dir: str) -> dict[str, Any] | None:
    """The manifest of a data folder, or None where there is none (ELECTRA's own folders)."""
    path = os.path.join(data_dir, MANIFEST)
    return files.read_json(path) if storage.exists(path) else None


def listed_records(path: str, manifest: dict[str, Any] | None) -> int | None:
    """Record count of a file in its folder's manifest; None if not listed with its present size."""
    name = "/".join(storage.abspath(path).split(os.sep)[-2:])
    entry = (manifest or {}).get("files", {}).get(name)
    if entry is None or not storage.exists(path) or storage.getsize(path) != entry["bytes"]:
        return None
    return entry["records"]


def settings_digest(content: dict[str, Any] | None) -> str | None:
    """SHA-256 (hexadecimal) of a manifest's build settings, by which runs know their data.

    None where there is no manifest, or none in it: ELECTRA's folders do not say what is in them.
    """
    if content is None or "settings" not in content:
        return None
    settings = json.dumps(content["settings"], sort_keys=True)
    return hashlib.sha256(settings.encode()).hexdigest()


def manifest_trained_on(record: dict[str, Any]) -> dict[str, Any] | None:
    """The manifest of the data that a run was trained on; None where it is not there any more.

    Args:
        record: what the run's hparams.json holds.
    """
    trained = record["hparams"].get("data")
    folder = record["run_settings"].get("data_dir")
    content = read_manifest(folder) if folder else None
    return content if trained is not None and settings_digest(content) == trained else None


def reject_other_data(model_dir: str, record: dict[str, Any], data_dir: str) -> None:
    """Raises InputError where a model was trained on other data than a folder holds.

    Args:
        model_dir: the model directory, for the message.
        record: what its hparams.json holds.
        data_dir: the data folder given now.
    """
    content, trained = read_manifest(data_dir), record["hparams"].get("data")
    given = settings_digest(content)
    if None in (trained, given) or trained == given:
        return
    before = record.get("run_settings", {}).get("data_dir") or "a folder that is not recorded"
    found = manifest_trained_on(record)
    if found is not None:
        changed = differences(found["settings"], content["settings"])
        how = f"they differ in {'; '.join(changed)}"
    else:
        how = "what that held is no longer there to compare"
    raise InputError(
        f"{model_dir} holds a run on other data: --data_dir was {before} there, is {data_dir} now; "
        f"{how}. Give the former, or another --model_dir (and --continue_from this one to start "
        "from its weights)"
    )


def with_shares(counts: dict[str, int], max_seq_length: int) -> dict[str, Any]:
    """Adds to the counts of a split the shares of tokens kept, [UNK] and padding."""
    counts = collections.Counter(counts)
    names = ("documents", "lines", "characters", "tokens", "tokens_kept", "unknown_tokens")
    names += ("examples", "padding")
    names += ("words",) if "words" in counts else ()  # of the contiguous layout
    positions = counts["examples"] * max_seq_length
    return {
        **{name: counts[name] for name in names},
        "tokens_kept_share": counts["tokens_kept"] / max(1, counts["tokens"]),
        "unknown_token_share": counts["unknown_tokens"] / max(1, counts["tokens"]),
        "padding_share": counts["padding"] / max(1, positions),
    }


def package_version(package: str) -> str:
    """Version of an installed package."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def one_line(content: dict[str, Any]) -> str:
    """The numbers of examples of a manifest, in words."""
    return ", ".join(
        f"{counts['examples']:,} {split} examples" for split, counts in content["splits"].items()
    )


def listing(problems: dict[str, int]) -> str:
    """What a reader counted, in words."""
    return ", ".join(f"{n:,} {name.replace('_', ' ')}" for name, n in sorted(problems.items()))


def summary(output_dir: str, content: dict[str, Any]) -> str:
    """What was built, for the end of the command."""
    tokenizer = content["settings"]["vocabulary"]["tokenizer"]
    kind = "words" if tokenizer == "words" else "pieces"
    unknown = "[UNK]" if tokenizer == "wordpiece" else "<unk>"
    lines = [f"{output_dir}: vocabulary of {content['vocabulary_size']:,} {kind}"]
    for split, counts in content["splits"].items():
        lines.append(
            f"  {split:8} {counts['documents']:>11,} documents {counts['tokens']:>14,} tokens "
            f"({counts['tokens_kept_share']:.2%} kept, "
            f"{counts['unknown_token_share']:.2%} {unknown}) "
            f"{counts['examples']:>11,} examples ({counts['padding_share']:.1%} padding)"
        )
    if content["problems"]:
        lines.append(f"  skipped or repaired: {listing(content['problems'])}")
    if not content["splits"].get("heldout", {"examples": 1})["examples"]:
        lines.append("  nothing is held out: the corpus is too small for its --heldout_fraction")
    return "\n".join(lines)
