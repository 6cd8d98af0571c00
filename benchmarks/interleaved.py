"""Interleaved runs of the systems compared, each in its own process, which runs this file.

A machine that does other things too, or whose clock drifts, slows all systems of a round alike, so
ratios within rounds hold where single times do not. One process each keeps thread pools and memory
apart; only one of them runs at any time.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from convbert.common.errors import InputError
from convbert.common.machine import peak_memory_gib
from convbert.common.startup import keep_memory

# Variables that would keep one of the libraries from using all cores.
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "TF_NUM_INTRAOP_THREADS")


@dataclasses.dataclass(frozen=True)
class System:
    """A system to be timed.

    The target is called once with `arguments` and returns what is timed: a callable without
    arguments that returns when its work is done. First its attribute `warm_up` is called, or itself
    where it has none.
    """

    name: str  # of its row
    target: str  # "package.module:function"
    arguments: dict[str, Any] = dataclasses.field(default_factory=dict)  # JSON values


@dataclasses.dataclass(frozen=True)
class Result:
    """Measurements of a system; without seconds if it could not run."""

    seconds: tuple[float, ...] = ()  # of one call, for each round
    peak_memory: float = math.nan  # of its process, GiB
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)  # `facts` of the callable
    missing: str = ""  # why it did not run

    @property
    def median(self) -> float:
        """Median seconds of a call; NaN if it did not run."""
        return statistics.median(self.seconds) if self.seconds else math.nan


def measure(systems: Sequence[System], rounds: int, seconds: float = 0.5) -> dict[str, Result]:
    """Times all systems in interleaved runs, in alternating order; returns results by name.

    A measurement repeats the call until about `seconds` have passed, which a call beforehand tells;
    0: one call. A system whose package is not installed is missing. InputError if one fails.
    """
    with contextlib.ExitStack() as stack:
        ask_of = {s.name: stack.enter_context(_process_of(s)) for s in systems}
        # One after the other: each builds and warms up its system alone.
        ready = {
            s.name: ask_of[s.name](target=s.target, arguments=s.arguments, seconds=seconds)
            for s in systems
        }
        running = [name for name in ask_of if "missing" not in ready[name]]
        answers: dict[str, list[dict[str, Any]]] = {name: [] for name in running}
        for number in range(rounds):
            for name in running if number % 2 == 0 else reversed(running):
                answers[name].append(ask_of[name](measure=True))
    results = {name: Result(missing=said.get("missing", "")) for name, said in ready.items()}
    for name, measured in answers.items():
        times, last = tuple(answer["seconds"] for answer in measured), measured[-1]
        results[name] = Result(times, last["peak_memory"], last["facts"])
    return results


def ratio(first: Result | None, second: Result | None) -> float:
    """Median over rounds of first's time over second's; NaN if one is None or did not run."""
    pairs = list(zip(first.seconds, second.seconds)) if first and second else []
    return statistics.median(a / b for a, b in pairs) if pairs else math.nan


def check_same(results: dict[str, Result], fact: str, tolerances: dict[str, float]) -> None:
    """Raises InputError if systems' facts differ from the first's by more than the tolerances.

    `tolerances` are by name of the systems that should agree; those that did not run do not count.
    """
    values = {name: results[name].facts.get(fact) or () for name in tolerances if name in results}
    (_, expected), *others = [pair for pair in values.items() if pair[1]] or [("", ())]
    for name, value in others:
        difference = max(abs(a - b) for a, b in zip(value, expected, strict=True))
        if not difference <= tolerances[name]:
            raise InputError(f"{name}: `{fact}` differs from the others' by {difference}")


def run_command(module: str, *arguments: str) -> None:
    """Runs `python -m module`; InputError with its last output if it fails."""
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise InputError(f"{' '.join(command)}: {done.stderr.strip()[-1000:]}")


@contextlib.contextmanager
def _process_of(system: System) -> Iterator[Callable[..., dict[str, Any]]]:
    """Starts a system's process; yields a function that sends a message and returns the answer."""
    inherited = {name: value for name, value in os.environ.items() if name not in _THREADS}
    process: Any = subprocess.Popen(
        [sys.executable, "-m", "convbert.benchmarks.interleaved"],
        env={**inherited, "TF_CPP_MIN_LOG_LEVEL": "3"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def ask(**message: Any) -> dict[str, Any]:
        with contextlib.suppress(BrokenPipeError):  # it has ended; the answer will be empty
            print(json.dumps(message), file=process.stdin, flush=True)
        if answer := process.stdout.readline():
            return json.loads(answer)
        raise InputError(f"{system.name} ended with {process.wait()}; its messages are above")

    try:
        yield ask
    finally:
        with contextlib.suppress(BrokenPipeError):  # it has ended, with a message unread
            process.stdin.close()
        process.wait()
        process.stdout.close()


def work() -> None:
    """Answers each line of JSON on standard input with one: the process of a system."""
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
    work()
