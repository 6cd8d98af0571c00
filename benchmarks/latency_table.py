"""What benchmarks.export_latency and benchmarks.serving share: rows and models."""

from __future__ import annotations

import itertools
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence

from benchmarks.interleaved import Result, System, ratio
from benchmarks.table import Report
from errors import InputError


def print_rows(
    names: Sequence[str],
    pairs: Sequence[tuple[str, str]],
    shapes: tuple[Sequence[str], Sequence[str], Sequence[str]],
    measured: Callable[[list[System]], dict[str, Result]],
    prepare: Callable[[str, str], list[str]],
    systems: Callable[[str, int, int], list[System]],
    check: Callable[[dict[str, Result]], None],
) -> None:
    """Measures and prints a row per size, batch and length.

    Args:
        names: of the systems, a column of milliseconds each.
        pairs: of names, a column each: the time of the first over that of the second.
        shapes: sizes, batches and lengths.
        measured: from systems to their results.
        prepare: from a size and an empty folder to notes, with the models in the folder.
        systems: from that folder, batch and length to all systems.
        check: raises InputError where the results show different models.
    """
    sizes, batches, lengths = shapes
    columns = {"size": "", "batch": "d", "tokens": "d", **{f"{name} ms": ".1f" for name in names}}
    report = Report(columns | {f"{slow} / {fast}": ".2f" for slow, fast in pairs})
    notes = []
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder:
            notes += prepare(size, folder)
            for batch, length in itertools.product(map(int, batches), map(int, lengths)):
                results = measured(systems(folder, batch, length))
                check(results)
                times = [1e3 * results[name].median for name in names]
                ratios = [ratio(results[slow], results[fast]) for slow, fast in pairs]
                report.row(size, batch, length, *times, *ratios)
                report.missing(results)
    report.end(*notes)


def run(module: str, *arguments: str) -> None:
    """Runs `python -m module`; InputError with its last words when it fails."""
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise InputError(f"{' '.join(command)}: {done.stderr.strip()[-1000:]}")


def size_note(name: str, folder: str) -> str:
    """A line that says how large a folder is."""
    written = [path for path in pathlib.Path(folder).rglob("*") if path.is_file()]
    return f"- {name}: {sum(path.stat().st_size for path in written) / 1e6:.1f} MB on disk"
