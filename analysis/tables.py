"""Tables for the terminal and for Markdown."""

from __future__ import annotations

from collections.abc import Sequence


def format_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], markdown: bool = False
) -> str:
    """An aligned table: the first column to the left, the others to the right.

    Args:
        header: names of the columns.
        rows: cells, as many a row as there are columns.
        markdown: whether to write Markdown instead of plain columns.

    Returns:
        The table's lines, without a line break at the end.
    """
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    rule = ["-" * width for width in widths]
    if markdown:
        rule = [rule[0], *(dashes[:-1] + ":" for dashes in rule[1:])]
    lines = [_line(cells, widths, markdown) for cells in [header, rule, *rows]]
    return "\n".join(lines)


def _line(cells: Sequence[str], widths: Sequence[int], markdown: bool) -> str:
    aligned = [cells[0].ljust(widths[0])]
    aligned += [cell.rjust(width) for cell, width in zip(cells[1:], widths[1:])]
    if markdown:
        return f"| {' | '.join(aligned)} |"
    return "  ".join(aligned).rstrip()
