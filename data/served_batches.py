"""Batches that tf.data services read, in the order in which a trainer would read them itself.

A service of one worker gives one trainer the elements of a dataset in their order; with two workers
TensorFlow gives them mixed up, and twice. So every service has one worker, and of N services number
k makes the batches k, k + N, k + 2 N, ... from the first step on, which the trainer takes in turn.
Every batch comes with its step, and a trainer that receives another one than is due ends.

Each trainer has a job of its own, from its own step on: none waits for the others or takes what is
theirs, and a trainer that resumes gets what it would have got.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from data.service_addresses import PROTOCOL
from data.streams import READ_AHEAD, batch_stream, without_autotuning
from errors import InputError, reason

# (first step, part=, parts=) -> the batches of the steps first + part, first + part + parts, ...
MakePart = Callable[..., tf.data.Dataset]
_STOP_INTERVAL = 0.5  # seconds in which a thread sees that nobody takes its batches any more


def start_service(
    host: str, port: int, worker_port: int
) -> tuple[tf.data.experimental.service.DispatchServer, tf.data.experimental.service.WorkerServer]:
    """Starts a dispatcher and its one worker in this process.

    Args:
        host: the name by which trainers reach this machine.
        port: of the dispatcher; 0: any that is free.
        worker_port: of the worker; 0: likewise.
    """
    service = tf.data.experimental.service
    dispatcher = service.DispatchServer(service.DispatcherConfig(port=port))
    worker = service.WorkerServer(
        service.WorkerConfig(
            dispatcher_address=dispatcher.target.removeprefix(PROTOCOL),
            worker_address=f"{host}:{worker_port or '%port%'}",
            port=worker_port,
        )
    )
    return dispatcher, worker


class ServedBatches:
    """Creates datasets of batches that services make.

    Args:
        make_part: creates the dataset of a part of the batches, dicts of tensors. Services run it,
            so that its files have the same paths there.
        signature: of a batch.
        addresses: of the services, grpc://HOST:PORT.
        timeout: seconds to wait for a batch.
    """

    def __init__(
        self,
        make_part: MakePart,
        signature: dict[str, tf.TensorSpec],
        addresses: list[str],
        timeout: float,
    ) -> None:
        self._make_part, self._signature = make_part, signature
        self._addresses, self._timeout = addresses, timeout
        self._error: InputError | None = None

    def __call__(self, start_step: int = 0) -> tf.data.Dataset:
        """The batches from a step on."""
        dataset = tf.data.Dataset.from_generator(
            lambda: self._batches(start_step), output_signature=self._signature
        )
        return batch_stream(dataset)

    @contextlib.contextmanager
    def clear_errors(self) -> Iterator[None]:
        """Turns TensorFlow's error about a batch that did not come into the InputError it was.

        Raises:
            InputError: a service cannot be reached, was lost, cannot read the files, or gave
                another batch than the one that was due.
        """
        try:
            yield
        except tf.errors.OpError as error:
            if self._error is None:
                raise
            raise self._error from error

    def _batches(self, start_step: int) -> Iterator[dict[str, Any]]:
        """Yields the batches from a step on, of all services in turn."""
        stopped, parts = threading.Event(), len(self._addresses)
        streams = []
        for part, address in enumerate(self._addresses):
            waiting: queue.Queue = queue.Queue(READ_AHEAD)
            streams.append(waiting)
            arguments = (address, start_step, part, waiting, stopped)
            threading.Thread(target=self._receive, args=arguments, daemon=True).start()
        step = start_step
        try:
            while True:
                part = (step - start_step) % parts
                yield self._next(streams[part], self._addresses[part], step)
                step += 1
        except InputError as error:
            self._error = error
            raise
        finally:
            stopped.set()

    def _next(self, stream: queue.Queue, address: str, step: int) -> dict[str, Any]:
        """The batch of a step."""
        try:
            received = stream.get(timeout=self._timeout)
        except queue.Empty:
            raise InputError(
                f"--data_service {address}: no batch came for {self._timeout:g} seconds"
                " (`data_service_timeout`): its process has ended, or cannot be reached"
            ) from None
        if isinstance(received, Exception):
            raise InputError(f"--data_service {address}: {reason(received)}") from received
        number, batch = received
        if number != step:
            raise InputError(
                f"--data_service {address} should be one process of python -m data.service that has"
                f" run since this run began: it gave the batch of step {number}, where {step} was"
                " due"
            )
        return batch

    def _receive(
        self,
        address: str,
        start_step: int,
        part: int,
        waiting: queue.Queue,
        stopped: threading.Event,
    ) -> None:
        """Puts (step, batch) of a service into a queue, in a thread; an exception is the last."""
        try:
            parts, service = len(self._addresses), tf.data.experimental.service
            dataset = self._make_part(start_step, part=part, parts=parts)
            # Numbered by whoever makes them, so that a batch that is lost on the way is missed.
            dataset = dataset.enumerate().map(
                lambda number, batch: (start_step + part + number * parts, batch)
            )
            policy = service.ShardingPolicy.OFF
            dataset = dataset.apply(service.distribute(policy, address))
            for step, batch in without_autotuning(dataset).as_numpy_iterator():
                if not _put((int(step), batch), waiting, stopped):
                    return
        except Exception as error:  # whatever it is, the thread that trains should say it
            _put(error, waiting, stopped)


def _put(item: Any, waiting: queue.Queue, stopped: threading.Event) -> bool:
    """Puts an item into a full queue once there is room; False where nobody takes any more."""
    while not stopped.is_set():
        with contextlib.suppress(queue.Full):
            waiting.put(item, timeout=_STOP_INTERVAL)
            return True
    return False
