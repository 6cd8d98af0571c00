"""Errors that end a command with one clear sentence, and how a command ends with them."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from convbert.common import stopping


class CommandError(Exception):
    """Something that the user can understand and fix: the message is one sentence saying what.

    A command prints it and exits with its `status`; other exceptions keep their traceback.
    """

    status = 1


class InputError(CommandError, ValueError):
    """Bad input: a file, a flag or a value, which the message names."""


class TrainingStopped(CommandError, RuntimeError):
    """Training cannot continue: a loss that is not finite, a checkpoint that cannot be written."""


class LossNotFinite(TrainingStopped):
    """The loss or its gradient is NaN or infinite."""


@contextlib.contextmanager
def located(where: object) -> Iterator[None]:
    """Puts the file or the place in front of an InputError of the block."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{where}: {error}") from error


def warn(text: str) -> None:
    """Prints one line to standard error: what the user may want to change; work continues."""
    print(f"warning: {text}", file=sys.stderr)


@contextlib.contextmanager
def decorating(what: str) -> Iterator[None]:
    """Makes any error of the block a warning: it adds a report or a picture to saved results."""
    try:
        yield
    except Exception as error:
        warn(f"{what} could not be written ({type(error).__name__}: {reason(error)})")


def reason(error: Exception) -> str:
    """Returns a library error's message in one line, to be quoted in an error of ours.

    Leaves out what TensorFlow adds: "Graph execution error:", the place in the graph, and names of
    nodes and operations.
    """
    lines = str(getattr(error, "message", None) or error).splitlines()
    told = [re.sub(_GRAPH_NAMES, "", line).strip() for line in lines if not _GRAPH.match(line)]
    return next(filter(None, told), type(error).__name__)


# Lines of TensorFlow's messages that say where in the graph, and parts of the others that do.
_GRAPH = re.compile(
    r'Graph execution error|Detected at node|<stack traces unavailable>|  File "|    '
    r"|\d+ root error\(s\) found|\s*\[\[\{\{"
)
_GRAPH_NAMES = re.compile(r"\{\{\w*node .*?\}\}| \[Op:\w+\].*|^ *\(\d+\) [A-Z_]+: ")


def require_flags(flags: Any, needed: Mapping[str, str]) -> None:
    """Raises InputError for the first flag of a command that is needed and not given."""
    for name, expectation in needed.items():
        if not flags[name].value:
            raise InputError(f"--{name} is missing: it should be {expectation}")


def main_with_clear_errors(
    main: Callable[[list[str]], None], *, takes_arguments: bool = False
) -> Callable[[list[str]], None]:
    """Wraps an absl `main` so that a CommandError ends it with its sentence and status 1.

    Arguments that are no flags are an error unless it `takes_arguments`.
    SIGINT (Ctrl-C), SIGTERM and SIGHUP end it with status 130, 143 and 129; see stopping.py.
    """

    def wrapped(argv: list[str]) -> None:
        try:
            with stopping.handling():
                if argv[1:] and not takes_arguments:
                    raise InputError(f"Unknown argument {argv[1]!r}; see --help")
                main(argv)
        except CommandError as error:
            print(f"error: {error}", file=sys.stderr)
            sys.exit(error.status)
        except OSError as error:  # a full disk, a folder that may not be written, ...
            print(f"error: {error.filename or 'output'}: {error.strerror}", file=sys.stderr)
            sys.exit(1)
        except stopping.Stopped as stopped:
            print(f"{stopped}; run the same command again", file=sys.stderr)
            sys.exit(stopped.status)

    return wrapped
