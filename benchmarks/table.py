"""The output of a benchmark: machine and versions, a Markdown table, and what could not run."""

from __future__ import annotations

import contextlib
import datetime
import importlib.metadata
import math
import os
import platform
import shlex
import sys

from convbert.benchmarks.interleaved import Result
from convbert.common.machine import num_cores
from convbert.training.run_record import git_commit

NOT_RUN = "not run"
PRECISIONS = ("float32", "mixed_bfloat16")


class Report:
    """Prints a table row by row, as benchmarks take long.

    `columns` are names and formats; the first column is aligned to the left.
    """

    def __init__(self, columns: dict[str, str]):
        self._formats = list(columns.values())
        self._widths = [max(len(column), len(NOT_RUN)) for column in columns]
        self._widths[0] = max(self._widths[0], 26)  # for names
        self._missing: dict[str, None] = {}  # an ordered set
        print(*(f"- {line}" for line in header()), "", sep="\n", flush=True)
        self.row(*columns)
        dashes = ["-" * width for width in self._widths]
        self.row(dashes[0], *(f"{dash[1:]}:" for dash in dashes[1:]))

    def row(self, *cells: str | float) -> None:
        """Prints a row; NaN as "not run"."""
        texts = [
            cell if isinstance(cell, str) else NOT_RUN if math.isnan(cell) else format(cell, form)
            for cell, form in zip(cells, self._formats, strict=True)
        ]
        aligned = [text.rjust(width) for text, width in zip(texts, self._widths)]
        aligned[0] = texts[0].ljust(self._widths[0])
        print(f"| {' | '.join(aligned)} |", flush=True)

    def missing(self, results: dict[str, Result]) -> None:
        """Adds a line for each system that did not run, unless it has one."""
        for name, result in results.items():
            if result.missing:
                self._missing[f"- {name}: {NOT_RUN}, {result.missing}"] = None

    def end(self, *lines: str) -> None:
        """Prints what is missing, and further lines."""
        if self._missing:
            print("", "Not run:", "", *self._missing, sep="\n")
        for line in lines:
            print(f"\n{line}")


def header() -> list[str]:
    """Machine, versions, commit and command."""
    system, cpu = platform.system(), platform.processor() or platform.machine()
    no_name = contextlib.suppress(OSError, StopIteration)  # of systems but Linux on x86
    with no_name, open("/proc/cpuinfo", encoding="utf-8") as file:
        cpu = next(line.split(":")[1].strip() for line in file if line.startswith("model n"))
    versions = [f"python {platform.python_version()}"]
    for name in ("tensorflow", "torch", "transformers"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions.append(f"{name} {importlib.metadata.version(name)}")
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    program = f"-m {spec.name}" if spec else os.path.basename(sys.argv[0])
    return [
        f"{datetime.date.today().isoformat()}, {cpu}, {num_cores()} cores, {system}",
        ", ".join(versions),
        f"commit {(git_commit() or 'unknown').replace('-dirty', ', modified')}",
        f"`python {program} {shlex.join(sys.argv[1:])}`",
    ]
