"""Errors that end a command with one clear sentence, and the wrapper that prints them."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from absl import logging

from convbert.common import stopping


class CommandError(Exception):
    """An error that the user can understand and fix; its message is one sentence.

    A command prints the message and exits with `status`; other exceptions keep their traceback.
    """

    status = 1


class InputError(CommandError, ValueError):
    """Invalid input: the message names the file, flag or value."""


class TrainingStopped(CommandError, RuntimeError):
    """Training cannot continue: a loss that is not finite, a checkpoint that cannot be written."""


class LossNotFinite(TrainingStopped):
    """The loss or its gradient is NaN or infinite, at `step`, from 1; None of a run that ended."""

    def __init__(self, message: str, step: int | None = None):
        super().__init__(message)
        self.step = step


@contextlib.contextmanager
def located(where: object) -> Iterator[None]:
    """Prefixes the message of an InputError in the block with the file or place."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{where}: {error}") from error


def warn(text: str) -> None:
    """Prints a warning of one line to standard error."""
    print(f"warning: {text}", file=sys.stderr)


@contextlib.contextmanager
def decorating(what: str) -> Iterator[None]:
    """Turns errors of the block into warnings, for reports and pictures of saved results."""
    try:
        yield
    except Exception as error:
        warn(f"{what} could not be written ({type(error).__name__}: {reason(error)})")


def reason(error: Exception) -> str:
    """Returns a library error's message as one line, for use in our errors.

    Removes TensorFlow's additions: "Graph execution error:", the place in the graph, and names of
    nodes and operations.
    """
    lines = str(getattr(error, "message", None) or error).splitlines()
    told = [re.sub(_GRAPH_NAMES, "", line).strip() for line in lines if not _GRAPH.match(line)]
    return next(filter(None, told), type(error).__name__)


# Lines, and parts of lines, of TensorFlow's messages that locate the error in the graph.
_GRAPH = re.compile(
    r'Graph execution error|Detected at node|<stack traces unavailable>|  File "|    '
    r"|\d+ root error\(s\) found|\s*\[\[\{\{"
)
_GRAPH_NAMES = re.compile(r"\{\{\w*node .*?\}\}| \[Op:\w+\].*|^ *\(\d+\) [A-Z_]+: ")


def require_flags(flags: Any, needed: Mapping[str, str]) -> None:
    """Raises InputError for the first required flag that is not given."""
    for name, expectation in needed.items():
        if not flags[name].value:
            raise InputError(f"--{name} is missing: it should be {expectation}")


def main_with_clear_errors(
    main: Callable[[list[str]], None], *, takes_arguments: bool = False
) -> Callable[[list[str]], None]:
    """Wraps an absl `main` so that a CommandError ends it with its message and status.

    Arguments other than flags are an error unless `takes_arguments`.
    SIGINT (Ctrl-C), SIGTERM and SIGHUP end it with status 130, 143 and 129; see stopping.py.
    """

    def wrapped(argv: list[str]) -> None:
        logging.set_verbosity(logging.WARNING)  # of TensorFlow's models
        try:
            with stopping.handling(last=True):
                if argv[1:] and not takes_arguments:
                    raise InputError(f"Unknown argument {argv[1]!r}; see --help")
                main(argv)
            return
        except CommandError as error:
            said, status = f"error: {error}", error.status
        except OSError as error:  # a full disk, a read-only folder, ...
            why = error.strerror or reason(error)
            said, status = f"error: {error.filename or 'output'}: {why}", 1
        except stopping.Stopped as stopped:
            said, status = f"{stopped}; run the same command again", stopped.status
        print(said, file=sys.stderr)
        sys.exit(status)

    return wrapped
