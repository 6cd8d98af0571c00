"""Commands of benchmarks without what they measure."""

import importlib
import inspect
import json

import pytest

from benchmarks.interleaved import Result
from model import EncoderConfig
from tests.command_flags import import_command


@pytest.fixture
def command(monkeypatch, capsys):
    """Runs a command with made-up results: a call takes `seconds`, by name, 1.0 for others."""

    def run(name, *arguments, seconds=None, facts=None, **replaced):
        module, own = import_command(monkeypatch, f"benchmarks.{name}")

        def measure(systems, rounds, seconds=0.5):
            assert rounds >= 1
            return {system.name: result(system) for system in systems}

        def result(system):
            check_arguments(system)
            time = (seconds or {}).get(system.name, 1.0)
            return Result((time,) * 3, 2.0, (facts or {}).get(system.name, {}))

        monkeypatch.setattr(module, "measure", measure)
        for function, stand_in in replaced.items():
            monkeypatch.setattr(module, function, stand_in)
        capsys.readouterr()  # of a command that failed before
        own([name, *arguments])
        module.main([])
        output = capsys.readouterr().out
        monkeypatch.undo()
        rows = [line.split("|")[1:-1] for line in output.splitlines() if line.startswith("|")]
        assert len({len(row) for row in rows}) == 1
        return [[cell.strip() for cell in row] for row in rows[2:]]

    return run


def check_arguments(system):
    """A system's function exists and takes its arguments, which go through JSON."""
    module, function = system.target.split(":")
    arguments = json.loads(json.dumps(system.arguments))
    if not module.startswith("benchmarks."):
        return
    if module != "benchmarks.huggingface":  # which needs torch
        found = importlib.import_module(module)
        inspect.signature(getattr(found, function)).bind(**arguments)
    for name in ("fields", "generator_fields"):
        EncoderConfig(**arguments.get(name, {}))
