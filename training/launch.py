"""Starts the workers of --strategy multi_worker, on this machine or on a list of hosts by ssh.

    python -m training.launch --hosts localhost:2 -- \\
        python run_pretraining.py --strategy multi_worker --data_dir DATA --model_name mine
    python -m training.launch --hosts node1,node2 --restarts 3 -- \\
        .venv/bin/python run_pretraining.py --strategy multi_worker ...

Every worker runs the same command in the same folder, with a TF_CONFIG of its own; its lines begin
with its number. When one fails all end, and are started again where one was lost. Needs no
TensorFlow. Exit status: 0 where all end with it, else that of the first worker that failed.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

from absl import app, flags

from errors import InputError, main_with_clear_errors, require_flags
from training.cluster import Cluster
from training.meeting import LOST

FLAGS = flags.FLAGS
flags.DEFINE_list("hosts", None, "Hosts, each HOST or HOST:NUMBER of workers; localhost:2.")
flags.DEFINE_integer("port", 12345, "First port of each host; of localhost: any that are free.")
flags.DEFINE_integer("restarts", 0, "Number of times to start again after the loss of a worker.")
flags.DEFINE_string("directory", None, "Folder to run in on each host. Default: this one.")

LOCAL = "localhost"
GRACE = 15  # seconds for workers to end by themselves, then by SIGTERM, then by SIGKILL
_BAR_SECONDS = 10  # between states of a progress bar
_SSH_FAILED, _KILLED = 255, 128 + signal.SIGKILL
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main(argv: list[str]) -> None:
    """Runs the group to its end."""
    require_flags(FLAGS, {"hosts": "hosts such as node1,node2, or localhost:2"})
    command = argv[1:]
    if not command:
        raise InputError("after -- there should be the command of a worker. Received: nothing")
    hosts = expand_hosts(FLAGS.hosts)
    asked: list[int] = []
    for number in _SIGNALS:
        signal.signal(number, lambda number, _: asked.append(number))
    for attempt in range(FLAGS.restarts + 1):
        group = Group(hosts, command, FLAGS.port, FLAGS.directory)
        status = group.run(asked)
        again = group.may_be_repeated and not asked
        if not again or attempt == FLAGS.restarts:
            break
        _say(f"starting again, {attempt + 1} of {FLAGS.restarts} times")
    sys.exit(status)


def expand_hosts(hosts: Sequence[str]) -> list[str]:
    """The host of each worker: "a:2,b" is a, a, b.

    Raises:
        InputError: a number that is none, or localhost among hosts that cannot reach it.
    """
    found = []
    for host in hosts:
        match = re.fullmatch(r"([^:]+)(?::0*([1-9]\d*))?", host.strip())
        if not match:
            raise InputError(f"--hosts should be of HOST or HOST:NUMBER. Received: {host!r}")
        found += [match[1]] * int(match[2] or 1)
    if LOCAL in found and set(found) != {LOCAL}:
        raise InputError(f"--hosts: the others cannot reach {LOCAL}: give this host's name")
    return found


class Group:
    """The processes of a group's workers.

    Attributes:
        may_be_repeated: whether nothing but the loss of workers has ended it.
    """

    def __init__(self, hosts: list[str], command: list[str], port: int, directory: str | None):
        if hosts[0] == LOCAL:
            addresses = [f"127.0.0.1:{free}" for free in free_ports(len(hosts))]
        else:
            addresses = [
                f"{host}:{port + hosts[:number].count(host)}" for number, host in enumerate(hosts)
            ]
        cluster = Cluster(tuple(addresses), 0, {"worker": len(hosts)})
        self._processes, self._readers = [], []
        directory = directory or os.getcwd()
        for number, host in enumerate(hosts):
            process = _start(host, command, cluster.tf_config(number), directory)
            self._processes.append(process)
            self._readers.append(threading.Thread(target=_copy, args=(number, process)))
            self._readers[-1].start()
        self.may_be_repeated = False

    def run(self, asked: list[int]) -> int:
        """Waits for the end of all; the first status that is not 0, of signals as shells do.

        Args:
            asked: signals that have come to this process, which the workers get.
        """
        failed: list[tuple[int, int]] = []  # worker, status
        deadline, sent, left = None, 0, dict(enumerate(self._processes))
        while left:
            for number, process in list(left.items()):
                if (status := process.poll()) is not None:
                    del left[number]
                    if status:
                        failed.append((number, 128 - status if status < 0 else status))
            if sent < len(asked):
                sent = len(asked)
                _signal(left.values(), asked[-1])
            elif failed and deadline is None:
                deadline, steps = time.monotonic() + GRACE, [signal.SIGKILL, signal.SIGTERM]
            elif deadline is not None and time.monotonic() > deadline and not asked:
                _signal(left.values(), steps.pop() if steps else signal.SIGKILL)
                deadline += GRACE
            time.sleep(0.05)
        for reader in self._readers:
            reader.join()
        for number, status in failed:
            _say(f"worker {number} ended with status {status}")
        self.may_be_repeated = bool(failed) and all(
            status in (LOST, _SSH_FAILED, _KILLED) for _, status in failed
        )
        return 128 + asked[0] if asked and failed else failed[0][1] if failed else 0


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody listens at."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [server.getsockname()[1] for server in sockets]
    finally:
        for server in sockets:
            server.close()


def _start(host: str, command: list[str], tf_config: str, directory: str) -> subprocess.Popen:
    environment = os.environ
    if host == LOCAL:
        environment = {**os.environ, "TF_CONFIG": tf_config}
    else:
        words = shlex.join(["env", f"TF_CONFIG={tf_config}", *command])
        # With a terminal, the end of this process ends the other.
        command = ["ssh", "-tt", "-o", "BatchMode=yes", host]
        command.append(f"cd {shlex.quote(directory)} && exec {words}")
    if host == LOCAL and not os.path.isdir(directory):
        raise InputError(f"--directory {directory}: there is no such folder")
    try:
        return subprocess.Popen(
            command,
            cwd=directory if host == LOCAL else None,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C comes to this process alone, which passes it on
        )
    except OSError as error:
        raise InputError(f"{command[0]}: cannot be run: {error.strerror}") from error


def _copy(number: int, process: subprocess.Popen) -> None:
    """Prints what a worker says, line by line, until it ends.

    A progress bar returns to its line. Of one it prints a state every `_BAR_SECONDS`, and the last.
    """
    rest, shown = b"", 0.0
    while data := process.stdout.read1(1 << 16):
        *parts, rest = re.split(rb"(?<=[\r\n])", rest + data)
        for part in parts:
            is_state, text = part.endswith(b"\r"), part.strip()
            if text and not (is_state and time.monotonic() - shown < _BAR_SECONDS):
                _print_line(number, text)
                shown = time.monotonic() if is_state else shown
    if rest.strip():
        _print_line(number, rest.strip())


def _print_line(number: int, text: bytes) -> None:
    sys.stdout.buffer.write(b"[%d] %s\n" % (number, text))
    sys.stdout.buffer.flush()


def _signal(processes, number: int) -> None:
    for process in processes:
        process.send_signal(number)


def _say(text: str) -> None:
    print(f"launch: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    app.run(main_with_clear_errors(main))
