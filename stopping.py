"""How a command stops when a signal asks it to. Every folder may import this.

SIGINT (Ctrl-C), SIGTERM and SIGHUP end a command with status 130, 143 and 129, after temporary
files and locks have been removed (`cleaning`). Where that would lose work, the command finishes and
saves a piece first (`deferred`); a second signal then ends it at once, with the same status.

Python calls signal handlers in the main thread alone, between two of its instructions, and that
thread may be in a compiler or in a loop of steps for minutes. So a thread of our own watches for
signals and decides; a handler only holds the main thread still while files are removed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Seconds. `timeout` and closing terminals send a signal twice at once, which counts as one.
_ONE_REQUEST = 0.5
_PATIENCE = 0.5  # until the main thread is held; in C++ it is not

_cleanups: list[Callable[[], None]] = []  # innermost last
_watcher: _Watcher | None = None  # of this process, while it handles signals
_at_once = False  # see `leave_at_once`


class Stopped(Exception):
    """A signal asked to stop; raised where a piece of work is done and can be saved.

    Attributes:
        status: the exit status that tells so.
    """

    def __init__(self, number: int = signal.SIGINT):
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.status = 128 + number


def install() -> None:
    """Handles signals from here to the end of the process: for a script, before slow imports."""
    global _watcher
    if _watcher is None:
        _watcher = _Watcher()


def handle_again() -> None:
    """Takes the signals back from a library that has begun to handle them, if they are handled."""
    if _watcher is not None:
        _watcher.take()


@contextlib.contextmanager
def handling() -> Iterator[_Watcher | None]:
    """Handles signals in the block; yields None in a thread that cannot have handlers."""
    global _watcher
    if _watcher is not None or threading.current_thread() is not threading.main_thread():
        yield _watcher
        return
    install()
    try:
        yield _watcher
    finally:
        if _watcher is not None:  # it is, in a forked process
            _watcher.close()
            _watcher = None


def asked() -> int | None:
    """The signal that asked this process to stop, None where none has come."""
    return None if _watcher is None else _watcher.asked


def end(status: int, text: str) -> None:
    """Ends the process at once, from any thread: holds the main thread, says why, removes what is
    unfinished. Waits for no thread, as some of TensorFlow's would wait for ever.
    """
    if _watcher is not None:
        _watcher.hold_main_thread(signal.SIGTERM)
    _say(text)
    _clean()
    os._exit(status)


def leave(status: int) -> None:
    """Ends a command whose work is done: as Python does, or at once after `leave_at_once`."""
    if _at_once:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(status)
    if status:
        sys.exit(status)


def leave_at_once() -> None:
    """Lets `leave` wait for no threads: TensorFlow's server has some that wait for its peers."""
    global _at_once
    _at_once = True


@contextlib.contextmanager
def deferred(
    what: str, agree: Callable[[int | None], int | None] = lambda number: number
) -> Iterator[Callable[..., None]]:
    """Lets the first signal wait for a piece of work.

    Example:
        try:
            with deferred("this loop of steps") as stop_if_asked:
                while train_some_steps():
                    stop_if_asked()
        except Stopped:
            save()
            raise

    Args:
        what: is finished first, for the message.
        agree: turns the signal that has come to this process, if any, into that which several
            processes stop by together.

    Yields:
        A function that raises Stopped where a signal has come; takes and ignores any arguments.

    Raises:
        Stopped: at the end of the block, where a signal has come.
    """
    with handling() as watcher:
        if watcher is None:
            yield lambda *_: None
            return

        def stop_if_asked(*_: Any) -> None:
            if (number := agree(watcher.asked)) is not None:
                raise Stopped(number)

        with watcher.deferring(what):
            yield stop_if_asked
        stop_if_asked()


@contextlib.contextmanager
def cleaning(clean: Callable[[], None]) -> Iterator[None]:
    """Calls `clean` at the end of the block, and when a signal ends the process in it.

    Then not by an exception: raised while TensorFlow traces, it may come out as another one.
    Outside of commands, this handles SIGTERM and SIGHUP where nobody else does. A process that is
    forked in the block leaves `clean` to its parent.
    """
    process, handled = os.getpid(), []
    _cleanups.append(clean)
    try:
        if threading.current_thread() is threading.main_thread():  # only it may set handlers
            for number in (signal.SIGTERM, signal.SIGHUP):
                if signal.getsignal(number) == signal.SIG_DFL:
                    signal.signal(number, _clean_and_end)
                    handled.append(number)
        yield
    finally:
        for number in handled:
            if signal.getsignal(number) is _clean_and_end:
                signal.signal(number, signal.SIG_DFL)
        if os.getpid() == process:
            _cleanups.remove(clean)
            clean()


def _clean_and_end(number: int, frame: Any) -> None:
    _clean()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _clean() -> None:
    for clean in reversed(_cleanups):
        with contextlib.suppress(Exception):  # the others' turn comes all the same
            clean()


class _Watcher:
    """Handles signals from its creation until `close`."""

    def __init__(self) -> None:
        self.asked: int | None = None  # the first signal
        self._asked_at = 0.0
        self._deferred: list[str] = []
        self._lock = threading.Lock()  # of the three above
        self._ending = False
        self._held = threading.Event()
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        threading.Thread(target=self._watch, name="signals", daemon=True).start()
        self._before_write = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        # Under nohup SIGHUP is ignored, and stays so.
        ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        handled = [n for n in SIGNALS if n != signal.SIGHUP or not ignored]
        self._before = {number: signal.getsignal(number) for number in handled}
        self.take()

    def take(self) -> None:
        """Becomes the handler of the signals."""
        for number in self._before:
            signal.signal(number, self._hold)

    def close(self) -> None:
        """Gives the signals back."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._before_write)
        os.close(self._write)  # ends the thread

    def forget(self) -> None:
        """In a forked process: its signals are its own, and no thread is there to watch them."""
        signal.set_wakeup_fd(-1)
        os.close(self._read)
        os.close(self._write)
        for number in self._before:
            default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
            signal.signal(number, default)

    def _watch(self) -> None:
        while numbers := os.read(self._read, 64):
            for number in numbers:
                if number in self._before:
                    self._receive(number)
        os.close(self._read)

    def _receive(self, number: int) -> None:
        if self._ending:
            return
        with self._lock:
            now = time.monotonic()
            if self.asked is not None and now - self._asked_at < _ONE_REQUEST:
                return
            first, waits_for = self.asked is None, self._deferred[-1:]
            if first:
                self.asked, self._asked_at = number, now
        if first and waits_for:
            name = signal.Signals(number).name
            _say(f"{name}: stopping after {waits_for[0]}; once more to stop at once")
        else:
            self._end()

    @contextlib.contextmanager
    def deferring(self, what: str) -> Iterator[None]:
        """The first signal in the block does not end the process, but an exception then does."""
        with self._lock:
            self._deferred.append(what)
        failed = True
        try:
            yield
            failed = False
        except Stopped:
            failed = False
            raise
        finally:
            with self._lock:
                self._deferred.pop()
                asked = self.asked
            if failed and asked is not None:  # there is nothing to save
                self._end()

    def _end(self) -> None:
        """Holds the main thread, removes what is unfinished, ends the process."""
        self.hold_main_thread(self.asked)
        _say(f"{Stopped(self.asked)}; run the same command again")
        _clean()
        os._exit(128 + self.asked)  # without waiting for threads that compile or compute

    def hold_main_thread(self, number: int) -> None:
        """Keeps the main thread from going on, by a signal that is handled here."""
        self._ending = True
        if threading.current_thread() is not threading.main_thread():
            signal.pthread_kill(threading.main_thread().ident, number)
            self._held.wait(_PATIENCE)

    def _hold(self, number: int, frame: Any) -> None:
        """In the main thread, between two instructions."""
        if self._ending:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
            self._held.set()
            while True:
                time.sleep(60)


def _say(text: str) -> None:
    """Writes a line to standard error below a progress bar, past Python's locks."""
    with contextlib.suppress(OSError):
        os.write(2, f"\n{text}\n".encode())


def _forget() -> None:
    global _watcher
    if _watcher is not None:
        _watcher.forget()
        _watcher = None
    _cleanups.clear()


os.register_at_fork(after_in_child=_forget)
