"""Where and with what a benchmark was run: the lines above its table."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import shlex
import sys

from training.checkpointing import git_commit

_PACKAGES = ("tensorflow", "torch", "transformers")


def header() -> str:
    """Machine, versions, commit and command, one line each."""
    today = datetime.date.today().isoformat()
    versions = [f"{name} {_version(name)}" for name in ("python", *_PACKAGES)]
    lines = [
        f"{today}, {_processor()}, {_num_cores()} cores, {platform.system()}",
        ", ".join(versions),
        f"commit {(git_commit() or 'unknown').replace('-dirty', ', modified')}",
        f"`{_command()}`",
    ]
    return "\n".join(f"- {line}" for line in lines)


def _processor() -> str:
    """The processor's name as the system knows it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.split(":")[1].strip() for line in file if line.startswith("model name")]
    except OSError:  # not Linux
        names = []
    return names[0] if names else platform.processor() or platform.machine()


def _num_cores() -> int:
    """Those that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _version(package: str) -> str:
    if package == "python":
        return platform.python_version()
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _command() -> str:
    """The command line as it was typed, but for the interpreter's path."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    program = f"-m {spec.name}" if spec else os.path.basename(sys.argv[0])
    return f"python {program} {shlex.join(sys.argv[1:])}".rstrip()
