"""A TPU that is not there: each cause in one sentence, through TensorFlow's own resolver."""

import socket

import pytest

from errors import InputError
from tests.process_support import Started
from training import tpu
from training.distribution import create_strategy
from training.tpu_address import TpuAddress

# The command's flags, on a TPU whose name is the only argument; a second one is `PATIENCE`.
COMMAND = """
import sys
import errors, training.distribution, training.tpu, training.tpu_address
training.tpu.PATIENCE = float(sys.argv[2])
address = training.tpu_address.TpuAddress(sys.argv[1])
errors.main_with_clear_errors(lambda _: training.distribution.create_strategy("tpu", address))([])
"""
SERVER = """
import tensorflow as tf
server = tf.distribute.Server({"worker": ["127.0.0.1:0"]}, protocol="grpc")
print(server.target, flush=True)
input()
"""


def unused_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_a_machine_without_a_tpu():
    with pytest.raises(InputError, match="--tpu local") as raised:
        create_strategy("tpu")
    assert tpu.WHEEL in str(raised.value)


def test_an_address_at_which_nobody_answers():
    port = unused_port()
    with pytest.raises(InputError, match=str(port)):
        create_strategy("tpu", TpuAddress(f"grpc://127.0.0.1:{port}"))


def test_a_name_outside_the_cloud(monkeypatch):
    # Where Cloud's machines look up their project; "localhost" with a port that nobody has.
    monkeypatch.setenv("GCE_METADATA_IP", f"127.0.0.1:{unused_port()}")
    monkeypatch.delenv("GCE_METADATA_HOST", raising=False)
    with pytest.raises(InputError, match="--tpu mine") as raised:
        create_strategy("tpu", TpuAddress("mine"))
    assert "--gcp_project" in str(raised.value)


def test_a_name_without_cloud_s_client(monkeypatch):
    from tensorflow.python.tpu.client import client

    monkeypatch.setattr(client, "_GOOGLE_API_CLIENT_INSTALLED", False)
    with pytest.raises(InputError, match="pip install cloud-tpu-client"):
        create_strategy("tpu", TpuAddress("mine", "us-central1-a", "my-project"))


def test_a_connection_that_takes_too_long(monkeypatch):
    monkeypatch.setattr(tpu, "PATIENCE", 0.1)
    stuck = socket.socket()
    monkeypatch.setattr(tpu, "_connect", lambda address: stuck.accept())
    stuck.bind(("127.0.0.1", 0))
    stuck.listen()
    with pytest.raises(InputError, match="0 seconds"):
        create_strategy("tpu")
    stuck.close()


@pytest.mark.slow  # two processes that import TensorFlow, one of which waits
@pytest.mark.parametrize("who", ["silent", "without TPUs"])
def test_a_host_that_is_no_tpu_ends_the_command(who):
    if who == "silent":  # accepts connections and says nothing
        server = socket.create_server(("127.0.0.1", 0))
        target = f"grpc://127.0.0.1:{server.getsockname()[1]}"
    else:
        server = Started(SERVER)
        target = server.process.stdout.readline().strip()
    try:
        status, _, err = Started(COMMAND, target, 5 if who == "silent" else 60).ended()
    finally:
        server.close() if who == "silent" else (server.say(""), server.ended())
    assert status == 1, err
    last = err.splitlines()[-1]
    assert last.startswith(f"error: --tpu {target}: ")
    assert ("5 seconds" if who == "silent" else "no TPU") in last
