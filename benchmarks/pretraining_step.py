"""Time, share of the ceiling and memory of a whole pre-training step, against the peers.

    python -m convbert.benchmarks.pretraining_step  # small, 32 x 128
    python -m convbert.benchmarks.pretraining_step --size base --batch 8
    python -m convbert.benchmarks.pretraining_step --size base --batch 4 --length 512

Ours is what run_pretraining.py does between two batches; Hugging Face's is put together from its
encoders and heads to do the same. The ceiling is a large matrix product in interleaved runs with
the rest. GFLOP/s count the model's matrix products (`ours.step_flops`), those of a row's system.
"""

from __future__ import annotations

import dataclasses
import math

from absl import app, flags

from convbert.benchmarks import ours
from convbert.benchmarks.interleaved import System, measure, ratio
from convbert.benchmarks.table import PRECISIONS, Report
from convbert.common.errors import main_with_clear_errors
from convbert.common.settings import present
from convbert.pretrain.hparams import encoder_config
from convbert.pretrain.objectives.replaced_token_detection import ReplacedTokenDetectionSettings

SYSTEMS = ours.SYSTEMS | {"HF ConvBERT": {}, "HF ELECTRA": ours.ATTENTION}
SYSTEMS |= {"HF ModernBERT": ours.MODERN}
CEILING = "matrix product"

_SIZE = flags.DEFINE_string("size", "small", "Size of ConvBERT.")
_BATCH = flags.DEFINE_integer("batch", 32, "Sequences of a step.")
_LENGTH = flags.DEFINE_integer("length", 128, "Tokens of a sequence.")
_PRECISIONS = flags.DEFINE_multi_enum("precisions", PRECISIONS, PRECISIONS, "Compute dtypes.")
_SYSTEMS = flags.DEFINE_multi_enum(
    "systems",
    # XLNet has no size small, ModernBERT one size whatever --size is.
    [name for name in SYSTEMS if "XLNet" not in name and "ModernBERT" not in name],
    list(SYSTEMS),
    "Systems compared, one each time.",
)
_RELATIVE_TO = flags.DEFINE_enum("relative_to", "ConvBERT", list(SYSTEMS), "System of time 1.")
_SIDE = flags.DEFINE_integer("side", 2048, "Side of the matrix product that is the ceiling.")
_XLA = flags.DEFINE_bool("xla", False, "Compilation: ours by XLA, others by torch.compile.")
_STEPS = flags.DEFINE_integer("steps", 1, "Logging interval, steps; on a GPU more than 1.")
_ROUNDS = flags.DEFINE_integer("rounds", 5, "Interleaved runs of each system.", lower_bound=1)


def main(argv: list[str]) -> None:
    """Prints a row per precision and system."""
    columns = {"system": "", "ms / step": ".1f", "examples/s": ".1f", "GFLOP/s": ".0f"}
    columns |= {"of ceiling": ".0%", "GiB": ".2f", f"time / {_RELATIVE_TO.value}'s": ".2f"}
    report = Report(columns)
    shape = _SIZE.value, _BATCH.value, _LENGTH.value
    for precision in _PRECISIONS.value:
        results = measure(systems(shape, precision), _ROUNDS.value)
        product = results.pop(CEILING)
        ceiling = product.facts.get("flops", math.nan) / product.median / 1e9
        report.row(f"{CEILING}, {precision}", "", "", ceiling, 1.0, "", "")
        for name, found in results.items():
            flops = ours.step_flops(ours.step_hparams(*shape, **SYSTEMS.get(name, {})))
            speed = flops / found.median / 1e9
            times = (1e3 * found.median, _BATCH.value / found.median, speed, speed / ceiling)
            slower = ratio(found, results.get(_RELATIVE_TO.value))
            report.row(f"{name}, {precision}", *times, found.peak_memory, slower)
        report.missing(results)
    report.end()


def systems(shape: tuple[str, int, int], precision: str) -> list[System]:
    """The ceiling, then the systems, in one precision."""
    side = _SIDE.value
    product = {"m": side, "k": side, "n": side, "dtype": precision.removeprefix("mixed_")}
    return [
        System(CEILING, "convbert.benchmarks.ours:matmul", product),
        *(step(name, shape, precision) for name in _SYSTEMS.value),
    ]


def step(name: str, shape: tuple[str, int, int], precision: str) -> System:
    """A system's step."""
    size, batch, length = shape
    shared = {"batch": batch, "length": length, "precision": precision, "steps": _STEPS.value}
    if not name.startswith("HF"):
        arguments = {"size": size, "xla": _XLA.value, **SYSTEMS[name], **shared}
        return System(name, "convbert.benchmarks.ours:pretraining_step", arguments)
    hparams = ours.step_hparams(*shape, **SYSTEMS[name])
    config, objective = encoder_config(hparams, present(hparams.vocab_size)), hparams.objective
    generator = None
    if isinstance(objective, ReplacedTokenDetectionSettings):
        generator = dataclasses.asdict(objective.generator_config(config))
    fields = dataclasses.asdict(config)
    arguments = {"fields": fields, "generator_fields": generator, "compiled": _XLA.value, **shared}
    return System(name, "convbert.benchmarks.huggingface:pretraining_step", arguments)


if __name__ == "__main__":
    app.run(main_with_clear_errors(main))
