"""The process of one system: interleaved.py starts it and says when to measure."""

from __future__ import annotations

import importlib
import json
import os
import sys
import time

from convbert.common.machine import peak_memory_gib
from convbert.common.startup import keep_memory


def main() -> None:
    """Answers one line of JSON on standard output for each on standard input."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever libraries print goes elsewhere

    def answer(**values) -> None:
        print(json.dumps(values), file=answers, flush=True)

    task = json.loads(sys.stdin.readline())
    module, function = task["target"].split(":")
    if module in ("convbert.benchmarks.ours", "convbert.benchmarks.served"):
        keep_memory()  # as commands do
    try:
        run = getattr(importlib.import_module(module), function)(**task["arguments"])
    except ModuleNotFoundError as error:
        answer(missing=f"{error.name} is not installed")
        return
    getattr(run, "warm_up", run)()  # traces, compiles, fills pipelines
    steps = getattr(run, "steps", 1)
    repeats = max(1, round(task["seconds"] / _seconds(run, 1))) if task["seconds"] else 1
    answer()
    for _ in sys.stdin:
        seconds = _seconds(run, repeats, steps)
        answer(seconds=seconds, peak_memory=peak_memory_gib(), facts=getattr(run, "facts", {}))


def _seconds(run, repeats: int, steps: int = 1) -> float:
    """Returns the mean seconds of a step; each call takes `steps`."""
    start = time.perf_counter()
    for _ in range(repeats):
        run()
    return (time.perf_counter() - start) / repeats / steps


if __name__ == "__main__":
    main()
