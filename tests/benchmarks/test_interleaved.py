"""Interleaved runs of systems in processes of their own; what cannot run is missing or an error."""

import math
import os

import pytest

from convbert.benchmarks.interleaved import Result, System, check_same, measure, ratio
from convbert.common.errors import InputError

TRIVIAL = """
import os, time

print("libraries print")

def sleep(seconds):
    def run():
        time.sleep(seconds)
        print("while they work, too")
    run.facts = {"slept": seconds, "process": os.getpid()}
    return run

def incomplete():
    import package_that_nobody_has

def breaks_later(calls):
    left = iter(range(calls))
    return lambda: next(left)
"""


@pytest.fixture
def system(tmp_path, monkeypatch):
    (tmp_path / "trivial_systems.py").write_text(TRIVIAL)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def make(name, function, **arguments):
        return System(name, f"trivial_systems:{function}", arguments)

    return make


def test_times_facts_and_what_is_missing(system):
    systems = [system("slow", "sleep", seconds=0.1), system("incomplete", "incomplete")]
    systems.append(system("fast", "sleep", seconds=0.02))
    results = measure(systems, rounds=3, seconds=0.05)
    assert list(results) == ["slow", "incomplete", "fast"]
    slow, fast, missing = results["slow"], results["fast"], results["incomplete"]
    assert len(slow.seconds) == len(fast.seconds) == 3
    assert slow.median >= 0.1
    assert fast.median >= 0.02
    assert 1.0 < ratio(slow, fast) < 10
    assert slow.facts["slept"] == 0.1
    assert len({slow.facts["process"], fast.facts["process"], os.getpid()}) == 3
    assert fast.peak_memory > 0.001
    assert "package_that_nobody_has" in missing.missing
    assert missing.seconds == ()
    assert math.isnan(missing.median)
    assert math.isnan(ratio(missing, fast))


def test_a_system_that_fails_is_named(system):
    broken = system("broken", "breaks_later", calls=3)  # one before the measurements, one in each
    with pytest.raises(InputError):
        measure([broken], rounds=3, seconds=0.0)


def test_systems_that_should_agree():
    found = {"a": [1.0, 2.0], "b": [1.0, 2.05], "c": None}
    results = {name: Result(facts={"vector": vector}) for name, vector in found.items()}
    check_same(results, "vector", {"a": 0.0, "b": 0.1, "c": 0.0, "absent": 0.0})
    check_same(results, "other", {"a": 0.0, "b": 0.0})
    with pytest.raises(InputError):
        check_same(results, "vector", {"a": 0.1, "b": 0.01})
