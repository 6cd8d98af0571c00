"""Contestants take turns in processes of their own; what cannot run is missing or an error."""

import math
import os

import pytest

from benchmarks.contest import Contestant, Result, compete, ratio
from errors import InputError

CONTESTANTS = """
import os, time

print("libraries print")

def sleep(seconds):
    def run():
        time.sleep(seconds)
        print("while they work, too")
    run.facts = {"slept": seconds, "process": os.getpid(), "word": os.environ.get("WORD")}
    return run

def incomplete():
    import package_that_nobody_has

def broken():
    raise ValueError("there is no such network")

def breaks_later(calls):
    left = iter(range(calls))
    return lambda: next(left)
"""


@pytest.fixture
def contestant(tmp_path):
    (tmp_path / "trivial_contestants.py").write_text(CONTESTANTS)

    def make(name, function, environment=(), **arguments):
        environment = {"PYTHONPATH": str(tmp_path), **dict(environment)}
        target = f"trivial_contestants:{function}"
        return Contestant(name, target, arguments, environment=environment)

    return make


def test_times_facts_and_what_is_missing(contestant):
    contestants = [
        contestant("slow", "sleep", seconds=0.1),
        contestant("incomplete", "incomplete"),
        contestant("fast", "sleep", {"WORD": "given"}.items(), seconds=0.02),
    ]
    results = compete(contestants, rounds=3, seconds=0.05)
    assert list(results) == ["slow", "incomplete", "fast"]
    slow, fast, missing = results["slow"], results["fast"], results["incomplete"]
    assert len(slow.seconds) == len(fast.seconds) == 3
    assert slow.median >= 0.1
    assert fast.median >= 0.02
    assert 1.0 < ratio(slow, fast) < 10
    assert slow.facts["slept"] == 0.1
    assert slow.facts["word"] is None
    assert fast.facts["word"] == "given"
    assert len({slow.facts["process"], fast.facts["process"], os.getpid()}) == 3
    assert fast.peak_memory > 0.001
    assert missing.missing == "package_that_nobody_has is not installed"
    assert missing.seconds == ()
    assert math.isnan(missing.median)
    assert math.isnan(ratio(missing, fast))


def test_a_contestant_that_cannot_be_built(contestant):
    with pytest.raises(InputError, match="'broken' ended with 1"):
        compete([contestant("fast", "sleep", seconds=0.0), contestant("broken", "broken")])


def test_a_contestant_that_breaks_while_it_is_measured(contestant):
    # Two calls before the measurements, one in each.
    with pytest.raises(InputError, match="'breaks' ended with 1"):
        compete([contestant("breaks", "breaks_later", calls=4)], rounds=3, seconds=0.0)


def test_the_ratio_is_the_median_of_those_of_the_rounds():
    assert ratio(Result((2.0, 40.0, 9.0)), Result((1.0, 10.0, 3.0))) == 3.0
