"""Interleaved runs in processes of their own; that each system runs; what a compiler says."""

import dataclasses
import math
import os

import pytest

from convbert.benchmarks import ours
from convbert.benchmarks.interleaved import Result, System, check_same, measure, ratio
from convbert.benchmarks.random_model import MIXERS, make_model
from convbert.benchmarks.tpu_compile import Module, compile_step
from convbert.common.errors import InputError
from convbert.model import load_config
from tests.build_support import VOCABULARY
from tests.model_support import TINY

TRIVIAL = """
import os, time

print("libraries print")

def sleep(seconds, steps=1):
    def run():
        time.sleep(seconds * steps)
        print("while they work, too")
    run.facts, run.steps = {"slept": seconds, "process": os.getpid()}, steps
    return run

def incomplete():
    import package_that_nobody_has
"""


@pytest.fixture
def system(tmp_path, monkeypatch):
    (tmp_path / "trivial_systems.py").write_text(TRIVIAL)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def make(name, function, **arguments):
        return System(name, f"trivial_systems:{function}", arguments)

    return make


def test_times_facts_and_what_is_missing(system):
    systems = [system("slow", "sleep", seconds=0.1, steps=4), system("incomplete", "incomplete")]
    systems.append(system("fast", "sleep", seconds=0.02))
    results = measure(systems, rounds=3, seconds=0.2)  # ten calls of "fast"
    assert list(results) == ["slow", "incomplete", "fast"]
    slow, fast, missing = results["slow"], results["fast"], results["incomplete"]
    assert len(slow.seconds) == len(fast.seconds) == 3
    assert 0.1 <= slow.median < 0.3
    assert 0.02 <= fast.median < 0.15
    assert ratio(Result((3.0, 2.0, 9.0)), Result((1.0, 1.0, 1.0))) == 3.0
    assert 1.0 < ratio(slow, fast) < 10
    assert slow.facts["slept"] == 0.1
    assert len({slow.facts["process"], fast.facts["process"], os.getpid()}) == 3
    assert fast.peak_memory > 0.001
    assert "package_that_nobody_has" in missing.missing
    assert missing.seconds == ()
    assert math.isnan(missing.median)
    assert math.isnan(ratio(missing, fast))


def test_systems_that_should_agree():
    found = {"a": [1.0, 2.0], "b": [1.0, 2.05], "c": None}
    results = {name: Result(facts={"vector": vector}) for name, vector in found.items()}
    check_same(results, "vector", {"a": 0.0, "b": 0.1, "c": 0.0, "absent": 0.0})
    check_same(results, "other", {"a": 0.0, "b": 0.0})
    with pytest.raises(InputError):
        check_same(results, "vector", {"a": 0.1, "b": 0.01})


@pytest.mark.slow  # needs twenty seconds: a model and a step of each
def test_every_model_and_every_system_runs(tmp_path):
    for mixer in MIXERS:
        make_model(f"modern-tiny:{mixer}", str(tmp_path / mixer))
        config = load_config(str(tmp_path / mixer))
        assert {name: getattr(config, name) for name in MIXERS[mixer]} == MIXERS[mixer]
    smaller = {"vocab_size": 1100, "num_hidden_layers": 1}  # ids of benchmarks start at 1000
    given = {"size": "tiny", "batch": 2, "length": 16, "objective": "masked_lm"}
    step = ours.pretraining_step(**given, model_hparam_overrides=smaller)
    step()
    assert step.facts["flops"] > 0
    one = {"num_hidden_layers": 1}
    letters = ours.step_hparams("tiny", 2, 16, vocab_size=9, model_hparam_overrides=one)
    assert ours.seconds_per_step(letters) > 0
    fields = dataclasses.asdict(TINY.replace(vocab_size=VOCABULARY.size, num_hidden_layers=1))
    (tmp_path / "CoLA").mkdir()
    rows = [f"a\t{i % 2}\t\t{'a b c ' * (i % 5 + 1)}" for i in range(12)]
    for split in ("train", "dev"):
        (tmp_path / "CoLA" / f"{split}.tsv").write_text("\n".join(rows))
    VOCABULARY.save(tmp_path)
    files = {"data_dir": str(tmp_path), "vocab": str(tmp_path)}
    epoch = ours.finetuning_epoch(fields, task="cola", batch=5, **files)
    epoch()
    assert epoch.facts == {"examples": 10}  # of twelve: full batches only


PYTHON = os.environ.get("TPU_PYTHON", ".venv-tpu/bin/python")
SMALL = {"vocab_size": 1200, "model_hparam_overrides": {"num_hidden_layers": 2}}
LOOP = "%w.1 = (s32[], f32[2]{0:T(128)(2,1)S(1)}) while(%t), condition=%cond, body=%body"
MODULE = """
%inner (v: (s32[])) -> (s32[]) {
  ROOT %sort.1 = (s32[]) sort(%v), dimensions={0}
}
%body (v: (s32[], f32[2])) -> (s32[], f32[2]) {
  %l = (s32[]) while(%v.2), condition=%any, body=%inner, backend_config=THREE
  %f.4 = f32[2]{0} fusion(%v.2), calls=%fused, metadata={op_name="layer_7/mul/a/b/c"}, CYCLES
  ROOT %t.4 = (s32[], f32[2]{0}) tuple(%l, %f.4)
}
%cond (v.3: (s32[], f32[2])) -> pred[] {
  %constant.14 = s32[]{:T(128)} constant(12)
  ROOT %lt = pred[] compare(%v.3, %constant.14), direction=LT
}
%any (v.4: (s32[])) -> pred[] {
  ROOT %lt.2 = pred[] compare(%v.4, %v.4), direction=LT
}
%graph (q: f32[2]) -> f32[2] {
  ROOT %f.7 = f32[2]{0} fusion(%q), metadata={op_name="update_weights/Adam/add"}
}
ENTRY %main (a: f32[2]) -> (f32[2], u8[0]) {
  %a = f32[2]{0} parameter(0), metadata={op_name="XLA_Args"}
  %f.1 = (f32[2]{0}, u8[0]{0}) fusion(%a), metadata={op_name="x/clip_gradients/global_norm/mul"}
  %g = f32[2]{0} get-tuple-element(%f.1), index=0
  LOOP
  %f.2 = f32[2]{0} call(%f.1), to_apply=%graph
  %c.1 = f32[2]{0} custom-call(%f.2), custom_call_target="__cublas$gemm"
  ROOT %copy.1 = f32[2]{0} copy(%c.1)
}
""".replace("LOOP", LOOP).replace("THREE", '{"known_trip_count":{"n":"3"}}')
MODULE = MODULE.replace(", CYCLES", ', backend_config={"estimated_cycles":"50"}')


def test_kernels_count_as_often_as_they_run():
    """In loops: 12 fusions of 50 cycles, 36 sorts."""
    module = Module(MODULE)
    assert module.executions == {"main": 1, "body": 12, "inner": 36, "graph": 1}
    assert module.unknown_loops == 0
    kernels = list(module.kernels())
    assert sum(times for *_, times in kernels) == 52
    assert ("layer_7/mul/a/b/c", 50, 12) in kernels
    assert ("sort", 0, 36) in kernels
    module = Module(MODULE.replace("constant(12)", "parameter(1)"))
    assert (module.unknown_loops, sum(times for *_, times in module.kernels())) == (1, 8)


@pytest.mark.tpu
@pytest.mark.parametrize("system", ["ConvBERT", "BERT", "SCRIPT on ConvBERT", "causal mixed"])
def test_a_tiny_step_for_a_tpu(system):
    hparams = dict(ours.SYSTEMS[system])
    overrides = hparams.pop("model_hparam_overrides", {}) | SMALL["model_hparam_overrides"]
    hparams |= {**SMALL, "model_hparam_overrides": overrides}
    shape = ("tiny", 32, 128, "mixed_bfloat16")
    found = compile_step(PYTHON, "v5e", *shape, **hparams)
    assert "failed" not in found, found["failed"]
    print(f"{system}: {found['cycles'] / 1e6:.2f} million cycles")
