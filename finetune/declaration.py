"""A task declared in JSON: the fields of `finetune.task.Task`, of which many may be left out."""

from __future__ import annotations

import os
import typing
from typing import Any

import storage
from errors import InputError, located
from finetune import kinds
from finetune.kinds.base import Kind
from finetune.readers.lines import read_object
from finetune.task import Task
from settings import check_setting, did_you_mean, field_names, typed


def read(path: str) -> Task:
    """Reads a declaration; the task's files are looked for beside it, too.

    A task without a name has the file's, without its extension.

    Raises:
        InputError: the file is missing, not JSON, or not a correct declaration.
    """
    values = read_object(path)
    folder = os.path.dirname(storage.abspath(path))
    stem = os.path.splitext(os.path.basename(path))[0]
    # ".json" has no stem; results would be in a hidden folder.
    values.setdefault("name", os.path.basename(folder) if stem.startswith(".") else stem)
    values.setdefault("folders", [folder])
    return parse(values, path)


def parse(values: dict[str, Any], where: str) -> Task:
    """The task of a JSON object.

    Left out, `format` follows from the files' extension, `metrics` from the kind; `dev` and `test`
    are the splits in `files` whose names begin with "dev" or "val", and with "test".

    Args:
        values: the object.
        where: the file it comes from, for error messages.

    Raises:
        InputError: an unknown or missing key, or a value of a wrong type or meaning.
    """
    with located(where):
        return _parsed(values)


def _parsed(values: dict[str, Any]) -> Task:
    known = field_names(Task)
    for key in values:
        if key not in known:
            raise InputError(
                f"the keys of a task should be among {', '.join(known)}. "
                f"Received: {key!r}.{did_you_mean(key, known)}"
            )
    for key in ("name", "kind", "files"):
        if key not in values:
            raise InputError(f"a task should have the key {key!r}. Received: none")
    fields = {key: _typed(key, value) for key, value in values.items()}
    files, kind = fields["files"], kinds.get(fields["kind"])
    for key, beginnings in (("dev", ("dev", "val")), ("test", ("test",))):
        said = {fields.get("train"), *fields.get("dev", ()), *fields.get("test", ())}
        rest = (split for split in files if split.startswith(beginnings) and split not in said)
        fields.setdefault(key, tuple(rest))
    if "format" not in fields:
        fields["format"] = _format(fields, kind)
    fields.setdefault("metrics", kind.default_metrics)
    fields.setdefault("columns", {})
    task = Task(**fields)
    expectation = "those of a development split, too, whose name begins with dev or val"
    check_setting(task, bool(task.dev), "files", expectation)
    kind.check_metrics(task)
    return task


def _format(fields: dict[str, Any], kind: Kind) -> str:
    """The format by the extension of the training file, which the other files should share."""
    known = {end: name for name, end in kind.formats.items() if end}
    found = {}
    for split, name in fields["files"].items():
        name = name if isinstance(name, str) else name[0]
        extension = os.path.splitext(name)[1].lower()
        if extension in known:
            found.setdefault(known[extension], name)
        elif split == fields.get("train", "train"):
            raise InputError(
                f"`format` of a {kind.name} task should be one of "
                f"{', '.join(kind.formats)}, unless the files' names end in {', '.join(known)}. "
                f"Received: no format, and {name!r}"
            )
    if len(found) > 1:
        raise InputError(
            f"the files of a task should be of one format; `format` says of which, "
            f"whatever their names. Received: {', '.join(found.values())}"
        )
    return next(iter(found), next(iter(kind.formats)))  # without a training file, which Task misses


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
    found = {}
    for name, own in layout.items():
        where = f"per_split[{split!r}][{name!r}]"
        if name not in _LAYOUT:
            raise InputError(f"`{where}` should be among {', '.join(_LAYOUT)}. Received: {own!r}")
        found[name] = typed(where, own, _LAYOUT[name])
    return found


_HINTS = typing.get_type_hints(Task)
_LAYOUT = {"columns": _HINTS["columns"], "header": bool}
