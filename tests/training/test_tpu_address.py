"""Flags that name a TPU."""

import dataclasses

import pytest

from errors import InputError
from training.tpu_address import TpuAddress, check_folders, tpu_address


@dataclasses.dataclass
class Run:
    strategy: str = "tpu"
    tpu: str | None = None
    tpu_zone: str | None = None
    gcp_project: str | None = None


@pytest.mark.parametrize(
    ("flags", "environment", "expected"),
    [
        ({}, {}, TpuAddress("local")),
        ({}, {"TPU_NAME": ""}, TpuAddress("local")),
        ({}, {"TPU_NAME": "mine"}, TpuAddress("mine")),
        ({"tpu": "local"}, {"TPU_NAME": "mine"}, TpuAddress("local")),
        ({"tpu": "mine", "tpu_zone": "z", "gcp_project": "p"}, {}, TpuAddress("mine", "z", "p")),
        ({"tpu": "grpc://10.0.0.2:8470"}, {}, TpuAddress("grpc://10.0.0.2:8470")),
        (
            {},
            {"KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS": "grpc://a:1,grpc://b:2", "TPU_NAME": "mine"},
            TpuAddress("grpc://a:1,grpc://b:2"),
        ),
        ({"strategy": "mirrored:2"}, {"TPU_NAME": "mine"}, None),
    ],
)
def test_the_tpu_that_flags_and_environment_name(flags, environment, expected):
    assert tpu_address(Run(**flags), environment) == expected


def test_hosts_are_those_that_the_address_says():
    assert TpuAddress("grpc://a:1,grpc://b.c:22").hosts == [("a", 1), ("b.c", 22)]
    assert TpuAddress("mine").hosts == TpuAddress("local").hosts == []
    assert [TpuAddress(name).is_local for name in ("local", "mine")] == [True, False]


@pytest.mark.parametrize(
    ("flags", "environment", "named"),
    [
        ({"strategy": "tpus"}, {}, "tpus"),
        ({"strategy": "tpu:8"}, {}, "tpu:8"),
        ({"strategy": "one_device", "tpu": "local"}, {}, "--tpu"),
        ({"strategy": "mirrored", "gcp_project": "p"}, {}, "--gcp_project"),
        ({"tpu": ""}, {}, "--tpu"),
        ({"tpu": "10.0.0.2:8470"}, {}, "10.0.0.2:8470"),
        ({"tpu": "http://10.0.0.2:8470"}, {}, "http://10.0.0.2:8470"),
        ({"tpu": "grpc://10.0.0.2"}, {}, "grpc://10.0.0.2"),
        ({"tpu": "grpc://10.0.0.2:84700"}, {}, "84700"),
        ({}, {"TPU_NAME": "My TPU"}, "TPU_NAME"),
        ({"tpu": "local", "tpu_zone": "z"}, {}, "--tpu_zone"),
        ({"tpu": "grpc://a:1", "gcp_project": "p"}, {}, "--gcp_project"),
    ],
)
def test_what_cannot_be_a_tpu_is_rejected(flags, environment, named):
    with pytest.raises(InputError, match=named):
        tpu_address(Run(**flags), environment)


def test_a_tpu_elsewhere_needs_folders_that_it_sees():
    here, there = {"data_dir": "/data"}, {"data_dir": "gs://mine/data"}
    for address in (None, TpuAddress("local")):
        check_folders(address, here)
    check_folders(TpuAddress("mine"), there)
    with pytest.raises(InputError, match="--data_dir"):
        check_folders(TpuAddress("mine"), here)
