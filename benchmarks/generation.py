"""Tokens per second of generation, with what later tokens need of earlier ones kept or not.

    python -m benchmarks.generation --batches 1 --new 64

Both systems have the same random weights and add the most probable token each time.
"""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
from absl import app, flags

from benchmarks.interleaved import Result, System, measure, ratio
from benchmarks.table import Report
from errors import InputError, main_with_clear_errors
from model import named_size

_SIZES = flags.DEFINE_list("sizes", ["causal-mixed-small"], "Named sizes of causal encoders.")
_BATCHES = flags.DEFINE_list("batches", ["1", "8"], "Texts that are continued together.")
_PROMPT = flags.DEFINE_integer("prompt", 32, "Tokens of the text to continue.", lower_bound=1)
_NEW = flags.DEFINE_list("new", ["96"], "Tokens to add.")
_ROUNDS = flags.DEFINE_integer("rounds", 3, "Interleaved runs of each system.")
CACHED, UNCACHED = "cached", "uncached"


def main(argv: list[str]) -> None:
    """Prints a row per size, batch and number of new tokens."""
    columns = {"size": "", "batch": "d", "prompt": "d", "new": "d"}
    columns |= {f"{name} tokens/s": ".0f" for name in (CACHED, UNCACHED)}
    report = Report(columns | {"speed-up": ".2f"})
    for size, batch, new in itertools.product(_SIZES.value, _BATCHES.value, _NEW.value):
        arguments = {"fields": dataclasses.asdict(named_size(size)), "batch": int(batch)}
        arguments |= {"prompt": _PROMPT.value, "new": int(new)}
        systems = [
            System(name, "benchmarks.ours_generation:generation", arguments | {"cached": cached})
            for name, cached in ((CACHED, True), (UNCACHED, False))
        ]
        results = measure(systems, _ROUNDS.value)
        check_agreement(results)
        speeds = [results[name].facts["tokens"] / results[name].median for name in results]
        faster = ratio(results[UNCACHED], results[CACHED])
        report.row(size, int(batch), _PROMPT.value, int(new), *speeds, faster)
    report.end()


def check_agreement(results: dict[str, Result]) -> None:
    """Raises InputError where the two add other tokens, beyond what rounding may decide."""
    cached, uncached = (np.array(results[name].facts["added"]) for name in (CACHED, UNCACHED))
    same = np.mean(cached == uncached)
    if same < 0.9:
        raise InputError(f"both should add the same tokens. Received: {same:.0%} that are")


if __name__ == "__main__":
    app.run(main_with_clear_errors(main))
