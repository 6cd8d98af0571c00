"""What the compiler of a TPU or GPU makes of this project's steps, on a machine that has neither.

    python -m venv .venv-tpu && .venv-tpu/bin/pip install -r requirements-tpu-compile.txt
    python -m benchmarks.tpu_compile --python .venv-tpu/bin/python
    python -m benchmarks.tpu_compile --python .venv-tpu/bin/python --devices v3,v5e \
        --sizes small,base --phases train,eval,infer --kinds all --output compiled.jsonl
    python -m benchmarks.tpu_compile --python .venv-tpu/bin/python --platform gpu

TensorFlow writes each program as HLO (benchmarks.program_export), and JAX, in a process and
perhaps an environment of its own, compiles it (benchmarks.program_compile). A row has

- compile s: seconds of the compiler alone, on this machine;
- GB: arguments, temporaries and code of the program, and what they need together, beside what the
  device has ("fits"). Weights that are updated in their place count once;
- GFLOP, GB accessed: by XLA's cost analysis of the compiled program;
- products ms, memory ms: those over the published peak rates (benchmarks.chips); the longer one is
  the roofline's time;
- main memory GB, ms: what of the GB accessed is in the device's main memory (benchmarks.
  memory_traffic), and its time at the peak rate: no step can beat it, or that of the products;
- Mcycles: what the compiler of a TPU estimates the step to take;
- launches: kernels that a GPU starts, and how many of them clip gradients and update weights;
- all-reduces: of a program of several devices;
- host: operations that wait for the host.

--scopes lists where those cycles, or launches, are. Loops count as often as they run.

A row takes minutes. With --output, rows that are there already are not compiled again, as long as
the code that the program comes from is the same.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

from absl import app, flags

from benchmarks import chips, programs
from benchmarks.compilations import Compilations, needed, read_records
from benchmarks.interleaved import Result
from benchmarks.programs import Program
from benchmarks.table import PRECISIONS, Report
from errors import InputError, main_with_clear_errors
from model.sizes import ALIASES
from settings import did_you_mean, read_json_object

_PLATFORM = flags.DEFINE_enum("platform", "tpu", ["tpu", "gpu"], "Platform compiled for.")
_DEVICES = flags.DEFINE_list("devices", None, "Devices; by default v5e, or h100.")
_SIZES = flags.DEFINE_list("sizes", ["small"], "Sizes of ConvBERT.")
_SYSTEMS = flags.DEFINE_list("systems", ["ConvBERT", "ELECTRA", "BERT"], "Systems, or `all`.")
_PHASES = flags.DEFINE_list("phases", ["train"], "Phases: train, eval, infer, or `all`.")
_KINDS = flags.DEFINE_list(
    "kinds", [programs.PRETRAINING], "What is learned: pretraining, kinds of tasks, or `all`."
)
_BATCH = flags.DEFINE_integer("batch", 32, "Sequences of a device.", lower_bound=1)
_LENGTH = flags.DEFINE_integer("length", 128, "Tokens of a sequence.", lower_bound=8)
_PRECISION = flags.DEFINE_enum("precision", PRECISIONS[1], PRECISIONS, "Compute dtype policy.")
_FORM = flags.DEFINE_enum(
    "form", "accelerator", ["accelerator", "cpu"], "Forms of the kernels: those of which machine."
)
_TASK_HPARAMS = flags.DEFINE_string(
    "task_hparams", "", "JSON text or file; hyper-parameters of fine-tuning."
)
_REPLICAS = flags.DEFINE_integer(
    "replicas", 1, "Devices that train together and sum their gradients.", lower_bound=1
)
_PYTHON = flags.DEFINE_string("python", sys.executable, "Python interpreter that has jax.")
_OUTPUT = flags.DEFINE_string("output", None, "File of JSON lines that rows are added to.")
_SCOPES = flags.DEFINE_integer(
    "scopes", 0, "Scopes with the most cycles, or launches, to list for each row.", lower_bound=0
)
_TABLES = flags.DEFINE_list("tables", [], "Files of --output to print, compiling nothing.")

_DEFAULT_DEVICE = {"tpu": ["v5e"], "gpu": ["h100"]}
_COLUMNS = {"program": "", "device": "", "compile s": ".0f", "arguments GB": ".2f"}
_COLUMNS |= {"temporaries GB": ".2f", "code MB": ".0f", "GB needed": ".2f", "fits": ""}
_COLUMNS |= {"GFLOP": ".0f", "GB accessed": ".2f", "products ms": ".2f", "memory ms": ".2f"}
_COLUMNS |= {"main memory GB": ".2f", "main memory ms": ".2f"}
_COLUMNS |= {"Mcycles": ".2f", "launches": "", "clip, update": "", "all-reduces": "", "host": ""}


def main(argv: list[str]) -> None:
    """Compiles, and prints a row for each program and device."""
    if _TABLES.value:
        _print_tables(_TABLES.value)
        return
    requested_programs, devices = requested()
    compilations = Compilations(_PYTHON.value, _OUTPUT.value)
    report, records = Report(_COLUMNS), []
    for program in requested_programs:
        for device, record in compilations.of(program, devices):
            report.row(*row(program, device, record))
            records.append(record)
            if "failed" in record:
                name = f"{label(program)}, {device}"
                report.missing({name: Result(missing=record["failed"])})
    report.end(*_lines(records))


def requested() -> tuple[list[Program], list[str]]:
    """The programs, and the devices, that the flags name.

    Raises:
        InputError: a name that does not exist, or nothing to do.
    """
    platform = _PLATFORM.value
    names = _DEVICES.value or _DEFAULT_DEVICE[platform]
    devices = _chosen("devices", names, chips.of_platform(platform))
    sizes = _chosen("sizes", _SIZES.value, tuple(ALIASES))
    systems = _chosen("systems", _SYSTEMS.value, tuple(programs.systems()))
    kinds = _chosen("kinds", _KINDS.value, programs.all_kinds())
    phases = _chosen("phases", _PHASES.value, ("train", "eval", "infer"))
    for device in devices:
        most = chips.CHIPS[device].devices
        if _REPLICAS.value > most:
            raise InputError(
                f"--replicas should be at most {most} for {device}. Received: {_REPLICAS.value}"
            )
    shape = (_BATCH.value, _LENGTH.value, _PRECISION.value, _FORM.value, _REPLICAS.value)
    task_hparams = read_json_object(_TASK_HPARAMS.value, "--task_hparams")
    if kinds == [programs.PRETRAINING] and task_hparams:
        raise InputError("--task_hparams is for --kinds of tasks. Received: pre-training alone")
    for name in {"max_seq_length", "precision", "train_batch_size"} & {*task_hparams}:
        raise InputError(f"--task_hparams should leave `{name}` to the flag for it")
    found = [
        Program(
            system,
            size,
            kind,
            phase,
            *shape,
            task_hparams={} if kind == programs.PRETRAINING else task_hparams,
            platform=platform,
        )
        for size in sizes
        for kind in kinds
        for phase in programs.phases(kind)
        if phase in phases
        for system in systems
    ]
    if not found:
        raise InputError(
            f"--phases should be among {', '.join(programs.phases(kinds[0]))} for --kinds"
            f" {kinds[0]}. Received: {', '.join(phases)}"
        )
    return found, devices


def _chosen(flag: str, names: Sequence[str], known: Sequence[str]) -> list[str]:
    """The names, all for `all`; an unknown one is an InputError."""
    if list(names) == ["all"]:
        return list(known)
    for name in names:
        if name not in known:
            raise InputError(
                f"--{flag} should be among {', '.join(known)}.{did_you_mean(name, known)}"
                f" Received: {name!r}"
            )
    if not names:
        raise InputError(f"--{flag} should be among {', '.join(known)}. Received: nothing")
    return list(dict.fromkeys(names))


def label(program: Program) -> str:
    """What the first column calls a program."""
    parts = [f"{program.system} {program.size}", program.kind, program.phase]
    parts += [f"{program.batch} x {program.length}"]
    parts += [program.precision] if program.precision != PRECISIONS[1] else []
    parts += [f"{program.replicas} replicas"] if program.replicas > 1 else []
    parts += ["forms of a CPU"] if program.form == "cpu" else []
    parts += [f"{name} {value}" for name, value in program.task_hparams.items()]
    return ", ".join(parts)


def row(program: Program, device: str, record: dict[str, Any]) -> list[str | float]:
    """The cells of a row; NaN where the compiler said nothing."""
    result, chip = record.get("result", {}), chips.CHIPS[device]

    def said(name: str, scale: float = 1.0) -> float:
        return result.get(name, math.nan) / scale

    memory = needed(result)
    fits = "" if math.isnan(memory) else "yes" if memory <= chip.usable else "no"
    launches, host = result.get("launches") or {}, result.get("host")
    return [
        label(program),
        device,
        said("seconds"),
        said("arguments", 1e9),
        said("temporaries", 1e9),
        said("code", 1e6),
        memory / 1e9,
        fits,
        said("flops", 1e9),
        said("bytes", 1e9),
        1e3 * said("flops", chip.flops),
        1e3 * said("bytes", chip.bandwidth),
        said("main_memory", 1e9),
        1e3 * said("main_memory", chip.bandwidth),
        said("cycles", 1e6) if chip.platform == "tpu" else "",
        f"{launches['total']:,}" if launches else "",
        f"{launches['clip']}, {launches['update']}" if launches else "",
        str(result.get("sums", "")) if program.replicas > 1 else "",
        "" if host is None else ", ".join(host) or "none",
    ]


def _print_tables(paths: Sequence[str]) -> None:
    """Prints the rows of files of --output."""
    found = {}
    for path in paths:
        found |= read_records(path)
    records = list(found.values())
    commits = {str(record["commit"]) for record in records}
    report = Report({"commit": "", **_COLUMNS}, ", ".join(sorted(commits)))
    for record in records:
        commit = str(record["commit"])[:7]
        report.row(commit, *row(Program(**record["program"]), record["device"], record))
    report.end(*_lines(records))


def _lines(records: Sequence[dict[str, Any]]) -> list[str]:
    """What is said below the table: scopes, loops that count once, and compilers."""
    lines = []
    for record in (record for record in records if "result" in record):
        result = record["result"]
        name = f"{label(Program(**record['program']))}, {record['device']}"
        if result.get("unknown_loops"):
            lines.append(f"{name}: {result['unknown_loops']} loops of unknown length count once")
        if _SCOPES.value:
            scopes = list(result.get("scopes", {}).items())[: _SCOPES.value]
            rows = [f"{c:12,} cycles {n:5,} kernels  {scope}" for scope, (c, n) in scopes]
            lines.append("\n".join([f"{name}:", *rows]))
    found = {record["result"]["versions"] for record in records if "result" in record}
    return [*lines, *(f"compiled with {versions}" for versions in sorted(found))]


if __name__ == "__main__":
    app.run(main_with_clear_errors(main))
