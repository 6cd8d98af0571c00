"""Batches of tf.data services are those that a trainer reads itself, or none."""

from __future__ import annotations

import itertools
import socket
import time

import numpy as np
import pytest
import tensorflow as tf

from data.input_pipeline import pretraining_dataset, record_files
from data.served_batches import ServedBatches, start_service
from data.service_addresses import parse_addresses
from errors import InputError
from tests.build_support import VOCABULARY

pytestmark = pytest.mark.slow  # clients of services that stopped live on for seconds
B, S = 16, 32


@pytest.fixture(scope="module")
def make_part(built):
    """A part of the batches from a step on."""
    files = record_files(str(built))

    def make(start_step: int, part: int = 0, parts: int = 1) -> tf.data.Dataset:
        sizes = {"batch_size": B, "max_seq_length": S, "vocab_size": VOCABULARY.size}
        return pretraining_dataset(
            files, **sizes, seed=3, start_step=start_step, part=part, parts=parts
        )

    return make


@pytest.fixture(scope="module")
def services():
    """Two services in this process."""
    started = [start_service("localhost", 0, 0) for _ in range(2)]
    yield [dispatcher.target for dispatcher, _ in started]
    for servers in started:
        stop(servers)


def stop(servers) -> None:
    dispatcher, worker = servers
    worker._stop()
    dispatcher._stop()


def served(make_part, addresses, timeout=60.0) -> ServedBatches:
    return ServedBatches(make_part, make_part(0).element_spec, addresses, timeout)


def first(dataset, count: int) -> list[np.ndarray]:
    """Ids of the first batches."""
    found = itertools.islice(dataset.as_numpy_iterator(), count)
    return [np.concatenate([batch[name] for name in sorted(batch)]) for batch in found]


# 0.8 of 120 documents are more than 16 batches, less than 60: the second start is in a later epoch.
@pytest.mark.parametrize(("count", "start_step"), [(1, 0), (2, 61)])
def test_they_are_those_of_the_trainer(make_part, services, count, start_step):
    wanted = first(make_part(start_step), 12)
    assert not all(np.array_equal(a, b) for a, b in itertools.pairwise(wanted))
    found = first(served(make_part, services[:count])(start_step), 12)
    np.testing.assert_array_equal(found, wanted)


def test_trainers_do_not_take_batches_from_each_other(make_part, services):
    batches = served(make_part, services)
    one, other = (iter(batches(start).as_numpy_iterator()) for start in (5, 0))
    found = [next(one) for _ in range(3)], [next(other) for _ in range(8)]
    for a, b in zip(found[0], found[1][5:]):
        np.testing.assert_array_equal(a["input_ids"], b["input_ids"])


def failing(batches: ServedBatches, steps: int) -> str:
    """What it says when some of the batches cannot come."""
    with pytest.raises(InputError) as caught, batches.clear_errors():
        first(batches(), steps)
    return str(caught.value)


def test_a_second_worker_at_an_address_is_an_error(make_part):
    dispatcher, worker = start_service("localhost", 0, 0)
    service = tf.data.experimental.service
    address = dispatcher.target.removeprefix("grpc://")
    second = service.WorkerServer(service.WorkerConfig(dispatcher_address=address))
    deadline = time.monotonic() + 60
    try:
        while dispatcher._num_workers() < 2:  # until then, the first one's batches are right
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert dispatcher.target in failing(served(make_part, [dispatcher.target]), 1000)
    finally:
        for server in (second, worker, dispatcher):
            server._stop()


def test_what_is_no_service_ends_within_the_timeout(make_part):
    with socket.socket() as listening:  # never answers
        listening.bind(("localhost", 0))
        listening.listen()
        address = f"grpc://localhost:{listening.getsockname()[1]}"
        start = time.monotonic()
        said = failing(served(make_part, [address], timeout=1.5), 1)
    assert address in said
    assert "`data_service_timeout`" in said
    assert time.monotonic() - start < 15


def test_files_that_a_service_cannot_read_are_named(built, services):
    def make(start_step, part, parts):
        return tf.data.TFRecordDataset(str(built / "none")).map(lambda x: {"x": x})

    batches = ServedBatches(make, {"x": tf.TensorSpec([], tf.string)}, services[:1], 60.0)
    said = failing(batches, 1)
    assert str(built / "none") in said
    assert services[0] in said


@pytest.mark.parametrize(
    "text", ["", "localhost:1", "grpc://localhost", "grpc://a:1,", "grpc://a:1,grpc://a:1"]
)
def test_addresses_of_another_form_are_rejected(text):
    with pytest.raises(InputError, match="--data_service"):
        parse_addresses(text)


def test_several_addresses():
    assert parse_addresses("grpc://a:1, grpc://10.0.0.1:22") == ["grpc://a:1", "grpc://10.0.0.1:22"]


def test_a_service_that_was_restarted_is_an_error(make_part):
    servers = start_service("localhost", 0, 0)
    ports = [int(server._address.split(":")[1]) for server in servers]
    batches = served(make_part, [servers[0].target], timeout=10.0)

    def restarted_after_three():
        nonlocal servers
        for number, _ in enumerate(batches()):
            if number == 2:
                stop(servers)
                servers = start_service("localhost", *ports)
            assert number < 500

    with pytest.raises(InputError, match=f"localhost:{ports[0]}"), batches.clear_errors():
        restarted_after_three()
    stop(servers)
