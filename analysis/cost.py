"""Costs of corpora and recipes: disk space, build time, read bandwidth, device-hours.

    python -m analysis.cost [--markdown]
    python -m analysis.cost --devices a100,a100:8 --attained_share 0.4 --recipes my_recipe.json

Prints its formulas and all of their inputs, and the published training times with the share of the
peak rate that they imply, as a check. Time is by operations alone: a step that is bound by memory
traffic or by launches attains less of the peak, which is why the share is a flag.
"""

from __future__ import annotations

import common.library_logs  # noqa: F401  TensorFlow reads the environment when it is imported

# isort: split
import dataclasses
import os
import pathlib
import sys
from typing import Any

from analysis.cost_model import (
    CORPORA_GB,
    FORMULAS,
    PEAKS,
    DataRates,
    Group,
    corpus_cost,
    parse_group,
    published_checks,
    recipe_cost,
)
from analysis.operations import recipe_hparams
from analysis.tables import format_table, parse_arguments, sections
from common.errors import InputError, main_with_clear_errors
from common.settings import read_json_object

ASSUMED_SHARE = 0.3
CONFIGS = pathlib.Path(__file__).parents[1] / "configs"
RATES = {field.name: field for field in dataclasses.fields(DataRates)}


def corpus_table(rates: DataRates, markdown: bool) -> str:
    """Corpora of `CORPORA_GB` as examples of every measured length."""
    header = ["GB of text", "length", "G tokens", "M examples", "GB on disk", "build hours"]
    cells = []
    for gigabytes in CORPORA_GB:
        for length in rates.tokens_per_example:
            row = corpus_cost(gigabytes, length, rates)
            counts = [f"{row['tokens'] / 1e9:.2f}", f"{row['examples'] / 1e6:.1f}"]
            costs = [f"{row['disk_bytes'] / 1e9:.1f}", f"{row['build_hours']:.2f}"]
            cells.append([f"{gigabytes:g}", str(length), *counts, *costs])
    return format_table(header, cells, markdown)


def recipe_table(costs: dict[str, dict[str, Any]], markdown: bool) -> str:
    """Steps, examples, FLOPs and epochs of recipes; `costs` are of `recipe_cost`, by name."""
    header = ["recipe", "length", "k steps", "M examples", "FLOPs"]
    header += [f"epochs of {gigabytes:g} GB" for gigabytes in CORPORA_GB]
    cells = []
    for name, row in costs.items():
        flops = "not counted" if row["flops"] is None else f"{row['flops']:.2e}"
        sizes = [f"{row['steps'] / 1e3:g}", f"{row['examples'] / 1e6:.1f}", flops]
        epochs = [f"{epochs:.1f}" for epochs in row["epochs"].values()]
        cells.append([name, str(row["length"]), *sizes, *epochs])
    return format_table(header, cells, markdown)


def time_table(costs: dict[str, dict[str, Any]], groups: list[Group], markdown: bool) -> str:
    """Hours and reading of recipes on groups of devices."""
    columns = {"hours": "hours", "device_hours": "device-hours"}
    columns["reading_bytes_per_second"] = "reads MB/s"
    header = [f"{group.name}: {title}" for title in columns.values() for group in groups]
    cells = []
    for name, row in costs.items():
        found = {group.name: row["on"].get(group.name, {}) for group in groups}
        numbers = [(column, on[column]) for column in columns for on in found.values() if on]
        shown = [f"{x / 1e6 if column.startswith('reading') else x:.3g}" for column, x in numbers]
        cells.append([name, *(shown or [""] * len(header))])
    return format_table(["recipe", *header], cells, markdown)


def published_table(share: float, markdown: bool) -> str:
    """Published training times beside ours."""
    header = ["model", "source", "devices", "FLOPs", "published hours", "implied share"]
    header += ["computed hours", "published / computed"]
    forms = ("", "", "", ".2e", ".3g", ".3f", ".1f", ".2f")
    rows = [map(format, check.values(), forms) for check in published_checks(share)]
    return format_table(header, list(map(list, rows)), markdown)


def inputs(
    rates: DataRates, given: dict[str, Any], share: str, groups: list[Group]
) -> dict[str, str]:
    """All numbers that go into the tables, and where each is from."""
    lines = {}
    for name, field in RATES.items():
        value = getattr(rates, name)
        shown = f"{value:,}" if not isinstance(value, dict) else ""
        shown = shown or ", ".join(f"{number:g} at {length}" for length, number in value.items())
        source = f"given by --{name}" if name in given else field.metadata["source"]
        lines[name] = f"{shown} ({source})"
    lines["attained share"] = share
    for group in groups:
        peak = f"{group.count} x {group.each / 1e12:g} TFLOP/s"
        lines[f"peak of {group.name}"] = f"{peak} ({group.source})"
    return lines


def stated_cost(recipe: str) -> dict[str, Any]:
    """Returns the `about.cost` object of a recipe file, {} if it has none."""
    cost = read_json_object(recipe).get("about", {}).get("cost", {})
    return cost if isinstance(cost, dict) else {}


def published_recipes() -> list[str]:
    """The files in configs/ whose header states training FLOPs, of objectives that learn encoders.

    Data of language models has words and lengths that `DataRates` does not know.
    """
    paths = sorted(map(str, CONFIGS.glob("*.json")))
    encoders = [path for path in paths if read_json_object(path).get("objective") != "causal_lm"]
    return [path for path in encoders if "training_flops" in stated_cost(path)]


def main(argv: list[str]) -> None:
    """Prints formulas, inputs and tables."""
    flags: dict[str, dict[str, Any]] = {
        "recipes": {"help": "JSON files of runs, comma-separated (default: of papers)"},
        "devices": {"default": "h100,h100:8,tpu_v3-8", "help": ", ".join(PEAKS)},
        "attained_share": {"type": float, "help": f"default: {ASSUMED_SHARE}, ASSUMED"},
    }
    for name, field in RATES.items():
        kind = int if name == "build_machines" else float
        flags[name] = {"type": kind, "help": f"default: {field.metadata['source']}"}
    arguments = vars(parse_arguments(argv, **flags))
    share, share_is = arguments["attained_share"], "given by --attained_share"
    if share is None:
        share, share_is = ASSUMED_SHARE, "ASSUMED"
    if not 0 < share <= 1:
        raise InputError(f"--attained_share should be in (0, 1]. Received: {share}")
    groups = [parse_group(name.strip()) for name in arguments["devices"].split(",")]
    paths = arguments["recipes"].split(",") if arguments["recipes"] else published_recipes()
    recipes = {os.path.splitext(os.path.basename(path))[0]: path for path in paths}
    runs = {name: recipe_hparams(path) for name, path in recipes.items()}
    lengths = {run.max_seq_length for run in runs.values()} | {*DataRates().tokens_per_example}
    given = {name: arguments[name] for name in RATES if arguments[name] is not None}
    for name, value in given.items():
        if value <= 0:
            raise InputError(f"--{name} should be more than 0. Received: {value}")
        if name.endswith("_per_example"):
            given[name] = dict.fromkeys(sorted(lengths), value)
    rates, markdown = DataRates(**given), arguments["markdown"]
    costs = {
        name: recipe_cost(run, groups, share, rates, stated_cost(recipes[name]).get("updates"))
        for name, run in runs.items()
    }
    lines = inputs(rates, given, f"{share:g} ({share_is})", groups)
    parts = {
        "Formulas": "\n".join(f"- {name} = {text}" for name, text in FORMULAS.items()),
        "Inputs": "\n".join(f"- {name} = {text}" for name, text in lines.items()),
        "Corpora": corpus_table(rates, markdown),
        "Recipes": recipe_table(costs, markdown),
        "Time of the recipes": time_table(costs, groups, markdown),
        "Published training times, as a check": published_table(share, markdown),
    }
    print(sections(parts, markdown))


if __name__ == "__main__":
    main_with_clear_errors(main, takes_arguments=True)(["cost", *sys.argv[1:]])
