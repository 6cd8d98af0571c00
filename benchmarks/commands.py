"""Commands of this project as benchmarks run them."""

from __future__ import annotations

import subprocess
import sys

from errors import InputError


def run(module: str, *arguments: str) -> None:
    """Runs `python -m module`; InputError with its last words when it fails."""
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise InputError(f"{' '.join(command)}: {done.stderr.strip()[-1000:]}")
