"""What corpora and recipes cost: disk, time of building, reading bandwidth, device-hours.

    python -m analysis.cost [--markdown] [--json FILE]
    python -m analysis.cost --devices a100,a100:8 --attained_share 0.4 --recipes my_recipe.json

Prints its formulas and all of their inputs, and the published training times with the share of the
peak rate that they imply, as a check. Time is by operations alone: a step that is bound by memory
traffic or by launches attains less of the peak, which is why the share is a flag.
"""

from __future__ import annotations

import library_logs  # noqa: F401  TensorFlow reads the environment when it is imported

# isort: split
import argparse
import sys
from typing import Any

import files
import plugins
from analysis.cost_model import (
    CORPORA_GB,
    MEASURED_AT,
    DataRates,
    all_costs,
    published_recipes,
)
from analysis.devices import DEVICES, parse_group
from analysis.recipes import recipe_hparams
from analysis.tables import format_table
from errors import InputError, main_with_clear_errors

ASSUMED_SHARE = 0.3


def report(costs: dict[str, Any], sources: dict[str, str], markdown: bool = False) -> str:
    """The formulas, their inputs and the tables.

    Args:
        costs: of `all_costs`.
        sources: where each field of `DataRates` comes from.
        markdown: tables of Markdown.
    """
    inputs = costs["inputs"]
    lines = {name: f"{_value(value)} ({sources[name]})" for name, value in inputs["data"].items()}
    lines["attained share"] = f"{inputs['attained_share']:g} ({inputs['attained_share_is']})"
    for name, device in inputs["devices"].items():
        peak = f"{device['count']} x {device['peak'] / 1e12:g} TFLOP/s"
        lines[f"peak of {name}"] = f"{peak} ({device['source']})"
    parts = {
        "Formulas": _list(costs["formulas"]),
        "Inputs": _list(lines),
        "Corpora": _corpus_table(costs, markdown),
        "Recipes": _recipe_table(costs, markdown),
        "Time of the recipes": _time_table(costs, markdown),
        "Published training times, as a check": _published_table(costs, markdown),
    }
    head = "### {}\n\n{}" if markdown else "{}\n\n{}"
    return "\n\n".join(head.format(name, part) for name, part in parts.items())


def _list(items: dict[str, str]) -> str:
    return "\n".join(f"- {name} = {text}" for name, text in items.items())


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{number:g} at {length}" for length, number in value.items())
    return f"{value:,}"


def _corpus_table(costs: dict[str, Any], markdown: bool) -> str:
    header = ["GB of text", "length", "G tokens", "M examples", "GB on disk", "build hours"]
    cells = [
        [
            f"{row['gigabytes']:g}",
            str(row["max_seq_length"]),
            f"{row['tokens'] / 1e9:.2f}",
            f"{row['examples'] / 1e6:.1f}",
            f"{row['disk_bytes'] / 1e9:.1f}",
            f"{row['build_hours']:.2f}",
        ]
        for row in costs["corpora"]
    ]
    return format_table(header, cells, markdown)


def _recipe_table(costs: dict[str, Any], markdown: bool) -> str:
    header = ["recipe", "length", "k steps", "M examples", "FLOPs"]
    header += [f"epochs of {gigabytes:g} GB" for gigabytes in CORPORA_GB]
    cells = []
    for name, row in costs["recipes"].items():
        flops = "not counted" if row["flops"] is None else f"{row['flops']:.2e}"
        sizes = [f"{row['steps'] / 1e3:g}", f"{row['examples'] / 1e6:.1f}", flops]
        epochs = [f"{epochs:.1f}" for epochs in row["epochs"].values()]
        cells.append([name, str(row["max_seq_length"]), *sizes, *epochs])
    return format_table(header, cells, markdown)


def _time_table(costs: dict[str, Any], markdown: bool) -> str:
    groups = costs["inputs"]["devices"]
    columns = {"hours": "hours", "device_hours": "device-hours"}
    columns["reading_bytes_per_second"] = "reads MB/s"
    header = [f"{group}: {title}" for title in columns.values() for group in groups]
    cells = []
    for name, row in costs["recipes"].items():
        on = row.get("on", {})
        numbers = [on[group][column] if on else None for column in columns for group in groups]
        numbers[-len(groups) :] = [x and x / 1e6 for x in numbers[-len(groups) :]]
        cells.append([name, *("" if x is None else f"{x:.3g}" for x in numbers)])
    return format_table(["recipe", *header], cells, markdown)


def _published_table(costs: dict[str, Any], markdown: bool) -> str:
    header = ["model", "source", "devices", "FLOPs", "published hours", "implied share"]
    header += ["computed hours", "published / computed"]
    cells = [
        [
            row["model"],
            row["source"],
            row["devices"],
            f"{row['flops']:.2e}",
            f"{row['hours']:.3g}",
            f"{row['implied_share']:.3f}",
            f"{row['computed_hours']:.1f}",
            f"{row['published_over_computed']:.2f}",
        ]
        for row in costs["published"]
    ]
    return format_table(header, cells, markdown)


# ---------------------------------------------------------------- the command


def parse_arguments(argv: list[str]) -> argparse.Namespace:
    """The flags of the command."""
    parser = argparse.ArgumentParser(prog="python -m analysis.cost")
    parser.add_argument(
        "--recipes", default="", help="JSON files of runs, comma-separated (default: of papers)"
    )
    parser.add_argument("--devices", default="h100,h100:8,tpu_v3-8", help=", ".join(DEVICES))
    parser.add_argument("--attained_share", type=float, help=f"default: {ASSUMED_SHARE}, ASSUMED")
    for name, source in MEASURED_AT.items():
        kind = int if name == "build_machines" else float
        parser.add_argument(f"--{name}", type=kind, help=f"default: {source}")
    parser.add_argument("--plugins", default="", help="Python files or modules, comma-separated")
    parser.add_argument("--markdown", action="store_true", help="Markdown tables")
    parser.add_argument("--json", default="", help="file for the same as JSON")
    return parser.parse_args(argv)


def data_rates(arguments: argparse.Namespace, lengths: list[int]) -> DataRates:
    """The measured rates, with those that were given in their places, for all lengths."""
    given: dict[str, Any] = {
        name: value for name in MEASURED_AT if (value := getattr(arguments, name)) is not None
    }
    for name, value in given.items():
        if value <= 0:
            raise InputError(f"--{name} should be more than 0. Received: {value}")
        if name.endswith("_per_example"):
            given[name] = dict.fromkeys(lengths, value)
    return DataRates(**given)


def main(argv: list[str]) -> None:
    """Prints the report."""
    arguments = parse_arguments(argv[1:])
    share = ASSUMED_SHARE if arguments.attained_share is None else arguments.attained_share
    if not 0 < share <= 1:
        raise InputError(f"--attained_share should be in (0, 1]. Received: {share}")
    plugins.load(arguments.plugins.split(",") if arguments.plugins else [])
    groups = [parse_group(name.strip()) for name in arguments.devices.split(",")]
    recipes = arguments.recipes.split(",") if arguments.recipes else published_recipes()
    lengths = {recipe_hparams(recipe).max_seq_length for recipe in recipes}
    rates = data_rates(arguments, sorted(lengths | set(DataRates().tokens_per_example)))
    costs = all_costs(recipes, groups, share, arguments.attained_share is not None, rates)
    sources = {
        name: measured if getattr(arguments, name) is None else f"given by --{name}"
        for name, measured in MEASURED_AT.items()
    }
    print(report(costs, sources, arguments.markdown))
    if arguments.json:
        costs["inputs"]["data_sources"] = sources
        files.write_json(arguments.json, costs)


if __name__ == "__main__":
    main_with_clear_errors(main, takes_arguments=True)(sys.argv)
