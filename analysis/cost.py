"""Device-hours of recipes: operations over an attained share of the peak rate.

    convbert cost [--markdown]
    convbert cost --devices a100,a100:8 --attained_share 0.4 --recipes my_recipe.json

Hours are FLOPs / (peak of a device x devices x attained share) / 3600, with the FLOPs that a step
executes, as analysis.flops counts them. The published training times show, as a check, what share
of the peak they imply. A step that is bound by memory traffic or by launches attains less.
"""

from __future__ import annotations

import convbert.common.legacy_keras  # noqa: F401  TensorFlow reads the environment when it is imported

# isort: split
import dataclasses
import os
import pathlib
import sys

from convbert.analysis.operations import EXECUTED, hparams_of, recipe_hparams, training_flops
from convbert.analysis.tables import format_table, parse_arguments, sections
from convbert.common.errors import InputError, main_with_clear_errors
from convbert.common.settings import did_you_mean, present, read_json_object
from convbert.finetune.published import PUBLISHED

ASSUMED_SHARE = 0.3
CONFIGS = pathlib.Path(__file__).parents[1] / "configs"
# Dense matrix products in bfloat16, FLOP/s (V100: float16; TPUs: per chip), from the makers' data
# sheets.
PEAKS = {"h100": 989.4e12, "a100": 312e12, "v100": 125e12}
PEAKS |= {"tpu_v3": 123e12, "tpu_v4": 275e12, "tpu_v5e": 197e12, "tpu_v5p": 459e12}
_SLICES = {"tpu_v3-8": "tpu_v3:4"}  # a chip has two cores, and slices are named by their cores

# Published hours of training: model, row of `finetune.published` with its FLOPs, hours, devices,
# source.
_TABLE_5 = ("tpu_v3-8", "ConvBERT author response, Table 5")
PUBLISHED_HOURS = (
    ("ELECTRA-small", "BERT-small RTD 32G 1M", 12, *_TABLE_5),
    ("ELECTRA-base", "BERT-base RTD 16G 766k", 192, *_TABLE_5),
    ("ConvBERT-small", "ConvBERT-small RTD 32G 1M", 12, *_TABLE_5),
    ("ConvBERT-medium-small", "ConvBERT-small-plus RTD 32G 1M", 18, *_TABLE_5),
    ("ConvBERT-base", "ConvBERT-base RTD 32G 1M", 72, *_TABLE_5),
    # 31.3 steps a second; the paper measures matrix units busy for 14.93 % of the time.
    ("ELECTRA-small", "BERT-small RTD 32G 1M", 1e6 / 31.3 / 3600, "tpu_v3-8", "SCRIPT, 3.3"),
)


@dataclasses.dataclass(frozen=True)
class Group:
    """Accelerators that share a batch, named `h100`, `h100:8` or `tpu_v3-8`."""

    name: str
    count: int
    each: float  # peak of one, FLOP/s

    def hours(self, flops: float, share: float) -> float:
        """Returns the hours for `flops` operations at a share of the peak rate."""
        return flops / (self.count * self.each * share) / 3600


def parse_group(name: str) -> Group:
    """Parses the name of accelerators: DEVICE, DEVICE:COUNT, or tpu_v3-8.

    Raises:
        InputError: unknown device, or an invalid count.
    """
    device, _, count = _SLICES.get(name, name).partition(":")
    known = [*PEAKS, *_SLICES]
    if device not in PEAKS:
        raise InputError(
            f"--devices should be of {', '.join(known)}, each DEVICE or DEVICE:COUNT."
            f" Received: {name!r}.{did_you_mean(device, known)}"
        )
    if not (count or "1").isdecimal() or int(count or 1) < 1:
        raise InputError(f"--devices: the count should be at least 1. Received: {name!r}")
    return Group(name, int(count or 1), PEAKS[device])


def recipe_row(path: str, groups: list[Group], share: float) -> list[str]:
    """Returns a recipe's length, steps, examples, FLOPs and hours, without continued steps."""
    hparams, cost = recipe_hparams(path), _stated_cost(path)
    steps = cost.get("updates") or hparams.num_train_steps
    examples, flops = steps * present(hparams.train_batch_size), training_flops(hparams, EXECUTED)
    name = os.path.splitext(os.path.basename(path))[0]
    row = [name, str(hparams.max_seq_length), f"{steps / 1e3:g}", f"{examples / 1e6:.1f}"]
    if flops is None:
        return [*row, "not counted", *("" for _ in groups)]
    flops *= steps / hparams.num_train_steps
    return [*row, f"{flops:.2e}", *(f"{group.hours(flops, share):.3g}" for group in groups)]


def _stated_cost(recipe: str) -> dict:
    """Returns the `about.cost` object of a recipe file, {} if it has none."""
    cost = read_json_object(recipe).get("about", {}).get("cost", {})
    return cost if isinstance(cost, dict) else {}


def published_recipes() -> list[str]:
    """Returns the files in configs/ that state training FLOPs, for objectives of encoders.

    Excludes language models, whose data has words.
    """
    paths = sorted(map(str, CONFIGS.glob("*.json")))
    encoders = [path for path in paths if read_json_object(path).get("objective") != "causal_lm"]
    return [path for path in encoders if "training_flops" in _stated_cost(path)]


def published_rows(share: float) -> list[tuple]:
    """Returns model, source, devices, FLOPs, published hours, implied share of the peak, our hours
    at `share`, and the ratio of the two times."""
    published = {row.name: row for row in PUBLISHED}
    rows = []
    for model, row, hours, devices, source in PUBLISHED_HOURS:
        flops = present(training_flops(hparams_of(published[row]), EXECUTED))
        computed = parse_group(devices).hours(flops, share)
        ratio = hours / computed
        rows.append((model, source, devices, flops, hours, share / ratio, computed, ratio))
    return rows


def main(argv: list[str]) -> None:
    """Prints the tables."""
    arguments = parse_arguments(
        argv,
        recipes={"help": "JSON files of runs, comma-separated (default: of papers)"},
        devices={"default": "h100,h100:8,tpu_v3-8", "help": ", ".join(PEAKS)},
        attained_share={"type": float, "default": ASSUMED_SHARE, "help": "assumed: %(default)s"},
    )
    share, markdown = arguments.attained_share, arguments.markdown
    if not 0 < share <= 1:
        raise InputError(f"--attained_share should be in (0, 1]. Received: {share}")
    groups = [parse_group(name.strip()) for name in arguments.devices.split(",")]
    paths = arguments.recipes.split(",") if arguments.recipes else published_recipes()
    header = ["recipe", "length", "k steps", "M examples", "FLOPs"]
    header += [f"{group.name}: hours" for group in groups]
    of_recipes = format_table(header, [recipe_row(p, groups, share) for p in paths], markdown)
    header = ["model", "source", "devices", "FLOPs", "published hours", "implied share"]
    header += ["computed hours", "published / computed"]
    forms = ("", "", "", ".2e", ".3g", ".3f", ".1f", ".2f")
    cells = [list(map(format, row, forms)) for row in published_rows(share)]
    parts = {
        f"Hours of the recipes at {share:g} of the peak": of_recipes,
        "Published training times, as a check": format_table(header, cells, markdown),
    }
    print(sections(parts, markdown))


if __name__ == "__main__":
    main_with_clear_errors(main, takes_arguments=True)(["cost", *sys.argv[1:]])
