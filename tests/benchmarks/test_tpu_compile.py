"""The compile command: the text of compiled modules, and (`make test-tpu`) a TPU's compiler."""

import os

import pytest

from convbert.benchmarks import ours
from convbert.benchmarks.tpu_compile import Module, compile_step

PYTHON = os.environ.get("TPU_PYTHON", ".venv-tpu/bin/python")
TINY = {"vocab_size": 1200, "model_hparam_overrides": {"num_hidden_layers": 2}}
LOOP = "%w.1 = (s32[], f32[2]{0:T(128)(2,1)S(1)}) while(%t), condition=%cond, body=%body"
MODULE = """HloModule step, is_scheduled=true, entry_computation_layout={(f32[2]{0})->f32[2]{0}}

%inner (v: (s32[])) -> (s32[]) {
  %v = (s32[]) parameter(0)
  ROOT %sort.1 = (s32[]) sort(%v), dimensions={0}
}

%body (v: (s32[], f32[2])) -> (s32[], f32[2]) {
  %v.2 = (s32[], f32[2]{0}) parameter(0)
  %l = (s32[]) while(%v.2), condition=%any, body=%inner, backend_config=THREE
  %f.4 = f32[2]{0} fusion(%v.2), calls=%fused, metadata={op_name="layer_7/mul/a/b/c"}, CYCLES
  ROOT %t.4 = (s32[], f32[2]{0}) tuple(%l, %f.4)
}

%cond (v.3: (s32[], f32[2])) -> pred[] {
  %v.3 = (s32[], f32[2]{0}) parameter(0)
  %constant.14 = s32[]{:T(128)} constant(12)
  ROOT %lt = pred[] compare(%v.3, %constant.14), direction=LT
}

%any (v.4: (s32[])) -> pred[] {
  %v.4 = (s32[]) parameter(0)
  ROOT %lt.2 = pred[] compare(%v.4, %v.4), direction=LT
}

%graph (q: f32[2]) -> f32[2] {
  %q = f32[2]{0} parameter(0)
  ROOT %f.7 = f32[2]{0} fusion(%q), metadata={op_name="update_weights/Adam/add"}
}

ENTRY %main (a: f32[2]) -> (f32[2], u8[0]) {
  %a = f32[2]{0} parameter(0), metadata={op_name="XLA_Args"}
  %f.1 = (f32[2]{0}, u8[0]{0}) fusion(%a), metadata={op_name="x/clip_gradients/global_norm/mul"}
  %g = f32[2]{0} get-tuple-element(%f.1), index=0
  LOOP
  %f.2 = f32[2]{0} call(%g), to_apply=%graph
  %c.1 = f32[2]{0} custom-call(%f.2), custom_call_target="__cublas$gemm"
  ROOT %copy.1 = f32[2]{0} copy(%c.1)
}
""".replace("LOOP", LOOP).replace("THREE", '{"known_trip_count":{"n":"3"}}')
MODULE = MODULE.replace(", CYCLES", ', backend_config={"estimated_cycles":"50"}')


def test_kernels_count_as_often_as_they_run():
    """In loops: 12 fusions of 50 cycles, 36 sorts."""
    module = Module(MODULE)
    assert module.executions == {"main": 1, "body": 12, "inner": 36, "graph": 1}
    assert module.launches() == {"total": 52, "clip": 1, "update": 1}
    assert module.unknown_loops == 0
    kernels = list(module.kernels())
    assert ("layer_7/mul/a/b/c", 50, 12) in kernels
    assert ("sort", 0, 36) in kernels
    module = Module(MODULE.replace("constant(12)", "parameter(1)"))
    assert (module.unknown_loops, module.launches()["total"]) == (1, 8)


@pytest.mark.tpu
@pytest.mark.parametrize("system", ["ConvBERT", "BERT", "SCRIPT on ConvBERT", "causal mixed"])
def test_a_tiny_step_for_a_tpu(system):
    """It fits and does not wait for the host."""
    hparams = dict(ours.SYSTEMS[system])
    overrides = hparams.pop("model_hparam_overrides", {}) | TINY["model_hparam_overrides"]
    hparams |= {**TINY, "model_hparam_overrides": overrides}
    shape = ("tiny", 32, 128, "mixed_bfloat16")
    found = compile_step(PYTHON, "v5e", *shape, **hparams)
    assert "failed" not in found, found["failed"]
    assert found["host"] == []
    print(f"{system}: {found['cycles'] / 1e6:.2f} million cycles")
