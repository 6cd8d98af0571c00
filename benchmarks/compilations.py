"""Compiled programs: made in processes of their own, kept as JSON lines. Needs no TensorFlow.

A record is an object with `program`, `device`, `code` (see `source_digest`), `commit`, and either
`result`, what benchmarks.program_compile says, or `failed`, why it says nothing.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

import files
import stopping
from benchmarks.programs import Program
from errors import InputError
from training.model_directory import git_commit

# What a program comes from: a row of other code is another row.
_SOURCES = ("model", "training", "pretrain", "finetune", "benchmarks/ours.py")
_SOURCES += ("benchmarks/made_up_tasks.py", "benchmarks/program_export.py")


@functools.cache
def source_digest() -> str:
    """A SHA-256 of the code that programs come from."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    digest = hashlib.sha256()
    for source in _SOURCES:
        for path in sorted(_python_files(os.path.join(root, source))):
            with open(path, "rb") as file:
                digest.update(file.read())
    return digest.hexdigest()[:16]


def _python_files(path: str) -> Iterator[str]:
    if path.endswith(".py"):
        yield path
        return
    for folder, _, names in os.walk(path):
        yield from (os.path.join(folder, name) for name in names if name.endswith(".py"))


def key(program: Program, device: str, code: str | None = None) -> str:
    """What a record is of."""
    values = [dataclasses.asdict(program), device, code or source_digest()]
    return json.dumps(values, sort_keys=True)


def read_records(path: str) -> dict[str, dict[str, Any]]:
    """The records of a file of JSON lines, by `key`.

    Raises:
        OSError: it cannot be read.
        InputError: it holds something else.
    """
    records = {}
    with open(path, encoding="utf-8") as file:
        lines = file.read().splitlines()
    for number, line in enumerate(lines, 1):
        record = files.parse_json(line, path)
        try:
            program = Program(**record["program"])
            records[key(program, record["device"], record["code"])] = record
        except (KeyError, TypeError) as error:
            raise InputError(
                f"{path}, line {number}: should be a row of benchmarks.tpu_compile: {error}"
            ) from error
    return records


class Compilations:
    """Records by `key`, in memory and, with an `output`, in a file of JSON lines.

    Args:
        python: the interpreter that has jax.
        output: a file; what it holds already is not compiled again.

    Raises:
        InputError: the interpreter does not run or has no jax, or the file holds something else.
    """

    def __init__(self, python: str, output: str | None = None):
        _check_python(python)
        self._python, self._output = python, output
        self._records = read_records(output) if output and os.path.exists(output) else {}

    def of(self, program: Program, devices: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
        """Each device and its record; those that succeed are kept."""
        with tempfile.TemporaryDirectory() as folder, stopping.cleaning(lambda: _remove(folder)):
            path, error = os.path.join(folder, "program.hlo"), None
            for device in devices:
                record = self._records.get(key(program, device))
                if record is None and not error and not os.path.exists(path):
                    described = json.dumps(dataclasses.asdict(program))
                    export = [sys.executable, "-m", "benchmarks.program_export"]
                    _, error = _ran([*export, path, described])
                yield device, record or self._compiled(program, device, path, error)

    def _compiled(
        self, program: Program, device: str, path: str, error: str | None
    ) -> dict[str, Any]:
        """The record of a program that is now compiled, unless its export was an error."""
        record = {"program": dataclasses.asdict(program), "device": device}
        record |= {"code": source_digest(), "commit": git_commit()}
        if not error:
            command = [self._python, "-m", "benchmarks.program_compile"]
            line, error = _ran([*command, path, device, str(program.replicas)])
        if error:
            return {**record, "failed": error}
        record["result"] = json.loads(line)
        self._records[key(program, device)] = record
        if self._output:
            text = "".join(f"{json.dumps(record)}\n" for record in self._records.values())
            files.write_text(self._output, text)
        return record


def _check_python(python: str) -> None:
    """Raises InputError where an interpreter does not run, or has no jax."""
    code = "import importlib.util as u, sys; sys.exit(u.find_spec('jax') is None)"
    try:
        has_jax = subprocess.run([python, "-c", code], check=False).returncode == 0
    except OSError as error:
        raise InputError(f"--python {python}: {error.strerror}") from error
    if not has_jax:
        raise InputError(
            f"--python {python}: jax is not installed there; see requirements-tpu-compile.txt"
        )


def _remove(folder: str) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def _ran(command: list[str]) -> tuple[str, str | None]:
    """The last line of a command's output, and of its messages if it failed."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as process, stopping.cleaning(process.kill):
        output, messages = process.communicate()
    line = (output.strip().splitlines() or [""])[-1]
    if process.returncode == 0:
        return line, None
    said = messages.strip().splitlines() or ["no message"]
    return line, f"status {process.returncode}: {said[-1]:.300}"


def needed(result: dict[str, Any]) -> float:
    """Bytes of memory that a program needs on a device; NaN if it was not compiled."""
    if "needed" in result or not result:
        return result.get("needed", math.nan)
    new = result["outputs"] - result["aliased"]  # the others are where arguments were
    return result["arguments"] + new + result["temporaries"] + result["code"]
