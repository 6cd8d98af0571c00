"""What is compiled for TPUs and GPUs, up to the compiler itself: see test_tpu_compiler.py."""

import collections
import dataclasses
import json
import subprocess
import sys
import time

import pytest
from tensorflow.compiler.xla.service import hlo_pb2

from benchmarks import chips, compilations, program_compile, program_export, programs
from benchmarks.compilations import Compilations
from benchmarks.programs import PRETRAINING, Program
from errors import InputError
from finetune import kinds
from pretrain import objectives
from tests.benchmarks.tpu_support import TINY, TINY_XLNET

PROGRAM = Program("ConvBERT", "small", PRETRAINING, "train")
RESULT = {
    "seconds": 90.0,
    **{"arguments": 6e9, "outputs": 6e9, "aliased": 5.9e9, "temporaries": 2e9, "code": 1e8},
    **{"flops": 197e9, "bytes": 8.19e9, "transcendentals": 1.0, "sums": 0, "host": []},
    **{"cycles": 3e6, "scopes": {"encoder": [3000000, 4]}},
    **{"launches": None, "versions": "jax 1, libtpu 2"},
}


def command(*arguments):
    line = [sys.executable, "-m", "benchmarks.tpu_compile", *arguments]
    return subprocess.run(line, check=False, capture_output=True, text=True)


# ---------------------------------------------------------------- the command


@pytest.mark.parametrize(
    ("flag", "value", "known"),
    [
        ("systems", "ConvBRT", "ConvBERT"),
        ("devices", "v5x", "v5e"),
        ("devices", "h100", "v5e"),  # of the other platform
        ("sizes", "huge", "medium-small"),
        ("phases", "test", "infer"),
        ("kinds", "spam", "span"),
        ("phases", "infer", "train"),  # which pre-training does not have
        ("replicas", "5", "4"),  # devices of a v5e host
        ("python", "no_such_python", "no_such_python"),
        ("tables", "no_such_file", "no_such_file"),
        ("task_hparams", "no_such_file", "no_such_file"),
    ],
)
def test_unknown_names(flag, value, known):
    begin = time.monotonic()
    done = command(f"--{flag}={value}")
    assert done.returncode == 1
    assert known in done.stderr
    assert flag in done.stderr or flag == "tables"
    assert "Traceback" not in done.stderr
    assert time.monotonic() - begin < 5  # TensorFlow is not imported


def test_every_objective_has_a_system(monkeypatch):
    values = programs.systems().values()
    assert {v.get("objective", "replaced_token_detection") for v in values} == {*objectives.names()}
    monkeypatch.setattr(programs.objectives, "names", lambda: ("masked_lm", "new"))
    assert programs.systems()["ConvBERT new"] == {"objective": "new"}


def test_rows_are_kept_and_printed(tmp_path, monkeypatch):
    """A program is exported once for all devices, and compiled once ever, if that succeeds."""
    path = str(tmp_path / "compiled.jsonl")
    calls = []

    def ran(line):
        calls.append(line[2])
        if "program_export" in line[2]:
            open(line[3], "w").close()
            return "", None
        return (json.dumps(RESULT), None) if line[4] == "v5e" else ("", "status 1: no room")

    monkeypatch.setattr(compilations, "_check_python", lambda python: None)
    monkeypatch.setattr(compilations, "_ran", ran)
    first = dict(Compilations("python", path).of(PROGRAM, ["v5e", "v3"]))
    assert first["v3"]["failed"] == "status 1: no room"
    assert len(calls) == 3
    again = dict(Compilations("python", path).of(PROGRAM, ["v5e", "v3"]))
    assert again == first
    assert len(calls) == 5
    other = dataclasses.replace(PROGRAM, batch=64)
    assert dict(Compilations("python", path).of(other, ["v5e"]))["v5e"]["program"]["batch"] == 64
    assert len(calls) == 7
    printed = command(f"--tables={path}").stdout
    rows = [line.split("|")[1:-1] for line in printed.splitlines() if line.startswith("|")]
    header, _, row, second = ([cell.strip() for cell in row] for row in rows)
    cells = dict(zip(header, row))
    assert (cells["device"], cells["compile s"], cells["host"]) == ("v5e", "90", "none")
    assert (cells["GB needed"], cells["fits"]) == ("8.20", "yes")
    assert (cells["products ms"], cells["memory ms"]) == ("1.00", "10.00")
    assert "64 x 128" in dict(zip(header, second))["program"]
    assert "libtpu 2" in printed
    assert "encoder" not in printed
    assert "encoder" in command(f"--tables={path}", "--scopes=1").stdout


def test_memory_needed():
    assert compilations.needed({"needed": 5.0}) == 5.0
    assert compilations.needed(RESULT) == pytest.approx(8.2e9)


def test_memory_that_is_not_there():
    """The words of libtpu 0.0.52."""
    message = (
        "RESOURCE_EXHAUSTED: E1000: CompileTimeHbmOom: Ran out of memory on HBM, the total memory"
        " required for HLO temporaries (209.57G) exceeds available HBM (15.75G). HLO module: jit_f."
    )
    assert program_compile.memory_required(message) == 209.57 * 2**30
    assert program_compile.memory_required("UNIMPLEMENTED: sorting") is None


@pytest.mark.parametrize("line", ["[]", "{", '{"program": {"system": "x"}}'])
def test_a_file_of_something_else(tmp_path, line):
    path = tmp_path / "other.jsonl"
    path.write_text(f"{line}\n")
    with pytest.raises(InputError, match=r"other.jsonl"):
        compilations.read_records(str(path))


def test_other_code_is_another_row():
    assert compilations.key(PROGRAM, "v3") == compilations.key(PROGRAM, "v3")
    assert compilations.key(PROGRAM, "v3") != compilations.key(PROGRAM, "v3", "other")


# ---------------------------------------------------------------- what the compiler says


def test_rates_of_a_device():
    """A device of v3 is half a chip, one of v5e a whole one."""
    assert chips.CHIPS["v3"].flops == 61.5e12
    assert chips.CHIPS["v3"].memory == chips.CHIPS["v5e"].memory == 16 * 2**30
    assert chips.of_platform("gpu") == ["h100"]
    assert all(chip.source for chip in chips.CHIPS.values())


# ---------------------------------------------------------------- programs


def exported(path, *arguments, **options):
    """The operations of a program, each with how often it occurs."""
    options = {"precision": "float32", "overrides": TINY, **options}
    program_export.export(str(path), Program(*arguments, batch=2, length=32, **options))
    module = hlo_pb2.HloModuleProto.FromString(path.read_bytes())
    instructions = [i for computation in module.computations for i in computation.instructions]
    names = {i.metadata.op_name.split("/")[0] for i in instructions}
    return collections.Counter(i.opcode for i in instructions), names


def test_a_step_of_eight_devices(tmp_path):
    """Gradients are summed, and scopes of clipping and update reach the compiler."""
    path, options = tmp_path / "hlo", {"replicas": 8}
    counts, names = exported(path, "BERT", "tiny", PRETRAINING, "train", **options)
    assert counts["all-reduce"] > 10
    assert {"clip_gradients", "update_weights"} <= names


@pytest.mark.slow  # needs half a minute: two programs are traced
def test_forms(tmp_path):
    """A CPU's forms, when asked for: products where an accelerator has sums."""
    shape = ("ConvBERT", "tiny", PRETRAINING, "train")
    cpu, accelerator = (exported(tmp_path / f, *shape, form=f)[0] for f in ("cpu", "accelerator"))
    assert cpu["dot"] > accelerator["dot"]


@pytest.mark.slow  # needs a minute: eight programs are traced
@pytest.mark.parametrize("kind", kinds.names())
@pytest.mark.parametrize("phase", programs.FINETUNING)
def test_every_kind(tmp_path, kind, phase):
    counts, names = exported(tmp_path / "hlo", "ConvBERT", "tiny", kind, phase)
    assert counts["dot"] > 2
    assert ("update_weights" in names) == (phase == "train")


@pytest.mark.slow  # needs half a minute: two programs are traced
def test_hparams_of_fine_tuning(tmp_path):
    """The chain of a CRF is a loop, which a layer of logits does not have."""
    shape = ("ConvBERT", "tiny", "tagging", "train")
    crf, _ = exported(tmp_path / "crf", *shape, task_hparams={"head": "crf"})
    softmax, _ = exported(tmp_path / "softmax", *shape)
    assert crf["while"] > softmax["while"]


@pytest.mark.slow  # needs half a minute, as above
@pytest.mark.parametrize("system", programs.systems())
@pytest.mark.parametrize("phase", programs.PHASES[PRETRAINING])
def test_every_objective(tmp_path, system, phase):
    overrides = TINY_XLNET if system == "XLNet" else TINY
    counts, _ = exported(tmp_path / "hlo", system, "tiny", PRETRAINING, phase, overrides=overrides)
    assert counts["dot"] > 2
