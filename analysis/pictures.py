"""Figures of matplotlib, which takes a second to import, and their files."""

from __future__ import annotations

from typing import Any

from convbert.common.files import replacing


def panels(rows: int, columns: int, width: float, height: float) -> tuple[Any, Any]:
    """Returns a figure and its panels [rows, columns], each `width` by `height` inches."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def save(figure: Any, path: str, dpi: int = 120) -> None:
    """Writes a figure atomically, in the format of the file's name."""
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=dpi)
