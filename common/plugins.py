"""Plug-ins: registries by name, and imports of users' files and modules."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import pkgutil
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from convbert.common.errors import InputError
from convbert.common.settings import did_you_mean

T = TypeVar("T")
_DIGEST = "__convbert_sha256__"  # attribute of a module that `load` imported


class Registry(Generic[T]):
    """Entries by name; JSON names them in the field `field`."""

    def __init__(self, field: str):
        self._field = field
        self._entries: dict[str, tuple[str, T]] = {}

    def add(self, name: str, entry: T, owner: type) -> None:
        """Registers an entry, replacing an earlier one of the same owner.

        The owner is the entry's class, or the entry itself if it is a class. Classes of the same
        module and name count as the same owner, as when a file is loaded again. InputError if
        another owner has the name.
        """
        known, _ = self._entries.get(name, (source(owner), None))
        if known != source(owner):
            raise InputError(f"`{self._field}` {name!r} of {source(owner)}: {known} has this name")
        self._entries[name] = known, entry

    def get(self, name: Any) -> T:
        """Returns the entry called `name`, any JSON value; InputError if there is none."""
        if name in self.names():
            return self._entries[name][1]
        raise InputError(
            f"`{self._field}` should be one of {', '.join(self._entries)}, or of a file of"
            f" --plugins.{did_you_mean(str(name), self._entries)} Received: {name!r}"
        )

    def names(self) -> tuple[str, ...]:
        """Returns all names, in the order of registration."""
        return tuple(self._entries)


def source(owner: type) -> str:
    """Returns the module and qualified name of a class."""
    return f"{owner.__module__}.{owner.__qualname__}"


def lazily(name: str) -> Callable:
    """Returns a function that imports the function or class "module:name" on its first call."""
    return lambda *args, **kwargs: pkgutil.resolve_name(name)(*args, **kwargs)


_used: dict[str, str] = {}  # path -> SHA-256, from the last call of `load`


def load(paths: str | Sequence[str]) -> None:
    """Imports plug-ins, which `recorded` returns from now on; see `imported`."""
    found = imported(paths)
    _used.clear()
    _used.update(found)


def imported(paths: str | Sequence[str]) -> dict[str, str]:
    """Imports files (`my/objective.py`) and modules (`my_package.objective`), once per process.

    They call `register` themselves. Returns the SHA-256 of each file. InputError if the file or
    module does not exist; other errors of its code propagate.
    """
    found, paths = {}, [paths] if isinstance(paths, str) else paths
    for path in filter(None, paths):  # a list may end with a comma
        is_file = path.endswith(".py") or os.sep in path
        try:
            module = _load_file(path) if is_file else importlib.import_module(path)
        except (FileNotFoundError, ModuleNotFoundError) as error:
            raise InputError(f"--plugins {path}: {error}") from error
        if not (source_file := getattr(module, "__file__", None)):
            raise InputError(f"--plugins {path}: should be a Python file, or a module with a file")
        if not hasattr(module, _DIGEST):  # of the imported code; the file may change later
            with open(source_file, "rb") as file:
                setattr(module, _DIGEST, hashlib.sha256(file.read()).hexdigest())
        found[path] = getattr(module, _DIGEST)
    return found


def recorded() -> dict[str, dict[str, str]]:
    """Returns {"plugins": {path: SHA-256 of the file}} of loaded plug-ins, {} without any."""
    return {"plugins": dict(_used)} if _used else {}


def _load_file(path: str) -> types.ModuleType:
    """Imports a file under its path as the name, as two files may both be called `plugin.py`."""
    name = os.path.realpath(path)
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, name)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError("a Python file should end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where dataclasses look up the names of their annotations
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
