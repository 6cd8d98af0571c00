"""What a benchmark prints: a Markdown table, its targets, and what could not be run."""

from __future__ import annotations

import math

from benchmarks.contest import Result
from benchmarks.machine import header

NOT_RUN = "not run"
PRECISIONS = ("float32", "mixed_bfloat16")


def cell(value: float, form: str = ".2f") -> str:
    """A number for a table; NaN, which is what a contestant that did not run has, says so."""
    return NOT_RUN if math.isnan(value) else format(value, form)


def milliseconds(result: Result, samples: int = 1) -> str:
    """Milliseconds of a call, or of one of its samples."""
    return cell(1e3 * result.median / samples, ".1f")


def gflops(result: Result) -> float:
    """GFLOP/s of a contestant that states its `flops`; NaN if it did not run."""
    return result.facts.get("flops", float("nan")) / result.median / 1e9


class Report:
    """Prints a table row by row, as benchmarks take long, and the rest when it ends.

    Example:
        report = Report("model", "ms")
        report.row("ConvBERT", milliseconds(result))
        report.target("ConvBERT's speed over ELECTRA's", 1.2, at_least=1.0)
        report.end()

    Args:
        columns: names of the columns; the first is aligned to the left.
    """

    def __init__(self, *columns: str):
        self._widths = [max(len(column), len(NOT_RUN)) for column in columns]
        self._widths[0] = max(self._widths[0], 26)  # for names
        self._targets: list[str] = []
        self._missing: dict[str, None] = {}  # an ordered set
        print(f"{header()}\n", flush=True)
        self.row(*columns)
        dashes = ["-" * width for width in self._widths]
        self.row(dashes[0], *(f"{dash[1:]}:" for dash in dashes[1:]))

    def row(self, *cells: str) -> None:
        """Prints a row."""
        aligned = [text.rjust(width) for text, width in zip(cells, self._widths, strict=True)]
        aligned[0] = cells[0].ljust(self._widths[0])
        print(f"| {' | '.join(aligned)} |", flush=True)

    def target(
        self,
        what: str,
        value: float,
        *,
        at_least: float | None = None,
        at_most: float | None = None,
    ) -> None:
        """Adds a line that says whether a number, of which `what` tells, is as it should be."""
        limit = f"at least {at_least:g}" if at_most is None else f"at most {at_most:g}"
        met = value >= at_least if at_most is None else value <= at_most
        verdict = NOT_RUN
        if not math.isnan(value):
            verdict = f"{value:.3f}, {'reached' if met else 'not reached'}"
        self._targets.append(f"- {what}, {limit}: {verdict}")

    def missing(self, results: dict[str, Result]) -> None:
        """Adds a line for each contestant that did not run, unless it has one."""
        for name, result in results.items():
            if result.missing:
                self._missing[f"- {name}: {NOT_RUN}, {result.missing}"] = None

    def end(self, *lines: str) -> None:
        """Prints targets, what is missing, and further lines, if there are any."""
        for title, content in (("Targets:", self._targets), ("Not run:", self._missing)):
            if content:
                print("", title, "", *content, sep="\n")
        for line in lines:
            print(f"\n{line}")
