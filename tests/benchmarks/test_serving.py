"""Benchmarks of exported models: concurrent clients."""

import threading

from benchmarks import served


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
