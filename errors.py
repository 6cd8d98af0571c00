"""The one exception that means "the user can mend this", and how a command ends with it."""

from __future__ import annotations

import sys
from collections.abc import Callable


class InputError(ValueError):
    """Bad input: a file, a flag or a value. Its message is one sentence that names what and where.

    A command that meets one prints the sentence and exits with status 1, without a traceback;
    any other exception is a bug of ours and keeps its traceback.
    """


def main_with_clear_errors(main: Callable[[list[str]], None]) -> Callable[[list[str]], None]:
    """Wraps an absl `main` so that an `InputError` ends the command with its sentence and status 1."""

    def wrapped(argv: list[str]) -> None:
        try:
            main(argv)
        except InputError as error:
            print(f"error: {error}", file=sys.stderr)
            sys.exit(1)

    return wrapped
