"""A task declared in JSON: the fields of `finetune.task.Task`, of which many may be left out."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable
from typing import Any

from errors import InputError
from finetune import kinds
from finetune.kinds.base import Kind
from finetune.readers.lines import read_object
from finetune.task import Task
from settings import field_names


def read(path: str) -> Task:
    """Reads a declaration; the task's files are looked for beside it, too.

    A task without a name has the file's, without its extension.

    Raises:
        InputError: the file is missing, not JSON, or not a correct declaration.
    """
    values = read_object(path)
    folder = os.path.dirname(os.path.abspath(path))
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
    known = field_names(Task)
    for key in values:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise InputError(
                f"{where}: the keys of a task should be among {', '.join(known)}{hint}. "
                f"Received: {key!r}"
            )
    for key in ("name", "kind", "files"):
        if key not in values:
            raise InputError(f"{where}: a task should have the key {key!r}. Received: none")
    fields = {key: _CHECKS[key](value, f"{where}: `{key}`") for key, value in values.items()}
    files = fields["files"]
    fields.setdefault("dev", tuple(split for split in files if split.startswith(("dev", "val"))))
    fields.setdefault("test", tuple(split for split in files if split.startswith("test")))
    try:
        kind = kinds.get(fields["kind"])
    except InputError as error:
        raise InputError(f"{where}: {error}") from error
    if "format" not in fields:
        fields["format"] = _format(fields, kind, where)
    fields.setdefault("metrics", kind.default_metrics)
    fields.setdefault("columns", {})
    try:
        task = Task(**fields)
        if not task.dev:
            raise InputError(
                "`files` should have a development split, whose name begins with dev or val. "
                f"Received: {', '.join(task.files)}"
            )
        kind.check_metrics(task)
    except InputError as error:
        raise InputError(f"{where}: {error}") from error
    return task


def _format(fields: dict[str, Any], kind: Kind, where: str) -> str:
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
                f"{where}: `format` of a {kind.name} task should be one of "
                f"{', '.join(kind.formats)}, unless the files' names end in {', '.join(known)}. "
                f"Received: no format, and {name!r}"
            )
    if len(found) > 1:
        raise InputError(
            f"{where}: the files of a task should be of one format; `format` says of which, "
            f"whatever their names. Received: {', '.join(found.values())}"
        )
    return next(iter(found), next(iter(kind.formats)))  # without a training file, which Task misses


# The checks of the types. Each takes a value and the words that an error begins with.


def _wrong(what: str, expected: str, value: Any) -> InputError:
    return InputError(f"{what} should be {expected}. Received: {value!r}")


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str) or not value:
        raise _wrong(what, "a text that is not empty", value)
    return value


def _text_or_null(value: Any, what: str) -> str | None:
    return None if value is None else _text(value, what)


def _boolean(value: Any, what: str) -> bool:
    if not isinstance(value, bool):
        raise _wrong(what, "true or false", value)
    return value


def _texts(value: Any, what: str) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)):
        raise _wrong(what, "a list of texts", value)
    return tuple(_text(item, f"{what}, each,") for item in value)


def _labels(value: Any, what: str) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)):
        raise _wrong(what, "a list of label names", value)
    # [0, 1] means ["0", "1"]: in a file they look the same.
    whole = [isinstance(item, int) and not isinstance(item, bool) for item in value]
    return _texts([str(item) if is_int else item for item, is_int in zip(value, whole)], what)


def _range(value: Any, what: str) -> tuple[float, float]:
    numbers = isinstance(value, (list, tuple)) and len(value) == 2
    numbers = numbers and all(type(item) in (int, float) for item in value)
    if not numbers:
        raise _wrong(what, "two numbers, [low, high]", value)
    return float(value[0]), float(value[1])


def _object(check: Callable[[Any, str], Any]) -> Callable[[Any, str], dict[str, Any]]:
    def checked(value: Any, what: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _wrong(what, "a JSON object", value)
        return {key: check(item, f"{what}, {key!r},") for key, item in value.items()}

    return checked


def _file(value: Any, what: str) -> str | tuple[str, ...]:
    if isinstance(value, (list, tuple)) and value:
        return _texts(value, what)
    return _text(value, what)


def _column(value: Any, what: str) -> str | int:
    if type(value) is int or (isinstance(value, str) and value):
        return value
    raise _wrong(what, "the name of a column, or its number counted from 0", value)


def _layout(value: Any, what: str) -> dict[str, Any]:
    checks = {"columns": _object(_column), "header": _boolean}
    if not isinstance(value, dict) or set(value) - set(checks):
        raise _wrong(what, 'an object with the keys "columns" and "header"', value)
    return {key: checks[key](item, f"{what} `{key}`") for key, item in value.items()}


_CHECKS: dict[str, Callable[[Any, str], Any]] = {
    "name": _text,
    "kind": _text,
    "files": _object(_file),
    "format": _text,
    "columns": _object(_column),
    "metrics": _texts,
    "train": _text,
    "dev": _texts,
    "test": _texts,
    "labels": _labels,
    "symmetric": _boolean,
    "label_range": _range,
    "tfds": _text_or_null,
    "version_2": _boolean,
    "header": _boolean,
    "per_split": _object(_layout),
    "lenient": _boolean,
    "folders": _texts,
    "delimiter": _text_or_null,
}
