"""The arithmetic of analysis.cost: corpora, recipes and devices to disk, hours and bandwidth."""

from __future__ import annotations

import dataclasses
from typing import Any

from analysis.operations import EXECUTED, hparams_of, training_flops
from common.errors import InputError
from common.settings import did_you_mean, present
from finetune.published import PUBLISHED
from pretrain.hparams import PretrainingHParams

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
    """Throughput and size of built data, measured by benchmarks.data_building, with sources."""

    tokens_per_second: float = dataclasses.field(  # of the builder on one machine
        default=3.21e6,
        metadata={
            "source": "benchmarks.data_building, wiki_en, one process on two cores of an AMD EPYC,"
            " commit 8b9972b (docs/results.md)"
        },
    )
    characters_per_token: float = dataclasses.field(
        default=4.586,
        metadata={"source": "benchmarks.data_building, wiki_en, BERT's English vocabulary"},
    )
    # By maximum sequence length; short documents give short examples.
    tokens_per_example: dict[int, float] = dataclasses.field(
        default_factory=lambda: {128: 102.45, 512: 242.58},
        metadata={"source": "the same; --max_seq_length 128 and 512"},
    )
    bytes_per_example: dict[int, float] = dataclasses.field(  # on disk
        default_factory=lambda: {128: 583.7, 512: 1884.3}, metadata={"source": "the same"}
    )
    build_machines: int = dataclasses.field(
        default=1, metadata={"source": "more are ASSUMED to be as many times faster"}
    )

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


# Matrix products without sparsity, FLOP/s, in bfloat16 (V100: float16; of a TPU it is a chip), and
# where the maker says so.
PEAKS = {
    "h100": (989.4e12, "NVIDIA H100 data sheet: 1,979 with sparsity"),
    "a100": (312e12, "NVIDIA A100 data sheet"),
    "v100": (125e12, "NVIDIA V100 data sheet, float16"),
    "tpu_v3": (123e12, "Google Cloud TPU documentation, v3"),
    "tpu_v4": (275e12, "Google Cloud TPU documentation, v4"),
    "tpu_v5e": (197e12, "Google Cloud TPU documentation, v5e"),
    "tpu_v5p": (459e12, "Google Cloud TPU documentation, v5p"),
}
# A v3 chip has two cores, and slices are named by their cores.
_SLICES = {"tpu_v3-8": "tpu_v3:4"}


@dataclasses.dataclass(frozen=True)
class Group:
    """Accelerators that share a batch, named `h100`, `h100:8` or `tpu_v3-8`."""

    name: str
    count: int
    each: float  # peak of one, FLOP/s
    source: str = ""  # of that figure

    @property
    def peak(self) -> float:
        """Of all together, FLOP/s."""
        return self.count * self.each


def parse_group(name: str) -> Group:
    """The accelerators of a name: DEVICE, DEVICE:COUNT, or tpu_v3-8.

    Raises:
        InputError: unknown device, or a count that is none.
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
    return Group(name, int(count or 1), *PEAKS[device])


# Hours of training that papers print: model, row of `finetune.published` that counts its FLOPs,
# hours, devices, source.
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


def corpus_cost(gigabytes: float, length: int, rates: DataRates) -> dict[str, float]:
    """Returns the cost of `gigabytes` (10^9 bytes) of text as examples of a maximum length."""
    tokens_each, bytes_each = rates.of_length(length)
    tokens = gigabytes * 1e9 / rates.characters_per_token
    examples = tokens / tokens_each
    seconds = tokens / (rates.tokens_per_second * rates.build_machines)
    counts = {"tokens": tokens, "examples": examples, "disk_bytes": examples * bytes_each}
    return {**counts, "build_hours": seconds / 3600}


def hours(flops: float, group: Group, share: float) -> float:
    """Time of a number of operations at a share of the peak rate of some devices."""
    return flops / (group.peak * share) / 3600


def recipe_cost(
    hparams: PretrainingHParams,
    groups: list[Group],
    share: float,
    rates: DataRates,
    steps: int | None = None,
) -> dict[str, Any]:
    """Returns the cost of a run on groups of devices, at a share of their peak rate.

    Args:
        steps: steps of this run alone, if it continues another; None means all.

    Returns:
        `length`, `steps`, `examples` read, `epochs` by gigabytes of corpus, `flops` (None where the
        objective is not counted, and then no `on`), and `on`: by group `hours`, `device_hours` and
        `reading_bytes_per_second`.
    """
    steps = steps or hparams.num_train_steps
    flops, length = training_flops(hparams, EXECUTED), hparams.max_seq_length
    read = steps * present(hparams.train_batch_size)
    epochs = {gb: read / corpus_cost(gb, length, rates)["examples"] for gb in CORPORA_GB}
    on: dict[str, dict[str, float]] = {}
    cost = {"length": length, "steps": steps, "examples": read, "epochs": epochs, "on": on}
    if flops is not None:
        flops *= steps / hparams.num_train_steps
        for group in groups:
            time = hours(flops, group, share)
            on[group.name] = {
                "hours": time,
                "device_hours": time * group.count,
                "reading_bytes_per_second": read * rates.of_length(length)[1] / (time * 3600),
            }
    return {**cost, "flops": flops}


def published_checks(share: float) -> list[dict[str, Any]]:
    """The published times, what share of the peak they imply, and what `hours` says."""
    rows = {row.name: row for row in PUBLISHED}
    checks = []
    for model, row, published, devices, source in PUBLISHED_HOURS:
        flops = present(training_flops(hparams_of(rows[row]), EXECUTED))
        computed = hours(flops, parse_group(devices), share)
        checks.append(
            {
                "model": model,
                "source": source,
                "devices": devices,
                "flops": flops,
                "hours": published,
                "implied_share": share * computed / published,
                "computed_hours": computed,
                "published_over_computed": published / computed,
            }
        )
    return checks
