"""Every system of ours runs; every command asks for systems that exist and makes its table."""

import dataclasses
import importlib
import inspect
import json

import pytest

from convbert.benchmarks import ours
from convbert.benchmarks.interleaved import Result, System
from convbert.model import EncoderConfig
from tests.build_support import VOCABULARY
from tests.command_flags import import_command
from tests.model_support import TINY

# Ids of benchmarks start at 1000.
WIDE = TINY.replace(vocab_size=1100, num_hidden_layers=1)
FIELDS = dataclasses.asdict(WIDE)
SHAPE = {"batch": 2, "length": 16}
OVERRIDES = ("vocab_size", "embedding_size", "hidden_size", "num_hidden_layers")
OVERRIDES += ("num_attention_heads", "intermediate_size", "conv_kernel_size")
STEP = {
    "size": "tiny",
    "generator_hidden_size": 0.5,
    "model_hparam_overrides": {name: FIELDS[name] for name in OVERRIDES},
}


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    """CoLA in GLUE's format, and a vocabulary."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "CoLA").mkdir()
    rows = [f"a\t{i % 2}\t\t{'a b c ' * (i % 5 + 1)}" for i in range(12)]
    for split in ("train", "dev"):
        (folder / "CoLA" / f"{split}.tsv").write_text("\n".join(rows))
    VOCABULARY.save(folder)
    return str(folder)


def test_every_system_runs(data_dir):
    step = ours.pretraining_step(**STEP, **SHAPE, objective="masked_lm")
    step()
    assert step.facts["flops"] > 0
    fields = dataclasses.asdict(WIDE.replace(vocab_size=VOCABULARY.size))
    files = {"data_dir": data_dir, "vocab": data_dir}
    epoch = ours.finetuning_epoch(fields, task="cola", batch=5, **files)
    epoch()
    assert epoch.facts == {"examples": 10}  # of twelve: full batches only


def test_flops_of_a_training_step():
    """Masked language modelling, counted by hand; three forward passes."""
    hparams = ours.step_hparams(**STEP, **SHAPE, objective="masked_lm")
    D, E, A, N, K, inner, S, V = 16, 8, 8, 2, 5, 32, 16, 1100
    projections = 4 * D * A + 2 * A * D + K * D + D * A + A * N * K
    layer = projections + 2 * A * S + 2 * D * inner
    head = (D * E + E * V) * 2 / S  # two of sixteen tokens are masked
    forward = 2 * (E * D + layer + head)
    assert ours.step_flops(hparams) == pytest.approx(3 * forward * 2 * S)
    assert ours.step_flops(ours.step_hparams(**STEP, **SHAPE)) > 3 * forward * 2 * S


# What commands prepare before they measure.
STAND_INS = {
    "serving": {"prepare": lambda size, folder, needed: []},
    "prediction": {
        "systems": lambda folder: [System(n, "time:sleep", {}) for n in ("LiteRT", "pipeline")]
    },
}


@pytest.fixture
def command(monkeypatch, capsys):
    """Runs a command with made-up results: a call takes `seconds`, by name, 1.0 for others."""

    def run(name, *arguments, seconds, facts):
        module, own = import_command(monkeypatch, f"benchmarks.{name}")

        def measure(systems, rounds, **options):
            for system in systems:
                check_arguments(system)
            times = {system.name: (seconds.get(system.name, 1.0),) * 3 for system in systems}
            return {n: Result(time, 2.0, facts.get(n, {})) for n, time in times.items()}

        monkeypatch.setattr(module, "measure", measure)
        for function, stand_in in STAND_INS.get(name, {}).items():
            monkeypatch.setattr(module, function, stand_in)
        own([name, *arguments])
        module.main([])
        rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
        return [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows[2:]]

    return run


def check_arguments(system):
    """A system's function exists and takes its arguments, which go through JSON."""
    module, function = system.target.split(":")
    arguments = json.loads(json.dumps(system.arguments))
    if not module.startswith("benchmarks."):
        return
    if module != "convbert.benchmarks.huggingface":  # which needs torch
        found = importlib.import_module(module)
        inspect.signature(getattr(found, function)).bind(**arguments)
    for name in ("fields", "generator_fields"):
        EncoderConfig(**arguments.get(name, {}))


TWICE = {"LiteRT": {"shares": [0.4, 0.6]}, "pipeline": {"shares": [0.4, 0.6]}}


@pytest.mark.parametrize(
    ("arguments", "seconds", "facts", "name", "figures"),
    [
        (
            *(["pretraining_step", "--baseline=elsewhere"], {"ConvBERT": 1.5, "baseline": 1.8}),
            *({"matrix product": {"flops": 1e11}}, "baseline, float32", ["1.20"]),
        ),
        (
            ["finetuning_epoch", "--data_dir=DATA", "--vocab=DATA", "--tasks=cola", "--batch=5"],
            *({"HF ConvBERT": 2.4}, {"ConvBERT": {"examples": 10}}),  # of twelve, in a second
            *("cola", ["1.20", "2.40"]),
        ),
        (
            ["serving", "--batches=2", "--lengths=16"],
            *({"SavedModel": 0.5}, {}, "HF", ["1000.0", "2.0", "2.00"]),
        ),
        (["prediction", "--texts=10"], {"pipeline": 4.0}, TWICE, "LiteRT", ["10", "4.00"]),
    ],
)
def test_figures_in_tables(command, data_dir, arguments, seconds, facts, name, figures):
    given = [argument.replace("DATA", data_dir) for argument in arguments]
    rows = {row[0]: row for row in command(*given, seconds=seconds, facts=facts)}
    assert set(figures) <= set(rows[name])
