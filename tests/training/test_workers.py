"""What the workers of a group tell each other; each is a thread here, on loopback."""

import contextlib
import pathlib
import queue
import socket
import threading
import time

import numpy as np
import pytest

from errors import InputError, TrainingStopped
from training import meeting, workers
from training.cluster import Cluster
from training.launch import free_ports
from training.workers import LOST, WorkerLost, Workers


def cluster(count, ports=None) -> list[Cluster]:
    """The same group, as each of its workers sees it."""
    addresses = tuple(f"127.0.0.1:{port}" for port in ports or free_ports(count))
    return [Cluster(addresses, index, {"worker": count}) for index in range(count)]


def together(*functions) -> list:
    """Calls functions in threads of their own; returns what they returned or raised."""
    found = [None] * len(functions)

    def call(place, function):
        try:
            found[place] = function()
        except Exception as error:
            found[place] = error

    threads = [threading.Thread(target=call, args=pair) for pair in enumerate(functions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    return found


class Group:
    """Three workers that have met; `ends` gets what would have ended their processes."""

    def __init__(self, timeout=20.0, count=3):
        self.ends, clusters = queue.Queue(), cluster(count)
        connections = together(
            *(lambda own=own: meeting.meet(own, {}, timeout) for own in clusters)
        )
        self.workers = [
            Workers(own, connection, timeout, lambda *end, n=own.index: self.ends.put((n, *end)))
            for own, connection in zip(clusters, connections)
        ]

    def all(self, function) -> list:
        """What each worker returns or raises."""
        return together(*(lambda worker=worker: function(worker) for worker in self.workers))

    def close(self, number):
        """Ends a worker's connections, as the end of its process does."""
        worker = self.workers[number]
        worker._ended = True
        for connection in worker._connections.values():
            with contextlib.suppress(OSError):  # the other was first
                connection.shutdown(socket.SHUT_RDWR)

    def close_all(self):
        """Ends all of them."""
        for number in range(len(self.workers)):
            self.close(number)

    def ended(self, count) -> dict[int, tuple[int, str]]:
        """Status and sentence of this many workers that have ended."""
        found = [self.ends.get(timeout=20) for _ in range(count)]
        return {number: (status, sentence) for number, status, sentence in found}


@pytest.fixture
def group():
    made = Group()
    yield made
    made.close_all()


def test_values_and_arrays_of_all_come_to_all(group):
    assert group.all(lambda own: own.exchange("numbers", own.index)) == [[0, 1, 2]] * 3
    assert [own.is_chief for own in group.workers] == [True, False, False]

    def gather(own):
        return own.gather("arrays", {"a": np.full([2, own.index], own.index), "": np.arange(3)})

    for found in group.all(gather):
        assert [arrays["a"].shape for arrays in found] == [(2, 0), (2, 1), (2, 2)]
        assert found[2]["a"].tolist() == [[2, 2], [2, 2]]
        assert found[1][""].tolist() == [0, 1, 2]


def test_all_stop_by_the_signal_of_one(group):
    assert group.all(lambda own: own.agree_to_stop(None)) == [None] * 3
    assert group.all(lambda own: own.agree_to_stop(15 if own.index == 2 else None)) == [15] * 3


def test_what_differs_is_named_on_every_worker(group):
    facts = {"learning_rate": 0.1, "data": "x", "betas": (1, 2)}
    assert group.all(lambda own: own.agree(facts)) == [None] * 3
    errors = group.all(lambda own: own.agree({**facts, "learning_rate": 0.1 * (own.index < 2)}))
    assert len(set(map(str, errors))) == 1
    assert isinstance(errors[0], InputError)
    for part in ("worker 2", "learning_rate", "0.1", "0.0"):
        assert part in str(errors[0])
    assert "data" not in str(errors[0])


@pytest.mark.parametrize("lost", [0, 2])
def test_the_end_of_a_worker_ends_all_others(group, lost):
    group.close(lost)
    ends = group.ended(2)
    assert set(ends) == {0, 1, 2} - {lost}
    for status, sentence in ends.values():
        assert status == LOST
        assert group.workers[0].cluster.name(lost) in sentence


def test_the_error_of_a_worker_ends_all_others_with_its_sentence(group):
    group.workers[1].fail(TrainingStopped("the disk is full"))
    for status, sentence in group.ended(2).values():
        assert status == 1
        assert "worker 1" in sentence
        assert "the disk is full" in sentence


def test_a_worker_that_hangs_is_lost(monkeypatch):
    monkeypatch.setattr(workers, "SILENCE", 0.3)
    monkeypatch.setattr(workers, "_BEAT", 0.1)
    made = Group()
    made.workers[1]._ended = True  # it shows no sign of life any more
    ends = made.ended(2)
    assert {status for status, _ in ends.values()} == {LOST}
    assert all("worker 1" in sentence for _, sentence in ends.values())


def test_a_worker_that_takes_nothing_more_is_lost(monkeypatch):
    """The chief is in the middle of sending it more than the connection holds."""
    monkeypatch.setattr(workers, "SILENCE", 0.5)
    monkeypatch.setattr(workers, "_BEAT", 0.1)
    (chief, other), ends = socket.socketpair(), queue.Queue()
    group = Workers(cluster(2)[0], {1: chief}, 20, lambda *end: ends.put(end))
    meeting.send(other, {"kind": "value", "number": 0, "what": "large"})
    threading.Thread(target=group._exchange, args=("large", bytes(1 << 25)), daemon=True).start()
    status, sentence = ends.get(timeout=20)
    assert status == LOST
    assert "worker 1" in sentence
    other.close()


def test_a_worker_that_does_not_come_to_an_exchange():
    made = Group(timeout=0.5)
    errors = together(*(lambda own=own: own.exchange("place") for own in made.workers[:2]))
    assert isinstance(errors[0], WorkerLost)
    assert "worker 2" in str(errors[0])
    made.close_all()


def test_after_the_end_nobody_is_missed(group):
    group.all(lambda own: own.exchange("end"))
    group.close_all()
    with pytest.raises(queue.Empty):
        group.ends.get(timeout=0.3)


def test_where_others_write(group, tmp_path):
    chief, other = group.workers[:2]
    assert chief.written(str(tmp_path)) == str(tmp_path)
    folders = [other.written(str(tmp_path / name)) for name in "ab"]
    assert len(set(folders)) == 2
    assert not any(folder.startswith(str(tmp_path)) for folder in folders)
    path = pathlib.Path(folders[0], "x")
    path.write_text("x")
    other.clean()
    assert not path.exists()


# ------------------------------------------------------------ meeting


def test_who_has_other_settings_is_told_before_anything_begins():
    clusters = cluster(3)
    facts = [{"seed": 0, "xla": True, "list": (1,)}, {"seed": 0, "xla": True, "list": (1,)}]
    facts.append({"seed": 7, "list": (1,)})
    errors = together(*(lambda i=i: meeting.meet(clusters[i], facts[i], 20) for i in range(3)))
    assert {type(error) for error in errors} == {InputError}
    for error in errors:
        assert all(part in str(error) for part in ("worker 2", "seed", "7", "xla"))
        assert "list" not in str(error)


def test_who_does_not_come_is_named_by_all():
    clusters = cluster(3)
    errors = together(*(lambda i=i: meeting.meet(clusters[i], {}, 1.0) for i in range(2)))
    assert {type(error) for error in errors} == {WorkerLost}
    assert all(clusters[0].name(2) in str(error) for error in errors)


def test_the_chief_does_not_come(monkeypatch):
    monkeypatch.setattr(meeting, "_GRACE", 0)
    own = cluster(2)[1]
    with pytest.raises(WorkerLost, match="worker 0"):
        meeting.meet(own, {}, 0.5)


def test_an_address_in_use():
    with socket.create_server(("", 0)) as server:
        own = cluster(2, [server.getsockname()[1], 1])[0]
        with pytest.raises(InputError, match="worker 0"):
            meeting.meet(own, {}, 1.0)


def test_others_that_connect_are_sent_away():
    clusters = cluster(2)
    port = int(clusters[0].addresses[0].rpartition(":")[2])

    def connect(text):
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(text)
            connection.shutdown(socket.SHUT_WR)
            connection.recv(1)

    def scan():
        for text in (b"GET / HTTP/1.1\r\n\r\n", b"") * 5:
            with contextlib.suppress(OSError):  # it does not listen yet
                connect(text)
            time.sleep(0.05)
        return meeting.meet(clusters[1], {}, 20)

    found = together(lambda: meeting.meet(clusters[0], {}, 20), scan)
    assert [list(connections) for connections in found] == [[1], [0]]


def test_the_port_is_free_for_tensorflow_while_the_connections_are_held(group):
    port = int(group.workers[0].cluster.addresses[0].rpartition(":")[2])
    socket.create_server(("", port)).close()


def test_alone():
    alone = workers.current()
    assert (alone.count, alone.index, alone.is_chief) == (1, 0, True)
    assert alone.exchange("x", 5) == [5]
    assert alone.agree({"a": 1}) is None
    assert alone.agree_to_stop(15) == 15
    assert alone.written("folder") == "folder"


def test_restored_weights_are_compared(group, monkeypatch):
    class Variable:
        def __init__(self, value):
            self.value = np.float32([value, 1.0])

        def numpy(self):
            return self.value

    def compare(own, value):
        local.group = own
        workers.agree_on_weights([Variable(0.5), Variable(value)])

    local = threading.local()

    class Current:
        """The group of a thread, as each worker is one here."""

        def __getattr__(self, name):
            return getattr(local.group, name)

    monkeypatch.setattr(workers, "_current", Current())
    assert group.all(lambda own: compare(own, 2.0)) == [None] * 3
    errors = group.all(lambda own: compare(own, 2.0 + (own.index == 1)))
    assert all(isinstance(error, InputError) for error in errors)
    assert all("weights" in str(error) and "worker 1" in str(error) for error in errors)


def test_a_stranger_that_never_ends_its_message_holds_up_nobody(monkeypatch):
    monkeypatch.setattr(meeting, "_HELLO", 0.5)
    clusters, dripping = cluster(2), threading.Event()

    def drip():
        address = clusters[0].addresses[0].split(":")
        while not dripping.is_set():
            with contextlib.suppress(OSError), socket.create_connection(address) as stranger:
                stranger.sendall(b"\0\0\0\1\0\0\0\0\0\0\0\1")
                while not dripping.wait(0.1):
                    stranger.sendall(b"{")

    def meet_later():
        time.sleep(0.3)
        return meeting.meet(clusters[1], {}, 20.0)

    def all_met():
        try:
            return together(lambda: meeting.meet(clusters[0], {}, 20.0), meet_later)
        finally:
            dripping.set()

    _, connections = together(drip, all_met)
    assert [set(found) for found in connections] == [{1}, {0}]
    for found in connections:
        next(iter(found.values())).close()
