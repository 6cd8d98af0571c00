"""A task declared in JSON: the fields of `finetune.task.Task`, of which many may be left out."""

from __future__ import annotations

import os
import typing
from typing import Any

import storage
from errors import located
from finetune import kinds
from finetune.kinds.base import Kind
from finetune.readers.lines import read_object
from finetune.task import Task
from settings import check_setting, field_names, reject_unknown, typed


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
    task = Task(**fields)
    expectation = "those of a development split, too, whose name begins with dev or val"
    check_setting(task, bool(task.dev), "files", expectation)
    kind.check_metrics(task)
    return task


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
