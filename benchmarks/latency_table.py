"""What benchmarks.export_latency and benchmarks.serving share: rows and models."""

from __future__ import annotations

import contextlib
import itertools
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import files
from benchmarks.interleaved import Result, System, ratio
from benchmarks.table import Report
from errors import InputError
from training.model_directory import git_commit


class Comparison(NamedTuple):
    """What is compared, and how.

    Attributes:
        shapes: sizes, batches and lengths.
        prepare: from a size and an empty folder to notes, with the models in the folder.
        systems: from that folder, batch and length to all systems.
        measured: from systems to their results.
        check: raises InputError where the results show different models.
        kept: see `models`.
    """

    shapes: tuple[Sequence[str], Sequence[str], Sequence[str]]
    prepare: Callable[[str, str], list[str]]
    systems: Callable[[str, int, int], list[System]]
    measured: Callable[[list[System]], dict[str, Result]]
    check: Callable[[dict[str, Result]], None]
    kept: str | None = None

    def results(self, report: Report) -> Iterator[tuple[tuple[str, int, int], dict[str, Result]]]:
        """Size, batch and length, and the results for them; ends the report after the last."""
        sizes, batches, lengths = self.shapes
        notes = []
        for size in sizes:
            with models(size, self.prepare, self.kept) as (folder, said):
                notes += said
                for batch, length in itertools.product(map(int, batches), map(int, lengths)):
                    found = self.measured(self.systems(folder, batch, length))
                    self.check(found)
                    yield (size, batch, length), found
                    report.missing(found)
        report.end(*notes)


def print_rows(
    names: Sequence[str], pairs: Sequence[tuple[str, str]], comparison: Comparison
) -> None:
    """Measures and prints a row per size, batch and length.

    Args:
        names: of the systems, a column of milliseconds each.
        pairs: of names, a column each: the time of the first over that of the second.
    """
    columns = {"size": "", "batch": "d", "tokens": "d", **{f"{name} ms": ".1f" for name in names}}
    report = Report(columns | {f"{slow} / {fast}": ".2f" for slow, fast in pairs})
    for shape, results in comparison.results(report):
        times = [1e3 * results[name].median for name in names]
        report.row(*shape, *times, *(ratio(results[a], results[b]) for a, b in pairs))


@contextlib.contextmanager
def models(
    size: str, prepare: Callable[[str, str], list[str]], kept: str | None
) -> Iterator[tuple[str, list[str]]]:
    """The folder of a size's models, and what `prepare` said of them.

    Args:
        kept: a folder in which they are left, and found again; by default they are gone afterwards.
    """
    if kept is None:
        with tempfile.TemporaryDirectory() as folder:
            yield folder, prepare(size, folder)
        return
    folder, commit = os.path.join(kept, size), git_commit()
    said = os.path.join(folder, "notes.json")
    if not os.path.exists(folder):
        os.makedirs(kept, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept) as work:
            made = os.path.join(work, size)
            os.mkdir(made)
            record = {"commit": commit, "notes": prepare(size, made)}
            files.write_json(os.path.join(made, "notes.json"), record)
            os.replace(made, folder)
    record = files.read_json(said)
    if record.get("commit") != commit:
        raise InputError(
            f"{folder}: the models should be of the commit that is measured, {commit}. They are of"
            f" {record.get('commit')}"
        )
    yield folder, record["notes"]


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
