"""Tasks by name, declared in JSON by the fields of `Task`; the built-in ones are tasks.json."""

from __future__ import annotations

import os
import pathlib
import typing
from collections.abc import Sequence
from typing import Any

import storage
from errors import InputError, located
from files import read_json
from finetune import kinds
from finetune.kinds.base import Kind
from finetune.readers.lines import read_object
from finetune.task import Task
from settings import did_you_mean, field_names, reject_unknown, typed


def load_task(name_or_json_path: str) -> Task:
    """A built-in task by name (this project's or ELECTRA's spelling), or a user's by JSON file."""
    name = name_or_json_path.strip()
    if name.endswith(".json") or storage.isfile(name):
        return read(name)
    key = ALIASES.get(name.lower(), name.lower())
    if key in TASKS:
        return TASKS[key]
    raise InputError(
        f"The task should be one of {', '.join(TASKS)}, or the path of a JSON file that "
        f"declares a task. Received: {name_or_json_path!r}"
        f"{', a folder' if storage.isdir(name) else ''}."
        f"{did_you_mean(key, [*TASKS, *ALIASES])}"
    )


def load_tasks(names_or_json_paths: Sequence[str]) -> list[Task]:
    """`load_task` of each; InputError where two have the same name, and so the same results."""
    tasks = [load_task(name) for name in names_or_json_paths]
    first: dict[str, tuple[Task, str]] = {}
    for task, said in zip(tasks, names_or_json_paths):
        other, before = first.setdefault(task.name, (task, said))
        if task != other:
            raise InputError(
                f"{said}: each task should have a `name` of its own, which is that of the file if "
                f"the declaration gives none. Received: {task.name!r}, as {before} has"
            )
    return tasks


def read(path: str) -> Task:
    """Reads a declaration; its files may lie beside it, and its name is the file's by default."""
    values = read_object(path)
    folder = os.path.dirname(storage.abspath(path))
    stem = os.path.splitext(os.path.basename(path))[0]
    # ".json" has no stem; results would be in a hidden folder.
    values.setdefault("name", os.path.basename(folder) if stem.startswith(".") else stem)
    values.setdefault("folders", [folder])
    return parse(values, path)


def parse(values: dict[str, Any], where: str) -> Task:
    """The task of a JSON object; errors name `where` it comes from.

    Left out, `format` follows from the files' extension, `metrics` from the kind; `dev` and `test`
    are the splits in `files` whose names begin with "dev" or "val", and with "test".
    """
    with located(where):
        return _parsed(values)


def _parsed(values: dict[str, Any]) -> Task:
    reject_unknown(values, field_names(Task))
    values = {**dict.fromkeys(("name", "kind", "files")), **values}
    fields = {key: _typed(key, value) for key, value in values.items()}
    files, kind = fields["files"], kinds.get(fields["kind"])
    for key, beginnings in (("dev", ("dev", "val")), ("test", ("test",))):
        said = {fields.get("train"), *fields.get("dev", ()), *fields.get("test", ())}
        rest = (split for split in files if split.startswith(beginnings) and split not in said)
        fields.setdefault(key, tuple(rest))
    fields.setdefault("format", _format(fields, kind))
    fields.setdefault("metrics", kind.default_metrics)
    fields.setdefault("columns", {})
    return Task(**fields)


def _format(fields: dict[str, Any], kind: Kind) -> str | None:
    """The format by the extension of the training file; None, which Task rejects, of others."""
    name = fields["files"].get(fields.get("train", "train"), "")
    extension = os.path.splitext(name if isinstance(name, str) else name[0])[1].lower()
    return next((known for known, end in kind.formats.items() if end == extension), None)


def _typed(key: str, value: Any) -> Any:
    """The value of a field of `Task`, of its type; InputError names it."""
    if key == "labels" and isinstance(value, (list, tuple)):
        # [0, 1] means ["0", "1"]: in a file they look the same.
        value = [str(item) if type(item) is int else item for item in value]
    value = typed(key, value, _HINTS[key])
    if key == "per_split":
        return {split: _typed_layout(split, layout) for split, layout in value.items()}
    return value


def _typed_layout(split: str, layout: dict[str, Any]) -> dict[str, Any]:
    """What `per_split` says of a split, of its types."""
    reject_unknown(layout, [*_LAYOUT])
    return {n: typed(f"per_split[{split!r}][{n!r}]", v, _LAYOUT[n]) for n, v in layout.items()}


_HINTS = typing.get_type_hints(Task)
_LAYOUT = {"columns": _HINTS["columns"], "header": bool}
_BUILT_IN = read_json(str(pathlib.Path(__file__).with_name("tasks.json")))
TASKS = {name: parse({"name": name, **own}, name) for name, own in _BUILT_IN["tasks"].items()}
GLUE_TASKS = tuple(_BUILT_IN["glue"])  # the eight of the papers' average
ALIASES, TFDS_TEXTS = _BUILT_IN["aliases"], _BUILT_IN["tfds_texts"]
