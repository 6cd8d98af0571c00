"""Progress bars of what Python programs ask for."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from tqdm.auto import tqdm

_SECONDS = 2.0  # until it appears


def shown(
    items: Iterable | None, progress: bool | None, unit: str, total: int | None = None
) -> tqdm:
    """The items, with a bar while they are taken.

    Args:
        items: None where `update` counts.
        progress: whether it is wanted; None: in a terminal or notebook.
        unit: of what is counted, such as " texts".
        total: by default the number of items.
    """
    if progress is None:
        progress = "ipykernel" in sys.modules or sys.stderr.isatty()
    return tqdm(items, total=total, unit=unit, delay=_SECONDS, disable=not progress)
