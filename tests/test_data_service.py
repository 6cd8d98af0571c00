"""Training from tf.data services, with real processes on loopback.

Slow: each of the trainers compiles and trains, one of them four times.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import time

import numpy as np
import pytest
import tensorflow as tf

from tests.command_support import Command
from tests.pretraining_support import arguments, build_data

pytestmark = pytest.mark.slow

# More than wait, ready, in trainer and service.
STEPS = {"num_train_steps": 160, "save_checkpoints_steps": 20, "keep_checkpoint_max": 0}


def free_ports() -> tuple[int, int]:
    """Two ports that nobody listens at."""
    with socket.socket() as one, socket.socket() as two:
        for probe in (one, two):
            probe.bind(("localhost", 0))
        return one.getsockname()[1], two.getsockname()[1]


class Service:
    """A process of python -m data.service."""

    def __init__(self, ports: tuple[int, int] | None = None):
        self.ports = ports or free_ports()
        flags = [f"--port={self.ports[0]}", f"--worker_port={self.ports[1]}"]
        self.command = Command("-m", "data.service", *flags)
        self.address = f"grpc://localhost:{self.ports[0]}"
        self.command.wait_until(self._listens, 120)

    def _listens(self) -> bool:
        for port in self.ports:
            with contextlib.suppress(OSError), socket.create_connection(("localhost", port), 1):
                continue
            return False
        return True


@pytest.fixture
def services():
    """Starts services, and ends what is left of them."""
    started: list[Service] = []

    def start(ports=None) -> Service:
        started.append(Service(ports))
        return started[-1]

    yield start
    for service in started:
        service.command.kill()


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory) -> str:
    return build_data(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="module")
def whole(data_dir, tmp_path_factory):
    """The weights of a run that reads its records itself."""
    folder = tmp_path_factory.mktemp("whole") / "model"
    finished(train(data_dir, folder))
    return weights(folder)


def train(data_dir, model_dir, hparams=None, **options) -> Command:
    values = {**STEPS, **(hparams or {})}
    return Command("run_pretraining.py", *arguments(data_dir, model_dir, values, **options))


def finished(command: Command) -> None:
    done = command.finish()
    assert done.returncode == 0, done.stderr


def weights(model_dir) -> dict[str, np.ndarray]:
    """Everything in the last checkpoint: weights, moments, step."""
    reader = tf.train.load_checkpoint(str(model_dir / "checkpoints"))
    names = [name for name in reader.get_variable_to_shape_map() if name.endswith("VARIABLE_VALUE")]
    return {name: reader.get_tensor(name) for name in names if "save_counter" not in name}


def assert_same(model_dir, wanted) -> None:
    found = weights(model_dir)
    assert len(found) > 20
    assert found.keys() == wanted.keys()
    for name, value in found.items():
        np.testing.assert_array_equal(value, wanted[name], err_msg=name)


def test_two_trainers_at_two_services_learn_what_one_alone_learns(
    services, data_dir, whole, tmp_path
):
    data_service = ",".join(services().address for _ in range(2))
    trainers = [train(data_dir, tmp_path / name, data_service=data_service) for name in "ab"]
    for name, trainer in zip("ab", trainers):
        finished(trainer)
        assert_same(tmp_path / name, whole)


def test_a_lost_service_is_an_error_and_the_run_resumes_at_another(
    services, data_dir, whole, tmp_path
):
    """One run: its service is killed, is started again at its address, then it reads by itself."""
    service, model_dir = services(), tmp_path / "model"
    lost = {"data_service_timeout": 20}
    trainer = train(data_dir, model_dir, lost, data_service=service.address)
    trainer.wait_until(lambda: any(model_dir.glob("checkpoints/model.ckpt-20.index")))
    service.command.kill()
    start = time.monotonic()
    done = trainer.finish(120)
    assert done.returncode == 1, done.stderr
    assert time.monotonic() - start < 90
    said = done.stderr.splitlines()[-1]
    assert said.startswith("error: ")
    assert service.address in said

    again = services(service.ports)
    trainer = train(data_dir, model_dir, lost, data_service=again.address)
    trainer.wait_until(lambda: any(model_dir.glob("checkpoints/model.ckpt-1?0.index")))
    trainer.send(signal.SIGTERM)
    assert trainer.finish(120).returncode in (0, 143)
    finished(train(data_dir, model_dir))
    assert_same(model_dir, whole)


def test_a_service_that_is_not_there_is_an_error_within_the_timeout(data_dir, tmp_path):
    address = f"grpc://localhost:{free_ports()[0]}"
    quick = {"data_service_timeout": 2}
    done = train(data_dir, tmp_path / "model", quick, data_service=address).finish(120)
    assert done.returncode == 1, done.stderr
    assert address in done.stderr.splitlines()[-1]


def test_a_port_that_is_taken_is_an_error(services):
    port, _ = services().ports
    done = Command("-m", "data.service", f"--port={port}").finish(60)
    assert done.returncode == 1
    assert f"--port {port}" in done.stderr.splitlines()[-1]


def test_a_service_ends_by_a_signal(services):
    service = services()
    service.command.send(signal.SIGTERM)
    assert service.command.finish(60).returncode == 143
