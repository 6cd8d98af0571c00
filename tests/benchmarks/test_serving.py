"""Benchmarks of exported models: their tables, and concurrent clients."""

import threading

import pytest

from benchmarks import served
from benchmarks.interleaved import System
from errors import InputError

SLEEP = "time:sleep"
NOTHING = {"prepare": lambda size, folder, needed: []}


def test_serving(command):
    arguments = ["serving", "--batches=1", "--lengths=16"]
    same = {"vector": [1.0, 2.0]}
    facts = {"SavedModel": same, "LiteRT": same, "LiteRT ELECTRA": {"vector": [5.0, 6.0]}}
    rows = command(*arguments, seconds={"SavedModel": 0.5}, facts=facts, **NOTHING)
    rows = {row[0]: row[1:] for row in rows}
    assert rows["SavedModel"] == ["small", "1", "16", "500.0", "", "2.0", "1.00", "2.00"]
    assert rows["ORT ELECTRA int8"] == ["small", "1", "16", "1000.0", "", "1.0", "2.00", "2.00"]
    with pytest.raises(InputError) as error:
        command(*arguments, facts={**facts, "HF": {"vector": [1.0, 2.1]}}, **NOTHING)
    assert "HF" in str(error.value)


def test_serving_of_several_clients(command):
    arguments = ["serving", "--batches=2", "--lengths=16", "--systems=LiteRT", "--systems=HF"]
    both = {"latencies": [0.1] * 50 + [0.3] * 50, "requests": 8}
    facts = {"LiteRT": both, "HF": both}
    rows = command(*arguments, "--clients=4", seconds={"LiteRT": 0.5}, facts=facts, **NOTHING)
    assert rows[0] == ["LiteRT", "small", "2", "16", "200.0", "300.0", "32.0", "1.00", "2.00"]
    assert rows[1][-3:] == ["16.0", "2.00", "2.00"]


def test_prediction(command):
    facts = {name: {"shares": [0.4, 0.6]} for name in ("LiteRT", "pipeline")}
    one = {"systems": lambda folder: [System(name, SLEEP, {}) for name in facts]}
    seconds = {"pipeline": 4.0}
    rows = command("prediction", "--texts=10", seconds=seconds, facts=facts, **one)
    assert rows == [["LiteRT", "10", "4.00", "2.00"], ["pipeline", "2", "1.00", "2.00"]]
    facts["pipeline"] = {"shares": [0.5, 0.5]}
    with pytest.raises(InputError):
        command("prediction", facts=facts, **one)


def test_requests_of_several_clients(monkeypatch):
    """All of them ask at once; what was noted before `begin` is forgotten."""
    together, alone = threading.Barrier(3), iter([True])

    def ask():
        if not next(alone, False):  # the first warms up
            together.wait(timeout=60)

    monkeypatch.setattr(served, "made_up", lambda: ask, raising=False)
    run = served.under_load("benchmarks.served:made_up", {}, clients=3)
    run()
    run.begin()
    assert run.facts["latencies"] == []
    run()
    assert len(run.facts["latencies"]) == run.facts["requests"] == 12
