"""The arithmetic of analysis.cost: corpora, recipes and devices to disk, hours and bandwidth."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from typing import Any

from analysis.devices import Group, parse_group
from analysis.operations import EXECUTED, training_flops
from analysis.recipes import hparams_of, recipe_hparams
from errors import InputError
from finetune.published import PUBLISHED
from pretrain.hparams import PretrainingHParams
from settings import read_json_object

CONFIGS = pathlib.Path(__file__).parents[1] / "configs"
CORPORA_GB = (16.0, 32.0, 160.0)
FORMULAS = {
    "tokens": "text bytes / characters per token, at one byte a character",
    "examples": "tokens / tokens per example",
    "disk": "examples x bytes per example",
    "build hours": "tokens / (tokens per second x build machines) / 3600",
    "FLOPs": f"executed, as analysis.flops counts them: forward pass x {1 + EXECUTED.backward:g}, "
    "no lookups; steps x batch x length tokens",
    "hours": "FLOPs / (peak of a device x devices x attained share) / 3600",
    "device-hours": "hours x devices",
    "reading": "steps x batch x bytes per example / seconds",
    "epochs": "steps x batch / examples",
}


@dataclasses.dataclass(frozen=True)
class DataRates:
    """What building data costs, as benchmarks.data_building measures it.

    Attributes:
        tokens_per_second: of the builder on one machine.
        characters_per_token: of the text.
        tokens_per_example: by maximum sequence length; short documents give short examples.
        bytes_per_example: on disk, by maximum sequence length.
        build_machines: that share the work; the rate is taken to grow with them.
    """

    tokens_per_second: float = 3.21e6
    characters_per_token: float = 4.586
    tokens_per_example: dict[int, float] = dataclasses.field(
        default_factory=lambda: {128: 102.45, 512: 242.58}
    )
    bytes_per_example: dict[int, float] = dataclasses.field(
        default_factory=lambda: {128: 583.7, 512: 1884.3}
    )
    build_machines: int = 1

    def of_length(self, length: int) -> tuple[float, float]:
        """Tokens and bytes of an example of a maximum sequence length.

        Raises:
            InputError: none were measured, and none given.
        """
        if length not in self.tokens_per_example or length not in self.bytes_per_example:
            raise InputError(
                f"--tokens_per_example and --bytes_per_example are needed for length {length}:"
                f" measured are {', '.join(map(str, self.tokens_per_example))}"
            )
        return self.tokens_per_example[length], self.bytes_per_example[length]


MEASURED_AT = {
    "tokens_per_second": "benchmarks.data_building, wiki_en, one process on two cores of an AMD "
    "EPYC, commit 8b9972b (docs/performance.md)",
    "characters_per_token": "benchmarks.data_building, wiki_en, BERT's English vocabulary",
    "tokens_per_example": "the same; --max_seq_length 128 and 512",
    "bytes_per_example": "the same",
    "build_machines": "more are ASSUMED to be as many times faster",
}


@dataclasses.dataclass(frozen=True)
class PublishedTime:
    """A training time that a paper prints.

    Attributes:
        model: as the paper calls it.
        row: name of the row of `finetune.published` that counts its FLOPs.
        hours: of training.
        devices: see `analysis.devices.parse_group`.
        source: document and place.
    """

    model: str
    row: str
    hours: float
    devices: str
    source: str


_TABLE_5 = "ConvBERT author response, Table 5"
PUBLISHED_TIMES = (
    PublishedTime("ELECTRA-small", "BERT-small RTD 32G 1M", 12, "tpu_v3-8", _TABLE_5),
    PublishedTime("ELECTRA-base", "BERT-base RTD 16G 766k", 192, "tpu_v3-8", _TABLE_5),
    PublishedTime("ConvBERT-small", "ConvBERT-small RTD 32G 1M", 12, "tpu_v3-8", _TABLE_5),
    PublishedTime(
        "ConvBERT-medium-small", "ConvBERT-small-plus RTD 32G 1M", 18, "tpu_v3-8", _TABLE_5
    ),
    PublishedTime("ConvBERT-base", "ConvBERT-base RTD 32G 1M", 72, "tpu_v3-8", _TABLE_5),
    # 31.3 steps a second; the paper measures matrix units busy for 14.93 % of the time.
    PublishedTime(
        "ELECTRA-small", "BERT-small RTD 32G 1M", 1e6 / 31.3 / 3600, "tpu_v3-8", "SCRIPT, 3.3"
    ),
)


def corpus_cost(gigabytes: float, length: int, rates: DataRates) -> dict[str, float]:
    """What a corpus of a size (10^9 bytes of text) costs as examples of a maximum length."""
    tokens_each, bytes_each = rates.of_length(length)
    tokens = gigabytes * 1e9 / rates.characters_per_token
    examples = tokens / tokens_each
    seconds = tokens / (rates.tokens_per_second * rates.build_machines)
    return {
        "gigabytes": gigabytes,
        "max_seq_length": length,
        "tokens": tokens,
        "examples": examples,
        "disk_bytes": examples * bytes_each,
        "build_hours": seconds / 3600,
    }


def hours(flops: float, group: Group, share: float) -> float:
    """Time of a number of operations at a share of the peak rate of some devices."""
    return flops / (group.peak * share) / 3600


def implied_share(flops: float, group: Group, measured_hours: float) -> float:
    """The share of the peak rate at which operations take a time."""
    return flops / (group.peak * measured_hours * 3600)


def recipe_cost(
    hparams: PretrainingHParams,
    groups: list[Group],
    share: float,
    rates: DataRates,
    steps: int | None = None,
) -> dict[str, Any]:
    """What a run costs.

    Args:
        hparams: of the run.
        groups: the devices to count it for.
        share: attained share of their peak rate.
        rates: of the data.
        steps: made here, where a run continues another; None means all.

    Returns:
        `flops` (None where the objective is not counted, and then no `on`), `examples` read,
        `epochs` by gigabytes of corpus, and `on`: by group `hours`, `device_hours` and
        `reading_bytes_per_second`.
    """
    steps = steps or hparams.num_train_steps
    flops, length = training_flops(hparams, EXECUTED), hparams.max_seq_length
    read = steps * hparams.train_batch_size
    cost: dict[str, Any] = {"max_seq_length": length, "steps": steps, "examples": read}
    cost["epochs"] = {
        f"{gb:g}": read / corpus_cost(gb, length, rates)["examples"] for gb in CORPORA_GB
    }
    cost["flops"] = flops if flops is None else flops * steps / hparams.num_train_steps
    if flops is not None:
        cost["on"] = {
            group.name: _on(cost["flops"], group, share, read * rates.of_length(length)[1])
            for group in groups
        }
    return cost


def _on(flops: float, group: Group, share: float, bytes_read: float) -> dict[str, float]:
    time = hours(flops, group, share)
    return {
        "hours": time,
        "device_hours": time * group.count,
        "reading_bytes_per_second": bytes_read / (time * 3600),
    }


def published_checks(share: float) -> list[dict[str, Any]]:
    """The published times, what share of the peak they imply, and what `hours` says."""
    rows = {row.name: row for row in PUBLISHED}
    checks = []
    for time in PUBLISHED_TIMES:
        group = parse_group(time.devices)
        flops = training_flops(hparams_of(rows[time.row]), EXECUTED)
        assert flops is not None
        computed = hours(flops, group, share)
        check = dataclasses.asdict(time) | {"flops": flops, "computed_hours": computed}
        check["implied_share"] = implied_share(flops, group, time.hours)
        checks.append(check | {"published_over_computed": time.hours / computed})
    return checks


def published_recipes() -> list[str]:
    """The files in configs/ whose header states training FLOPs, of objectives that learn encoders.

    Data of language models has words and lengths that `DataRates` does not know.
    """
    paths = sorted(map(str, CONFIGS.glob("*.json")))
    encoders = [path for path in paths if read_json_object(path).get("objective") != "causal_lm"]
    return [path for path in encoders if "training_flops" in _stated_cost(path)]


def _stated_cost(text_or_path: str) -> dict[str, Any]:
    cost = read_json_object(text_or_path).get("about", {}).get("cost", {})
    return cost if isinstance(cost, dict) else {}


def all_costs(
    recipes: list[str], groups: list[Group], share: float, given_share: bool, rates: DataRates
) -> dict[str, Any]:
    """Everything that the command prints, as JSON has it."""
    names = [os.path.splitext(os.path.basename(recipe))[0] for recipe in recipes]
    return {
        "formulas": FORMULAS,
        "inputs": {
            "attained_share": share,
            "attained_share_is": "given by --attained_share" if given_share else "ASSUMED",
            "data": dataclasses.asdict(rates),
            "devices": {
                group.name: {"count": group.count, **dataclasses.asdict(group.device)}
                for group in groups
            },
        },
        "corpora": [
            corpus_cost(gigabytes, length, rates)
            for gigabytes in CORPORA_GB
            for length in rates.tokens_per_example
        ],
        "recipes": {
            name: recipe_cost(
                recipe_hparams(recipe), groups, share, rates, _stated_cost(recipe).get("updates")
            )
            for name, recipe in zip(names, recipes)
        },
        "published": published_checks(share),
    }
