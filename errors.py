"""Errors that end a command with one clear sentence, and how a command ends with them."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable

import stopping


class CommandError(Exception):
    """Something that the user can understand and mend: the message is one sentence saying what.

    A command that meets one prints the sentence and exits with status 1, without a traceback; any
    other exception is a bug of ours and keeps its traceback.
    """


class InputError(CommandError, ValueError):
    """Bad input: a file, a flag or a value, which the message names."""


class TrainingStopped(CommandError, RuntimeError):
    """Training cannot go on: a loss that is not finite, a checkpoint that cannot be written."""


class LossNotFinite(TrainingStopped):
    """The loss or its gradient is NaN or infinite."""


def main_with_clear_errors(main: Callable[[list[str]], None]) -> Callable[[list[str]], None]:
    """Wraps an absl `main` so that a CommandError ends it with its sentence and status 1.

    SIGINT (Ctrl-C), SIGTERM and SIGHUP end it with status 130, 143 and 129; see stopping.py.
    """

    def wrapped(argv: list[str]) -> None:
        try:
            with stopping.handling():
                main(argv)
        except CommandError as error:
            print(f"error: {error}", file=sys.stderr)
            sys.exit(1)
        except OSError as error:  # a full disk, a folder that may not be written, ...
            print(f"error: {error.filename or 'output'}: {error.strerror}", file=sys.stderr)
            sys.exit(1)
        except stopping.Stopped as stopped:
            print(f"{stopped}; run the same command again", file=sys.stderr)
            sys.exit(stopped.status)
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            sys.exit(128 + signal.SIGINT)

    return wrapped
