"""Tables for the terminal and for Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from tabulate import tabulate


def format_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], markdown: bool = False
) -> str:
    """An aligned table, plain or in Markdown: the first column to the left, others to the right."""
    alignment = ["left", *["right"] * (len(header) - 1)]
    style = "pipe" if markdown else "simple"
    return tabulate(rows, header, style, colalign=alignment, disable_numparse=True)
