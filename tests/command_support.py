"""The project's commands as processes or modules, and processes that say what they do. One process
per test run imports TensorFlow, which takes four seconds, and each command is forked from there."""

import contextlib
import functools
import importlib
import itertools
import multiprocessing
import os
import pathlib
import runpy
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

from absl import flags

ROOT = pathlib.Path(__file__).parent.parent
# Nothing of the project, whose scripts each define their own flags.
IMPORTED = ["tensorflow", "tensorflow_text", "tf_keras"]
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(IMPORTED)


def signal_after(monkeypatch, owner, name: str, number: int, calls: int = 1) -> None:
    """Sends this process a signal at the end of one of the calls of a method, counted from 1."""
    method, count = getattr(owner, name), itertools.count(1)

    def signalling(*arguments, **options):
        result = method(*arguments, **options)
        if next(count) == calls:
            os.kill(os.getpid(), number)
            time.sleep(0.3)  # a thread receives it
        return result

    monkeypatch.setattr(owner, name, signalling)


class Command:
    """A running command, in the repository's folder: what would follow `python`, the text that it
    reads, and variables that it has besides this process's at its first command."""

    def __init__(self, *arguments, text: str = "", environment: dict[str, str] | None = None):
        self.arguments = [str(argument) for argument in arguments]
        self._folder = tempfile.TemporaryDirectory()
        streams = [os.path.join(self._folder.name, name) for name in ("in", "out", "err")]
        self._in, self._out, self._err = map(pathlib.Path, streams)
        self._in.write_text(text, encoding="utf-8")
        given = (self.arguments, streams, environment or {})
        process = _context.Process(target=_execute, args=given)
        process.start()
        self.process = process

    def poll(self) -> int | None:
        return self.process.exitcode

    def kill(self) -> None:
        self.process.kill()
        self.process.join()

    def send(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, number)

    def has_begun(self) -> bool:
        """Returns True once the process has its own signal handlers, or has ended."""
        try:
            with open(f"/proc/{self.process.pid}/status") as file:
                caught = next(line for line in file if line.startswith("SigCgt:"))
        except (OSError, StopIteration):
            return True
        return bool(int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1)

    def wait_until(self, condition, seconds: float = 600) -> None:
        """Waits for a condition, in which the command may not end."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert self.poll() is None, self.said()
            assert time.monotonic() < deadline, self.said()
            time.sleep(0.01)

    def said(self) -> str:
        return _text(self._err)

    def finish(self, timeout: float = 600) -> subprocess.CompletedProcess:
        """Waits for its end; returns exit status, standard output and standard error."""
        self.process.join(timeout)
        if self.process.is_alive():
            self.kill()
            raise subprocess.TimeoutExpired(self.arguments, timeout)
        said = _text(self._out), _text(self._err)
        return subprocess.CompletedProcess(self.arguments, self.process.exitcode, *said)


def _text(path: pathlib.Path) -> str:
    """Returns what a process wrote; "" if it ended before it opened the file."""
    return path.read_text(encoding="utf-8") if path.exists() else ""


def run(*arguments, status: int = 0, **options) -> subprocess.CompletedProcess:
    """Runs a command, which should end with this status; see Command."""
    done = Command(*arguments, **options).finish()
    assert done.returncode == status, done.stderr
    return done


def python(*arguments, **options) -> subprocess.CompletedProcess:
    """Runs a new interpreter in the repository's folder, whatever its status will be."""
    options |= {"cwd": ROOT, "capture_output": True, "text": True}
    return subprocess.run([sys.executable, *arguments], **options)


def building(folder, output) -> Command:
    """Starts a build with the corpus and the vocabulary of `pretraining_support.build_data`."""
    line = ["--max_seq_length=32", "--num_shards=12", "--heldout_fraction=0.1"]
    line += [f"--corpus={folder / 'data_corpus'}", f"--vocab={folder / 'data_vocabulary'}"]
    return Command("build_pretraining_data.py", *line, f"--output_dir={output}")


MADE_OF_A_MODEL = ("savedmodel", "litert", "huggingface", "tf1")


def making(form: str, model, output) -> Command:
    """Starts what makes one of `MADE_OF_A_MODEL`: an export or a conversion."""
    if form in ("savedmodel", "litert"):
        line = ["export_savedmodel.py", f"--model_dir={model}", f"--output_dir={output}"]
        return Command(*line, f"--format={form}")
    line = ["-m", "convbert.checkpoints.convert", f"--input={model}", f"--output={output}"]
    return Command(*line, f"--target={form}")


def _execute(arguments: list[str], streams: list[str], environment: dict[str, str]) -> None:
    """In the forked process: what the interpreter does with its command line."""
    os.environ.update(environment)
    tempfile.tempdir = None  # which the process that was forked may have found
    for number, path in enumerate(streams):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)  # of a child: the null device
    os.chdir(ROOT)  # which is on the path of modules, as it is on the tests'
    if arguments[0] == "-m":
        sys.argv[:] = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv[:] = arguments
        runpy.run_path(arguments[0], run_name="__main__")


def import_command(monkeypatch, name: str):
    """A module, imported anew with flags of its own, and these flags."""
    importlib.import_module("convbert.training.device_flags")  # where other commands have it from
    own = flags.FlagValues()  # commands share names of flags
    for define in [word for word in dir(flags) if word.startswith("DEFINE_")]:
        known = functools.partial(getattr(flags, define), flag_values=own)
        monkeypatch.setattr(flags, define, known)
    monkeypatch.setattr(flags, "FLAGS", own)
    for module in (name, "convbert.training.device_flags"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.delattr("convbert.training.device_flags")
    return importlib.import_module(name), own


class Started:
    """A process that runs Python code, in the repository's folder, and says what it does, a line
    each, so that a test can send signals in between. It calls `before` first."""

    def __init__(self, code: str, *arguments, before: Callable[[], None] = lambda: None):
        # In the background SIGINT is ignored, under nohup SIGHUP, and by what tests start, too.
        defaults = dict.fromkeys((signal.SIGINT, signal.SIGHUP), signal.SIG_DFL)
        options = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        options |= {"cwd": ROOT, "text": True}
        options["preexec_fn"] = lambda: [[signal.signal(*d) for d in defaults.items()], before()]
        line = [sys.executable, "-c", code, *map(str, arguments)]
        self.process = subprocess.Popen(line, **options)

    def until(self, line: str) -> "Started":
        """Waits for the next line that it prints."""
        assert self.process.stdout.readline() == f"{line}\n"
        return self

    def send(self, number: int) -> "Started":
        self.process.send_signal(number)
        return self

    def poll(self) -> int | None:
        return self.process.poll()

    def said(self) -> str:
        return ""  # it is read in the end

    wait_until = Command.wait_until

    def say(self, line: str) -> None:
        print(line, file=self.process.stdin, flush=True)

    def ended(self) -> tuple[int, str, str]:
        """Exit status, standard output and standard error."""
        out, err = self.process.communicate(timeout=120)
        return self.process.returncode, out, err
