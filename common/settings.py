"""Settings as frozen dataclasses, with checks of names, types and ranges.

All packages may import this. A class declares checks on its fields, as in
`dataclasses.field(default=0.01, metadata=within(0, 1))`, and calls `check_fields`.
"""

from __future__ import annotations

import dataclasses
import difflib
import pathlib
import sys
import types
import typing
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from convbert.common import files, storage
from convbert.common.errors import InputError, located

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_PACKAGE = pathlib.Path(__file__).parents[1]
T = TypeVar("T")
Settings = TypeVar("Settings", bound="DataclassInstance")


def present(value: T | None) -> T:
    """Returns `value`, asserting that it is not None, as for resolved hyper-parameters."""
    assert value is not None
    return value


def read_json_object(text_or_path: str, flag: str = "--hparams") -> dict[str, Any]:
    """Reads a JSON object given as text or as the path of a file; "" is the empty object.

    A path such as configs/convbert_small.json is also looked for in the installed package.
    """
    text = text_or_path.strip()
    if not text:
        return {}
    if text.startswith("{"):
        return files.parse_json(text, flag)
    if not storage.isfile(text) and not storage.is_url(text):
        text = str(_PACKAGE / text)
    if not storage.isfile(text):
        raise InputError(f"{flag} {text_or_path}: neither a JSON object nor a readable file")
    return files.read_json(text)


def field_names(*classes: type) -> list[str]:
    """Returns the field names of dataclasses."""
    return [field.name for cls in classes for field in dataclasses.fields(cls)]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Returns " Did you mean `NEAREST`?" to end an error with, or "" if no name is near."""
    near = difflib.get_close_matches(name, known, n=1)
    return f" Did you mean `{near[0]}`?" if near else ""


def reject_unknown(names: Iterable[str], known: list[str]) -> None:
    """Raises InputError with the nearest valid name if a name is not among `known`."""
    for name in names:
        if name not in known:
            raise InputError(f"Unknown name `{name}`.{did_you_mean(name, known)}")


def replace_checked(instance: Settings, values: dict[str, Any]) -> Settings:
    """Applies `dataclasses.replace` with `checked_values`."""
    return dataclasses.replace(instance, **checked_values(type(instance), values))


def checked_values(cls: type, values: dict[str, Any]) -> dict[str, Any]:
    """Converts JSON values to the types of a dataclass's fields; InputError for unknown names."""
    reject_unknown(values, field_names(cls))
    hints = typing.get_type_hints(cls)
    return {name: typed(name, value, hints[name]) for name, value in values.items()}


def parsed(cls: type[T], values: dict[str, Any]) -> T:
    """Returns a dataclass from a JSON object; InputError for unknown and missing names and types.

    Fields that are dataclasses are JSON objects, too.
    """
    given = checked_values(cls, values)
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        needed = field.default is field.default_factory is dataclasses.MISSING
        if needed and field.name not in given:
            raise InputError(f"`{field.name}` should be given")
    made = cls(**given)
    check_fields(made)
    return made


def check_fields(settings: Any) -> None:
    """Checks every field of a dataclass by annotation and metadata; null only where allowed."""
    hints = typing.get_type_hints(type(settings))
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        known = typed(field.name, value, hints[field.name])
        check_setting(settings, type(known) is not int or type(value) is int, field.name, "int")
        fits, expectation = field.metadata.get("check", (None, ""))
        check_setting(settings, not fits or value is None or fits(value), field.name, expectation)


def at_least(low: float) -> dict[str, Any]:
    """Metadata of a field for `check_fields`: a number of at least `low`."""
    return {"check": (lambda value: value >= low, f"at least {low}")}


def within(low: float, high: float) -> dict[str, Any]:
    """Metadata of a field for `check_fields`: a number in [low, high)."""
    return {"check": (lambda value: low <= value < high, f"in [{low}, {high})")}


def above(low: float) -> dict[str, Any]:
    """Metadata of a field for `check_fields`: a number greater than `low`."""
    return {"check": (lambda value: value > low, f"greater than {low}")}


def between(low: float, high: float) -> dict[str, Any]:
    """Metadata of a field for `check_fields`: a number in (low, high)."""
    return {"check": (lambda value: low < value < high, f"in ({low}, {high})")}


def one_of(*choices: str) -> dict[str, Any]:
    """Metadata of a field for `check_fields`: one of the names `choices`."""
    return {"check": (lambda value: value in choices, " or ".join(choices))}


def check_setting(settings: Any, condition: bool, name: str, expectation: str) -> None:
    """Raises InputError, "`name` should be ...", unless `condition` holds."""
    if not condition:
        received = getattr(settings, name)
        raise InputError(f"`{name}` should be {expectation}. Received: {received!r}")


def typed(name: str, value: Any, annotation: Any) -> Any:
    """Converts a JSON value, including nested ones, to its annotation; lists become tuples.

    An InputError names the part of the wrong type, such as `files['train']`.
    """
    # Plug-ins may say Optional[int] for int | None.
    is_union = typing.get_origin(annotation) in (types.UnionType, typing.Union)
    members = typing.get_args(annotation) if is_union else (annotation,)
    for member in members:
        origin, inner = typing.get_origin(member), typing.get_args(member)
        if origin is dict and isinstance(value, dict):
            items = ((str(key), item) for key, item in value.items())
            return {key: typed(f"{name}[{key!r}]", item, inner[1]) for key, item in items}
        if origin is tuple and isinstance(value, (list, tuple)):
            inner = inner[:1] * len(value) if inner[-1] is ... else inner
            if len(inner) == len(value):
                pairs = enumerate(zip(value, inner))
                return tuple(typed(f"{name}[{i}]", item, wanted) for i, (item, wanted) in pairs)
        if dataclasses.is_dataclass(member) and isinstance(value, dict):
            with located(name):
                return parsed(member, value)  # type: ignore[arg-type]
    plain = tuple(member for member in members if not typing.get_args(member))
    # Rejects JSON's Infinity and NaN, and integers beyond the range of floats.
    number = isinstance(value, (int, float)) and type(value) is not bool
    finite = number and abs(value) <= sys.float_info.max
    if finite and float in plain:
        return float(value)
    if finite and int in plain and float(value).is_integer():
        return int(value)  # 1e5 is a float in JSON but may be meant as a step count
    if Any in plain:
        return value
    if isinstance(value, plain) and not number and (bool in plain or type(value) is not bool):
        return value
    expected = " or ".join(map(_called, members))
    raise InputError(f"`{name}` should be {expected}. Received: {value!r}")


def _called(annotation: Any) -> str:
    """Returns a type's name in terms of JSON, for error messages."""
    origin, inner = typing.get_origin(annotation) or annotation, typing.get_args(annotation)
    if dataclasses.is_dataclass(origin):
        origin = dict
    if origin is tuple:
        return "a list" if inner[-1] is ... else f"a list of {len(inner)}"
    names = {types.NoneType: "null", dict: "a JSON object", float: "a finite number"}
    names[bool] = "true or false"
    return names.get(origin, origin.__name__)


def differences(saved: dict[str, Any], current: dict[str, Any]) -> list[str]:
    """Returns a line for each key whose value differs between two JSON objects."""
    missing = "not set"
    return [
        f"{key}: {saved.get(key, missing)!r} there, {current.get(key, missing)!r} now"
        for key in sorted({*saved, *current})
        if saved.get(key, missing) != current.get(key, missing)
    ]
