"""Imports what users register from outside, and what needs TensorFlow only when it is called."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Callable, Sequence

from errors import InputError


def lazily(name: str) -> Callable:
    """The function or class "module:name", imported when it is first called.

    What describes a network (an objective, a kind of task) names so what builds it, and can be
    checked before TensorFlow is imported.
    """
    module, _, attribute = name.partition(":")

    def call(*args, **kwargs):
        return getattr(importlib.import_module(module), attribute)(*args, **kwargs)

    return call


def load(paths: Sequence[str]) -> None:
    """Imports Python files and modules, each once per process; they call `register` themselves.

    Args:
        paths: files (`my/objective.py`), or names of importable modules (`my_package.objective`).

    Raises:
        InputError: there is no such file or module, or importing it fails; names it and the line.
    """
    for path in paths:
        try:
            if path.endswith(".py") or os.sep in path:
                _load_file(path)
            else:
                importlib.import_module(path)
        except Exception as error:
            raise InputError(f"--plugins {path}: {_explain(path, error)}") from error


def _load_file(path: str) -> None:
    """Imports a file under a name that is its path: two files may both be called `plugin.py`."""
    if not os.path.isfile(path):
        raise InputError("there is no such file")
    name = os.path.realpath(path)
    if name in sys.modules:
        return
    spec = importlib.util.spec_from_file_location(name, name)
    if spec is None:  # a module has another ending
        raise InputError("a Python file should end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where dataclasses look up the names of their annotations
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise


def _explain(path: str, error: Exception) -> str:
    """What went wrong, and in which line where the path is a file of which a line was run."""
    if isinstance(error, InputError):
        return str(error)
    if isinstance(error, SyntaxError):
        return f"line {error.lineno}: {error.msg}"
    inside = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == os.path.realpath(path)
    ]
    where = f"line {inside[-1]}: " if inside else ""
    return f"{where}{type(error).__name__}: {error}"
