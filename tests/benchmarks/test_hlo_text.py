"""The text of compiled modules: what is counted, and how often."""

import re

import pytest

from benchmarks.hlo_text import Module

LOOP = "%w.1 = (s32[], f32[2]{0:T(128)(2,1)S(1)}) while(%t), condition=%cond, body=%body"
MODULE = """HloModule step, is_scheduled=true, entry_computation_layout={(f32[2]{0})->f32[2]{0}}

%fused (p: f32[2]) -> f32[2] {
  %p = f32[2]{0} parameter(0)
  ROOT %fusion.9 = f32[2]{0} fusion(%p), kind=kLoop, calls=%other
}

%inner (v: (s32[])) -> (s32[]) {
  %v = (s32[]) parameter(0)
  ROOT %sort.1 = (s32[]) sort(%v), dimensions={0}
}

%body (v: (s32[], f32[2])) -> (s32[], f32[2]) {
  %v.2 = (s32[], f32[2]{0}) parameter(0)
  %l = (s32[]) while(%v.2), condition=%any, body=%inner, backend_config=THREE
  %f.4 = f32[2]{0} fusion(%v.2), kind=kLoop, calls=%fused
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
  %r-start = f32[2]{0} all-reduce-start(%c.1), to_apply=%sum
  %r-done = f32[2]{0} all-reduce-done(%r-start)
  ROOT %copy.1 = f32[2]{0} copy(%r-done)
}
""".replace("LOOP", LOOP).replace("THREE", '{"known_trip_count":{"n":"3"}}')


def test_launches():
    """In loops, as often as they run: 12 fusions, 36 sorts."""
    module = Module(MODULE)
    counts = {"total": 53, "fusions": 14, "library": 1, "clip": 1, "update": 1}
    assert module.launches() == counts
    assert module.all_reduces() == 1
    assert module.executions == {"main": 1, "body": 12, "inner": 36, "graph": 1}
    assert module.loop_bodies("main") == ["body"]
    assert module.loop_bodies("body") == ["inner"]
    assert module.unknown_loops == 0


def test_scopes():
    """Twelve times 50 cycles in the loop, 5 outside of it."""
    cycles = ', metadata={op_name="layer_SIX/mul/a/b/c"}, backend_config={"estimated_cycles":"N"}'
    text = MODULE.replace("calls=%fused", f"calls=%fused{cycles.replace('N', '50')}")
    text = text.replace("fusion(%q)", f"fusion(%q){cycles.replace('N', '5').replace('SIX', '6')}")
    scopes = Module(text.replace("SIX", "7")).scopes()
    assert next(iter(scopes.items())) == ("layer_#/mul/a/b", (605, 13))
    assert scopes["sort"] == (0, 36)


def test_loops_of_unknown_length():
    module = Module(MODULE.replace("constant(12)", "parameter(1)"))
    assert module.unknown_loops == 1
    assert module.launches()["total"] == 9


def test_a_body_as_the_entry():
    entry = Module(Module(MODULE).as_entry("body"))
    assert entry.entry == "body"
    assert entry.executions == {"body": 1, "inner": 3}


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("%i = (s32[], token[]) infeed(%t), metadata={}", "infeed"),
        ('%x = f32[] custom-call(%a), custom_call_target="xla_python_cpu_callback"', "xla_python"),
        ('%y = f32[] custom-call(%a), custom_call_target="MoveToHost"', "MoveToHost"),
        ('%s = (f32[], token[]) send(%a, %t), metadata={op_name="recv"}', "send"),
    ],
)
def test_host_operations(line, name):
    assert Module(MODULE).host_operations() == []
    (found,) = Module(MODULE.replace(LOOP, line)).host_operations()
    assert found.startswith(name)


TRAFFIC = """HloModule step, is_scheduled=true

%part (p: f32[4,8], i: s32[]) -> f32[1,8] {
  %p = f32[4,8]{1,0} parameter(0)
  %i = s32[] parameter(1)
  ROOT %slice.1 = f32[1,8]{1,0} dynamic-slice(%p, %i, %i), dynamic_slice_sizes={1,8}
}

%fused (p.1: f32[4,8], i.1: s32[], q: f32[1,8]) -> (f32[4,8], bf16[1,8]) {
  %p.1 = f32[4,8]{1,0} parameter(0)
  %i.1 = s32[] parameter(1)
  %q = f32[1,8]{1,0} parameter(2)
  %f = f32[1,8]{1,0} fusion(%p.1, %i.1), kind=kLoop, calls=%part
  %add.1 = f32[1,8]{1,0} add(%f, %q)
  %write = f32[4,8]{1,0} dynamic-update-slice(%p.1, %add.1, %i.1, %i.1)
  %low = bf16[1,8]{1,0} convert(%add.1)
  ROOT %t = (f32[4,8]{1,0}, bf16[1,8]{1,0}) tuple(%write, %low)
}

ENTRY %main (a: f32[4,8], b: f32[1,8], c: s32[]) -> f32[4,8] {
  %a = f32[4,8]{1,0:T(8,128)} parameter(0)
  %b = f32[1,8]{1,0:T(8,128)} parameter(1)
  %c = s32[]{:T(128)S(6)} parameter(2)
  %s = (f32[1,8]{1,0:T(8,128)S(1)}, f32[1,8]{1,0:T(8,128)}, u32[]{:S(2)}) copy-start(%b)
  %d = f32[1,8]{1,0:T(8,128)S(1)} copy-done(%s)
  %n = f32[4,8]{1,0} custom-call(), custom_call_target="AllocateBuffer"
  %g = (f32[4,8]{1,0}, bf16[1,8]{1,0:T(8,128)(2,1)S(1)}) fusion(%a, %c, %d), calls=%fused
  ROOT %r = f32[4,8]{1,0} get-tuple-element(%g), index=0
}
"""


def test_main_memory():
    """The copy reads a row; the fusion reads a row, by a fusion within it, and writes one."""
    assert Module(TRAFFIC).main_memory_bytes() == 3 * 32
    everywhere = re.sub(r"S\(\d\)", "", TRAFFIC)
    assert Module(everywhere).main_memory_bytes() == 5 * 32 + 4 + 16
