"""Handling of signals that stop a command. All packages may import this.

SIGINT (Ctrl-C), SIGTERM and SIGHUP raise `Stopped`, which ends a command with status 130, 143, 129.
`deferred` finishes a piece of work first if it would be lost; a second signal then ends it.
"""

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_asked: tuple[int, float] | None = None  # the first signal and its time
_deferred: list[str] = []  # names of pieces to finish first, innermost last


class Stopped(BaseException):
    """A signal asked the command to stop; `status` is the matching exit status."""

    def __init__(self, number: int = signal.SIGINT):
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.status = 128 + number


def _handle(number: int, frame: FrameType | None) -> None:
    global _asked
    if _asked is None:
        _asked = (number, time.monotonic())
        if not _deferred:
            _raise(Stopped(number), frame)
            return
        print(f"\nstopping after {_deferred[-1]}; once more to stop at once", file=sys.stderr)
    elif time.monotonic() - _asked[1] > 0.5:  # `timeout` and closing terminals send signals twice
        raise SystemExit(128 + _asked[0])  # unlike `Stopped`, saves nothing


def _raise(error: BaseException, frame: FrameType | None) -> None:
    """Raises, but never inside of TensorFlow: in the frame that called it, when it returns.

    TensorFlow's native code calls Python, and prints and replaces what is raised there, or crashes.
    """
    inside = False
    while frame is not None:
        package = frame.f_globals.get("__name__", "").split(".")[0]
        if package in ("convbert", "__main__"):
            break
        inside = inside or package == "tensorflow"
        frame = frame.f_back
    if not inside or frame is None:
        raise error
    before = sys.gettrace()

    def at_next_line(frame: FrameType, event: str, argument: object) -> None:
        frame.f_trace = None
        sys.settrace(before)
        raise error

    frame.f_trace = at_next_line
    sys.settrace(lambda *event: None)  # without a function, no frame is traced


def take() -> dict:
    """Handles the signals, except ignored ones (SIGHUP under nohup); returns earlier handlers."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    for number, handler in before.items():
        signal.signal(number, signal.SIG_IGN if handler == signal.SIG_IGN else _handle)
    return before


@contextlib.contextmanager
def handling(*, last: bool = False) -> Iterator[None]:
    """Handles signals in the block; does nothing in threads, which cannot set handlers.

    After the `last` work of a process, Ctrl-C ends it without a traceback.
    """
    global _asked
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    if _handle not in map(signal.getsignal, SIGNALS):
        _asked = None
    before = take()
    try:
        yield
    finally:
        for number, handler in before.items():
            at_end = last and handler == signal.default_int_handler
            signal.signal(number, signal.SIG_DFL if at_end else handler)
        if _handle not in map(signal.getsignal, SIGNALS):
            _asked = None  # also for work in threads, which never resets it


@contextlib.contextmanager
def deferred(what: str, agree: Callable = lambda number: number) -> Iterator[Callable[[], None]]:
    """Defers the first signal until a piece of work, `what` in the message, is finished.

    Yields a function to call after each piece, which raises Stopped if `agree` returns a signal.
    """

    def stop_if_asked() -> None:
        if (number := agree(_asked and _asked[0])) is not None:
            raise Stopped(number)

    with handling():
        _deferred.append(what)
        try:
            yield stop_if_asked
        finally:
            _deferred.pop()
        stop_if_asked()
