"""Reads records for trainers on other machines: a tf.data service of one worker.

    python -m data.service --host HOST --port 5050
    python run_pretraining.py ... --data_service grpc://HOST:5050

A trainer sends what is to be read, and gets its batches in their order; see data/served_batches.py.
One service feeds several trainers, and knows nothing of any data folder; it reads the paths that
the trainers name. It runs what it is sent: use it in networks where everybody may do that.
It runs until it is stopped. Exit status 1: an error; 130, 143, 129: stopped by a signal.
"""

from __future__ import annotations

import library_logs  # noqa: F401  TensorFlow reads the environment when it is imported

# isort: split
import os
import socket

from absl import app, flags

# Before TensorFlow is imported: no accelerator, which reading has no use for.
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

from data.service_addresses import DEFAULT_PORT, PROTOCOL
from errors import InputError, main_with_clear_errors

FLAGS = flags.FLAGS
flags.DEFINE_string("host", "localhost", "Name of this machine by which trainers reach it.")
flags.DEFINE_integer("port", DEFAULT_PORT, "Port that trainers connect to.", 1, 65535)
flags.DEFINE_integer("worker_port", None, "Port that batches come from. Default: --port + 1.")


def main(argv: list[str]) -> None:
    """Serves until a signal comes."""
    if len(argv) > 1:
        raise InputError(f"Unknown argument {argv[1]!r}; see --help")
    worker_port = FLAGS.port + 1 if FLAGS.worker_port is None else FLAGS.worker_port
    for flag, port in (("--port", FLAGS.port), ("--worker_port", worker_port)):
        check_free(flag, port)
    from data import served_batches  # TensorFlow: it takes seconds

    dispatcher, worker = served_batches.start_service(FLAGS.host, FLAGS.port, worker_port)
    print(f"serving at {PROTOCOL}{FLAGS.host}:{FLAGS.port}", flush=True)
    worker.join()
    dispatcher.join()


def check_free(flag: str, port: int) -> None:
    """Raises InputError where a port is taken; TensorFlow would say so in its log alone."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or error
            raise InputError(f"{flag} {port}: cannot be listened at: {why}") from error


if __name__ == "__main__":
    app.run(main_with_clear_errors(main))
