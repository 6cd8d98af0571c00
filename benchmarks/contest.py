"""Contestants measured side by side: each in a process of its own, taking turns.

A machine that does other things too, or whose clock drifts, slows all contestants of a round alike,
so ratios within rounds hold where single times do not. One process each keeps thread pools and
memory apart; only one of them runs at any time.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from errors import InputError

_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "TF_NUM_INTRAOP_THREADS")


@dataclasses.dataclass(frozen=True)
class Contestant:
    """Something to be timed.

    Attributes:
        name: of its row.
        target: "package.module:function". Called once with `arguments`, the function returns what
            is timed: a callable without arguments that returns when its work is done.
        arguments: JSON values.
        folder: another checkout to import the target from. Default: this one.
        environment: variables to set for its process.
    """

    name: str
    target: str
    arguments: dict[str, Any] = dataclasses.field(default_factory=dict)
    folder: str | None = None
    environment: dict[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Result:
    """What was measured of a contestant; without seconds if it could not run.

    Attributes:
        seconds: of one call, for each round.
        peak_memory: of its process, GiB.
        facts: what the target says of itself, such as FLOPs, by `facts` of the callable.
        missing: why it did not run.
    """

    seconds: tuple[float, ...] = ()
    peak_memory: float = float("nan")
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)
    missing: str = ""

    @property
    def median(self) -> float:
        """Median seconds of a call; NaN if it did not run."""
        return statistics.median(self.seconds) if self.seconds else float("nan")


def compete(
    contestants: Sequence[Contestant], rounds: int = 7, seconds: float = 0.5
) -> dict[str, Result]:
    """Times all contestants in turns, in alternating order.

    Args:
        contestants: with distinct names.
        rounds: measurements of each.
        seconds: a measurement repeats the call until about this much time has passed.

    Returns:
        Results by name. A contestant whose package is not installed is missing; one that fails
        raises InputError with its last words.
    """
    with contextlib.ExitStack() as stack:
        workers = {c.name: stack.enter_context(_Worker(c, seconds)) for c in contestants}
        running = [worker for worker in workers.values() if worker.start()]
        times: dict[str, list[float]] = {name: [] for name in workers}
        for number in range(rounds):
            for worker in running if number % 2 == 0 else reversed(running):
                times[worker.contestant.name].append(worker.measure())
        return {name: worker.result(times[name]) for name, worker in workers.items()}


def ratio(first: Result, second: Result) -> float:
    """Median over rounds of first's time over second's; NaN if one did not run."""
    pairs = list(zip(first.seconds, second.seconds))
    return statistics.median(a / b for a, b in pairs) if pairs else float("nan")


def _environment() -> dict[str, str]:
    """Ours, without what would keep one of the libraries from using all cores."""
    kept = {name: value for name, value in os.environ.items() if name not in _THREADS}
    return {**kept, "TF_CPP_MIN_LOG_LEVEL": "3"}


class _Worker:
    """The process of a contestant, and what is said to it."""

    def __init__(self, contestant: Contestant, seconds: float):
        self.contestant, self.seconds = contestant, seconds
        self._ready: dict[str, Any] = {}
        self._peak = float("nan")

    def __enter__(self):
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.worker"],
            cwd=self.contestant.folder or os.getcwd(),
            env={**_environment(), **self.contestant.environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *unused):
        self._process.stdin.close()
        self._process.wait()

    def start(self) -> bool:
        """Builds and warms up the contestant, alone; whether it can take part."""
        described = {
            "target": self.contestant.target,
            "arguments": self.contestant.arguments,
            "seconds": self.seconds,
        }
        self._ready = self._ask(described)
        return "missing" not in self._ready

    def measure(self) -> float:
        """Seconds of a call, measured now."""
        answer = self._ask({"measure": True})
        self._peak = answer["peak_memory"]
        return answer["seconds"]

    def result(self, times: list[float]) -> Result:
        """What is known of it, with the seconds that were measured."""
        if "missing" in self._ready:
            return Result(missing=self._ready["missing"])
        return Result(tuple(times), self._peak, self._ready["facts"])

    def _ask(self, message: dict[str, Any]) -> dict[str, Any]:
        with contextlib.suppress(BrokenPipeError):  # it has ended; the answer will be empty
            print(json.dumps(message), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            raise InputError(
                f"benchmark {self.contestant.name!r} ended with {self._process.wait()};"
                " its messages are above"
            )
        return json.loads(answer)
