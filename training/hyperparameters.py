"""Frozen dataclasses from JSON: unknown names and wrong types are refused, never swallowed."""

from __future__ import annotations

import dataclasses
import difflib
import json
import os
import types
import typing
from typing import Any, TypeVar

from errors import InputError

T = TypeVar("T")


def read_json_object(text_or_path: str) -> dict[str, Any]:
    """A JSON object given as text or as the path of a file; "" is the empty object."""
    text, where = text_or_path.strip(), "--hparams"
    if not text:
        return {}
    if not text.startswith("{"):
        where = text
        try:
            with open(text, encoding="utf-8") as file:
                text = file.read()
        except OSError as error:
            raise InputError(
                f"{where}: neither a JSON object nor a readable file ({error.strerror})"
            ) from error
    try:
        values = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{where}, line {error.lineno}: not JSON ({error.msg})") from error
    if not isinstance(values, dict):
        raise InputError(f"{where} should be a JSON object. Received: {type(values).__name__}")
    return values


def write_json(path: str, value: Any) -> None:
    """Writes `value` as JSON to `path`, which appears whole or not at all."""
    with open(path + ".tmp", "w", encoding="utf-8") as file:
        json.dump(value, file, indent=2, sort_keys=False)
        file.write("\n")
    os.replace(path + ".tmp", path)


def field_names(*classes: type) -> list[str]:
    """The field names of some dataclasses."""
    return [field.name for cls in classes for field in dataclasses.fields(cls)]


def refuse_unknown(names: typing.Iterable[str], known: list[str]) -> None:
    """Raises InputError, with the nearest valid name, when a name is not among `known`."""
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f" Did you mean `{near[0]}`?" if near else ""
            raise InputError(f"Unknown hyper-parameter `{name}`.{hint}")


def replace_checked(instance: T, values: dict[str, Any]) -> T:
    """`dataclasses.replace` that checks names and types.

    Args:
        instance: a dataclass instance with annotated fields.
        values: the new values; an int is accepted where a float is annotated.

    Raises:
        InputError: an unknown name (the nearest valid one is suggested) or a value of another type.
    """
    refuse_unknown(values, field_names(type(instance)))
    hints = typing.get_type_hints(type(instance))
    checked = {name: _checked(name, value, hints[name]) for name, value in values.items()}
    return dataclasses.replace(instance, **checked)


def _checked(name: str, value: Any, annotation: Any) -> Any:
    allowed = (
        typing.get_args(annotation)
        if isinstance(annotation, types.UnionType)
        else (typing.get_origin(annotation) or annotation,)
    )
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if is_number and float in allowed:
        return float(value)
    if is_number and int in allowed and float(value).is_integer():
        return int(value)  # 1e5 is a float in JSON and a step count to its writer
    if isinstance(value, allowed) and (bool in allowed or not isinstance(value, bool)):
        return value
    expected = " or ".join("null" if t is types.NoneType else t.__name__ for t in allowed)
    raise InputError(f"`{name}` should be {expected}. Received: {value!r}")


def differences(saved: dict[str, Any], current: dict[str, Any]) -> list[str]:
    """Human-readable lines for every key whose value differs between two JSON objects."""
    missing = "not set"
    return [
        f"{key}: {saved.get(key, missing)!r} there, {current.get(key, missing)!r} now"
        for key in sorted({*saved, *current})
        if saved.get(key, missing) != current.get(key, missing)
    ]
