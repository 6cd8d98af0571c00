"""Which devices --strategy names."""

import pytest

from errors import InputError
from training.cluster import Cluster
from training.distribution import create_strategy, gpus_of


@pytest.mark.parametrize(
    "name", ["mirrored:0", "mirrored:00", "mirrored:-1", "mirrored:two", "tpus"]
)
def test_a_strategy_that_does_not_exist_is_rejected_with_what_does(name, capsys):
    with pytest.raises(
        InputError, match=r"--strategy should be .*mirrored:N, where N is at least 1"
    ):
        create_strategy(name)
    assert not capsys.readouterr().err  # nothing about devices that are not made


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        ("a b", [[0, 1, 2, 3]] * 2),
        ("a a b b", [[0, 1], [2, 3]] * 2),
        ("a b a", [[0, 1], [0, 1, 2, 3], [2, 3]]),
    ],
)
def test_workers_of_a_host_share_its_gpus(hosts, expected):
    addresses = tuple(f"{host}:{port}" for port, host in enumerate(hosts.split()))
    groups = [Cluster(addresses, i, {"worker": len(addresses)}) for i in range(len(addresses))]
    assert [gpus_of(range(4), group) for group in groups] == expected
    assert gpus_of([], groups[0]) == []


def test_gpus_that_cannot_be_shared_evenly():
    with pytest.raises(InputError, match="3 GPUs of a"):
        gpus_of(range(3), Cluster(("a:1", "a:2"), 0, {"worker": 2}))


def test_a_tpu_that_is_not_there(monkeypatch):
    monkeypatch.delenv("TPU_NAME", raising=False)
    with pytest.raises(InputError, match="--tpu local"):
        create_strategy("tpu")
