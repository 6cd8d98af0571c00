"""A model card, `README.md`, from what a model directory already says of itself.

The form is Hugging Face's: YAML front matter, then Markdown.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import files
import storage
from data.manifest import read_manifest
from training.model_directory import CHECKPOINT_FOLDER, HPARAMS_FILE, RESULT_FILE, TASK_FILE
from training.monitoring import NO_METRICS, read_metrics

CARD_FILE = "README.md"
_MARK = "<!-- Written by a command; with any change it is yours and stays. "
_USE = ["    import convbert", "", "    model = convbert.load(FOLDER)  # of this file"]
_DIGEST = re.compile(r"[0-9a-f]{64}")


def write_card(model_dir: str, to: str = "") -> None:
    """Writes the card of a model, unless a person has changed the one that is there.

    Args:
        model_dir: of run_pretraining.py, run_finetuning.py or checkpoints.convert.
        to: folder for the card; by default `model_dir`.
    """
    path, text = os.path.join(to or model_dir, CARD_FILE), card(model_dir, to)
    if storage.exists(path):
        with storage.open(path, "rb") as file:
            before = file.read().decode("utf-8", errors="replace")
        own, _, digest = before.rpartition(_MARK)
        if before == text or not own or digest.strip() != _digest(own):
            return
    files.write_text(path, text)


def _digest(text: str) -> str:
    return f"{hashlib.sha256(text.encode()).hexdigest()[:16]} -->"


def card(model_dir: str, to: str = "") -> str:
    """The text of `write_card`; of paths it has the last parts."""
    record = _read(model_dir, HPARAMS_FILE)
    hparams, run = record.get("hparams", {}), record.get("run_settings", {})
    task, result = _read(model_dir, TASK_FILE), _read(model_dir, RESULT_FILE)
    name = task.get("name") or storage.abspath(model_dir).split(os.sep)[-1]
    size = result.get("model_size") or run.get("model_size") or hparams.get("model_size") or ""
    if task:
        about, tag = _fine_tuned(task, result, hparams), task["kind"]
    else:
        tag = hparams.get("objective", "replaced_token_detection")
        about = _pretrained(tag, hparams, run, read_metrics(model_dir))
    config = _read(model_dir, "config.json")
    kept = to or not record or storage.isdir(os.path.join(model_dir, CHECKPOINT_FOLDER))
    plain = config.get("token_mixer") == "attention"
    tags = [config.get("architecture") or ("transformer" if plain else "convbert"), tag]
    settings = {
        key: value
        for key, value in hparams.items()
        if not isinstance(value, dict | list | None) and not _DIGEST.fullmatch(str(value))
    }
    made_with = {**record.get("versions", {}), "commit": record.get("git_commit") or "unknown"}
    parts = {
        "Limits": _limits(config | _read(model_dir, "tokenizer_config.json"), hparams),
        "Use": _USE if kept else ["The weights were not kept."],
        "Settings": _table(("setting", "value"), settings.items()),
        "Made with": _table(("package", "version"), made_with.items()),
    }
    lines = ["---", "license: unknown  # fill in", "language: []  # fill in"]
    lines += ["library_name: tf-keras", f"tags: [{', '.join(tags)}]"]
    lines += [f"metrics: [{', '.join(task.get('metrics', ()))}]", "---", ""]
    lines += [f"# {name}", "", f"{size}, {about[0]}" if size else about[0], *about[1:]]
    for title, content in parts.items():
        lines += ["", f"## {title}", "", *content]
    text = "\n".join([*lines, "", ""])
    return f"{text}{_MARK}{_digest(text)}\n"


def _read(model_dir: str, name: str) -> dict[str, Any]:
    path = os.path.join(model_dir, name)
    return files.read_json(path) if storage.exists(path) else {}


def _fine_tuned(task: Mapping, result: Mapping, hparams: Mapping) -> list[str]:
    """What the card says of a fine-tuned model."""
    labels = ", ".join(f"`{label}`" for label in task.get("labels") or ())
    text = [f"fine-tuned on `{task['name']}` ({task['kind']}), seed {hparams.get('seed')}."]
    text += ["", "## Data", "", f"Files: {', '.join(sorted(_names(task.get('files'))))}."]
    if labels:
        text += [f"Labels: {labels}."]
    if not result:
        return text
    text += [f"{result['train_rows']:,} sequences of training, {result['steps']:,} steps."]
    rows = [
        (split, metric, _number(score), _number(_baseline(result, split).get(metric)))
        for split, scores in result["scores"].items()
        for metric, score in scores.items()
    ]
    text += ["", "## Scores", ""]
    text += _table(("split", "metric", "score", "baseline without learning"), rows)
    return [*text, "", "`report.md`, in the folder of all runs, has the medians of several."]


def _names(value: Any) -> Iterator[str]:
    """The last parts of the paths that a task declares."""
    if isinstance(value, str):
        yield f"`{os.path.basename(value)}`"
    elif value:
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _names(part)


def _baseline(result: Mapping, split: str) -> Mapping:
    return result.get("baselines", {}).get(split, {}).get("scores", {})


def _pretrained(
    objective: str, hparams: Mapping, run: Mapping, metrics: Sequence[Mapping]
) -> list[str]:
    """What the card says of a pre-trained model."""
    steps, batch = hparams.get("num_train_steps"), hparams.get("train_batch_size")
    if steps is None:  # a converted model
        text = ["a pre-trained encoder."]
    else:
        done = metrics[-1]["step"] if metrics else steps
        text = [f"pre-trained by `{objective}`: {done:,} of {steps:,} steps of {batch} sequences."]
    text += ["", "## Data", "", *_corpus(run.get("data_dir")), "", "## Scores", ""]
    measured = [row for row in metrics if row["split"] == "heldout"]
    if not measured:
        return [*text, "Not measured."]
    last = measured[-1]
    rows = [(name, _number(value)) for name, value in last.items() if name not in NO_METRICS]
    return text + _table(("held-out text", f"step {last['step']:,}"), rows)


def _corpus(data_dir: str | None) -> Iterator[str]:
    """Facts of a data folder, if it is still there."""
    manifest = read_manifest(data_dir) if data_dir else None
    if manifest is None:
        yield "Not recorded."
        return
    train = manifest["splits"]["train"]
    yield (
        f"`{os.path.basename(os.path.normpath(data_dir))}`: {train['documents']:,} documents, "
        f"{train['tokens']:,} tokens."
    )


def _limits(config: Mapping, hparams: Mapping) -> Iterator[str]:
    if length := hparams.get("max_seq_length"):
        yield f"- It was trained on at most {length} tokens at a time."
    if positions := config.get("max_position_embeddings"):
        yield f"- The network has {positions} positions."
    if pieces := config.get("vocab_size"):
        yield f"- The vocabulary has {pieces:,} pieces, of the language of the data."
    if config.get("do_lower_case"):
        yield "- Texts become lower case and lose their accents."
    yield "- Scores are of the data above. Measure on your own before you rely on it."


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _table(header: Iterable[str], rows: Iterable[Iterable[Any]]) -> list[str]:
    header = tuple(header)
    lines = [f"| {' | '.join(map(str, row))} |" for row in (header, *rows)]
    return [lines[0], f"|{'---|' * len(header)}", *lines[1:]]
