"""Processes that say what they do, a line each, so that a test can send signals in between."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable

from tests.command_support import ROOT


class Started:
    """A process that runs Python code, in the repository's folder.

    Args:
        code: its program.
        *arguments: `sys.argv[1:]`.
        before: is called in the process before it begins.
    """

    def __init__(self, code: str, *arguments, before: Callable[[], None] = lambda: None):
        # In the background SIGINT is ignored, under nohup SIGHUP, and by what tests start, too.
        defaults = dict.fromkeys((signal.SIGINT, signal.SIGHUP), signal.SIG_DFL)
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, *map(str, arguments)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: [[signal.signal(*d) for d in defaults.items()], before()],
        )

    def until(self, line: str) -> Started:
        """Waits for the next line that it prints."""
        assert self.process.stdout.readline() == f"{line}\n"
        return self

    def send(self, number: int) -> Started:
        """Sends a signal."""
        self.process.send_signal(number)
        return self

    def say(self, line: str) -> None:
        """Writes a line to its standard input."""
        print(line, file=self.process.stdin, flush=True)

    def ended(self) -> tuple[int, str, str]:
        """Exit status, standard output and standard error."""
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err
