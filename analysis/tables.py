"""Output of the analysis commands, and their common flags."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from tabulate import tabulate

from convbert.common import plugins


def format_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Formats an aligned table in Markdown: first column left, others right."""
    alignment = ["left", *["right"] * (len(header) - 1)]
    return tabulate(rows, header, "pipe", colalign=alignment, disable_numparse=True)


def parse_arguments(argv: Sequence[str], **options: dict) -> argparse.Namespace:
    """Parses --plugins and `options` of a command; loads the plug-ins."""
    parser = argparse.ArgumentParser(prog=f"convbert {argv[0]}")
    parser.add_argument("--plugins", default="", help="Python files or modules, comma-separated")
    for name, option in options.items():
        parser.add_argument(f"--{name}", **option)
    arguments = parser.parse_args(argv[1:])
    plugins.load(arguments.plugins.split(",") if arguments.plugins else [])
    return arguments
