"""Benchmarks of exported models: their tables, the models they keep, and concurrent clients."""

import pathlib
import threading
import time

import pytest

from benchmarks import latency_table, served
from errors import InputError


def test_export_latency(command):
    arguments = ["export_latency", "--sizes=small", "--batches=1,32", "--lengths=16"]
    seconds = {"SavedModel": 0.5, "HF ConvBERT": 0.8}
    facts = {"SavedModel": {"vector": [1.0, 2.0]}, "HF ConvBERT": {"vector": [1.0, 2.00001]}}
    prepare = {"prepare": lambda size, folder: []}
    rows = command(*arguments, seconds=seconds, facts=facts, **prepare)
    assert [row[:3] for row in rows] == [["small", "1", "16"], ["small", "32", "16"]]
    assert rows[0][3:] == ["500.0", "1000.0", "800.0", "1000.0", "1.60", "1.00"]
    facts["HF ConvBERT"] = {"vector": [1.0, 2.1]}
    with pytest.raises(InputError, match="vectors"):
        command(*arguments, facts=facts, **prepare)


def test_serving(command):
    arguments = ["serving", "--batches=1", "--lengths=16"]
    prepare, same = {"prepare": lambda size, folder: []}, {"vector": [1.0, 2.0]}
    seconds = {"SavedModel": 0.5, "LiteRT": 0.2, "ORT ConvBERT": 0.4}
    facts = {"SavedModel": same, "LiteRT": same, "LiteRT ELECTRA": {"vector": [5.0, 6.0]}}
    ((*shape_and_times, electra, huggingface, _, int8, onnx),) = command(
        *arguments, seconds=seconds, facts=facts, **prepare
    )
    assert shape_and_times[:5] == ["small", "1", "16", "500.0", "200.0"]
    assert (electra, huggingface, int8, onnx) == ("5.00", "5.00", "1.00", "0.80")
    for name, vector in {"HF": [1.0, 2.1], "LiteRT float16": [1.0, 2.02]}.items():
        with pytest.raises(InputError, match=name):
            command(*arguments, facts={**facts, name: {"vector": vector}}, **prepare)
    near = {"vector": [1.0, 2.005]}
    assert command(*arguments, facts={**facts, "LiteRT float16": near}, **prepare)
    two = ["--systems=LiteRT,SavedModel", "--input=text"]
    (row,) = command(*arguments, *two, seconds=seconds, facts=facts, **prepare)
    assert row == ["small", "1", "16", "200.0", "500.0"]
    halves = {"LiteRT float16": near, "HF": same}
    half_first = ["--systems=LiteRT float16,HF,HF"]
    assert command(*arguments, *half_first, facts=halves, **prepare)
    with pytest.raises(InputError, match="Did you mean `LiteRT`"):
        command(*arguments, "--systems=LiteRTX", **prepare)


def test_serving_of_several_clients(command):
    arguments = ["serving", "--batches=2", "--lengths=16", "--systems=LiteRT,HF", "--clients=4"]
    both = {"latencies": [0.1] * 50 + [0.3] * 50, "requests": 8}
    facts = {"LiteRT": both, "HF": both}
    prepare = {"prepare": lambda size, folder: []}
    rows = command(*arguments, seconds={"LiteRT": 0.5}, facts=facts, **prepare)
    assert rows[0] == ["LiteRT", "small", "2", "16", "32.0", "200.0", "300.0", "2.00"]
    assert [row[4] for row in rows] == ["32.0", "16.0"]
    facts["HF"] = {**both, "vector": [1.0]}
    facts["LiteRT"] = {**both, "vector": [2.0]}
    with pytest.raises(InputError, match="HF"):
        command(*arguments, facts=facts, **prepare)


def test_models_are_kept(tmp_path, monkeypatch):
    made = []

    def prepare(size, folder):
        made.append(size)
        assert not list(pathlib.Path(folder).iterdir())
        return [f"made {size}"]

    for _ in range(2):
        with latency_table.models("small", prepare, str(tmp_path / "kept")) as found:
            assert found == (f"{tmp_path}/kept/small", ["made small"])
    assert made == ["small"]
    monkeypatch.setattr(latency_table, "git_commit", lambda: "another")
    with pytest.raises(InputError, match="another"):
        latency_table.models("small", prepare, str(tmp_path / "kept")).__enter__()
    with latency_table.models("small", prepare, None) as (folder, _):
        assert pathlib.Path(folder).is_dir()
    assert not pathlib.Path(folder).exists()


def test_requests_of_several_clients(monkeypatch):
    """All of them ask at once; what was noted before `begin` is forgotten."""
    at_once, most, lock = set(), [], threading.Lock()

    def request(pause):
        def ask():
            with lock:
                at_once.add(threading.get_ident())
                most.append(len(at_once))
            time.sleep(pause)
            with lock:
                at_once.remove(threading.get_ident())

        return ask

    monkeypatch.setattr(served, "made_up", request, raising=False)
    run = served.under_load("benchmarks.served:made_up", {"pause": 0.02}, clients=3)
    run()
    assert max(most) == 3
    run.begin()
    assert run.facts["latencies"] == []
    run()
    assert len(run.facts["latencies"]) == run.facts["requests"] > 3
    assert min(run.facts["latencies"]) >= 0.02
