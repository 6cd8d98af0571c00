"""Real workers on loopback: what they learn, and how they end. All need the time of two commands
that import, trace and train beside each other."""

import json
import os
import random
import signal
import socket
import time

import numpy as np
import pytest

from tests import command_support
from tests import pretraining_support as small
from tests.command_support import Command
from tests.damage_support import random_draw
from tests.finetune import kinds_support as kinds
from tests.test_run_finetuning import arguments

pytestmark = pytest.mark.slow
STEPS = 50
TRAINING = small.HPARAMS | {"num_train_steps": STEPS, "iterations_per_loop": 5}
TRAINING |= {"save_checkpoints_steps": 10, "learning_rate": 3e-4}


class Pair:
    """Two workers of one command; `folder` is for what the second one writes."""

    def __init__(self, folder, script, flags):
        servers = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
        addresses = [f"127.0.0.1:{server.getsockname()[1]}" for server in servers]
        for server in servers:  # their ports are free
            server.close()
        self.temporary = [folder / f"temporary{i}" for i in range(2)]
        self.commands = []
        for index, temporary in enumerate(self.temporary):
            temporary.mkdir(parents=True, exist_ok=True)
            task = {"type": "worker", "index": index}
            config = {"cluster": {"worker": addresses}, "task": task}
            environment = {"TF_CONFIG": json.dumps(config), "TMPDIR": str(temporary)}
            given = [script, "--strategy=multi_worker", *flags]
            self.commands.append(Command(*given, environment=environment))

    def finish(self):
        try:
            return [command.finish(timeout=900) for command in self.commands]
        finally:
            for command in self.commands:
                command.kill()

    def succeed(self):
        """Both end with status 0, and the second says nothing."""
        first, second = self.finish()
        said = first.stderr + second.stderr
        assert (first.returncode, second.returncode) == (0, 0), said
        assert second.stdout == ""
        assert "%|" not in second.stderr
        assert not list(self.temporary[1].glob("worker-*"))
        return first


def trained_to(model_dir):
    return max((row["step"] for row in small.metrics(model_dir)), default=0)


def assert_same_weights(found, expected):
    tensors = small.checkpoint_tensors(found, STEPS)
    for name, value in small.checkpoint_tensors(expected, STEPS).items():
        np.testing.assert_allclose(tensors[name], value, atol=1e-5, err_msg=name)


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    return small.build_data(tmp_path_factory.mktemp("workers"), "data", parts=3, num_shards=3)


@pytest.fixture(scope="module")
def pair(data_dir, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pair")
    flags = small.arguments(data_dir, folder / "m", defaults=TRAINING, do_eval=True)
    Pair(folder, "run_pretraining.py", flags).succeed()
    return folder / "m"


def test_two_workers_learn_what_one_learns(pair, data_dir, tmp_path):
    flags = small.arguments(data_dir, tmp_path / "m", defaults=TRAINING, do_eval=True)
    command_support.run("run_pretraining.py", *flags)
    assert_same_weights(pair, tmp_path / "m")
    names = ("step", "loss", "masked_lm_loss", "disc_loss")
    for row, other in zip(small.metrics(pair), small.metrics(tmp_path / "m"), strict=True):
        assert row["split"] == other["split"]
        assert [row[n] for n in names] == pytest.approx([other[n] for n in names], rel=1e-5)
    assert set(os.listdir(pair)) == set(os.listdir(tmp_path / "m"))


@pytest.mark.parametrize("victim", [0, 1], ids=["chief", "other"])
def test_a_worker_that_is_killed_and_both_started_again(pair, data_dir, tmp_path, victim):
    flags = small.arguments(data_dir, tmp_path / "m", defaults=TRAINING, do_eval=True)
    workers = Pair(tmp_path, "run_pretraining.py", flags)
    step = random.randint(5, STEPS - 20)  # the assertion below says which; time is left after it

    workers.commands[0].wait_until(lambda: trained_to(tmp_path / "m") >= step)
    killed, other = workers.commands[victim], workers.commands[1 - victim]
    killed.kill()
    began = time.monotonic()
    done = other.finish(timeout=400)
    assert time.monotonic() - began < 90, f"killed at step {step}"
    assert done.returncode == 75
    assert "Traceback" not in done.stderr
    for _ in range(2):  # the second time there is nothing left to do
        Pair(tmp_path / "again", "run_pretraining.py", flags).succeed()
        assert_same_weights(tmp_path / "m", pair)
        found, losses = ([row["loss"] for row in small.metrics(m)] for m in (tmp_path / "m", pair))
        assert found == pytest.approx(losses, rel=1e-5)


# Masked language modelling whose metric `example_hash` is the mean of a hash of each example's ids.
HASHED = """
import dataclasses
from typing import ClassVar
import tensorflow as tf
from convbert.pretrain.objectives.base import register
from convbert.pretrain.objectives.masked_lm import MaskedLM, MaskedLMSettings
from convbert.training import metrics

@register
@dataclasses.dataclass(frozen=True)
class Settings(MaskedLMSettings):
    name: ClassVar = "hashed"
    def build(self, *given):
        return Hashed(*given)

class Hashed(MaskedLM):
    def loss(self, batch, *given, **options):
        loss, sums = super().loss(batch, *given, **options)
        ids = tf.cast(batch["input_ids"], tf.float32)
        code = tf.reduce_sum(tf.sin(ids * tf.range(1.0, ids.shape[1] + 1.0)), 1)
        return loss, sums | {"example_hash": metrics.mean(code, tf.ones_like(code))}
"""
MOVES = ({}, {"strategy": "mirrored:2"}, {"micro_batch_size": 2}, {"strategy": "multi_worker"})


@pytest.mark.parametrize(
    ("objective", "layout"),
    [("replaced_token_detection", "segments"), ("hashed", "packed"), ("causal_lm", "contiguous")],
)
def test_a_run_that_moves_ends_as_one_that_stays(objective, layout, tmp_path):
    """Killed after each of MOVES. Of the five steps of a row, `example_hash` says the examples."""
    data = small.build_data(tmp_path, parts=3, num_shards=3, example_layout=layout)
    moved, hparams = tmp_path / "moved", {"objective": objective, "num_eval_steps": -1}
    if objective == "causal_lm":
        widths = {**TRAINING["model_hparam_overrides"], "causal": True}
        hparams["model_hparam_overrides"] = widths
    plugin = tmp_path / "hashed.py"
    plugin.write_text(HASHED)
    options = {"defaults": TRAINING, "do_eval": True, "plugins": plugin}
    stayed = small.arguments(data, tmp_path / "stayed", hparams, **options)
    command_support.run("run_pretraining.py", *stayed)

    draw, last = random_draw(), 5
    for changes in MOVES:
        last = draw.randint(last + 1, last + 7)
        flags = small.arguments(data, moved, hparams | changes, **options)
        if changes.get("strategy") == "multi_worker":
            commands = Pair(tmp_path, "run_pretraining.py", flags).commands
        else:
            commands = [Command("run_pretraining.py", *flags)]
        commands[0].wait_until(lambda last=last: trained_to(moved) >= last)
        for command in commands:
            command.kill()
        last = trained_to(moved)
        print(f"{changes}: killed at step {last}")
    flags = small.arguments(data, moved, hparams, **options)
    command_support.run("run_pretraining.py", *flags)
    assert_same_weights(moved, tmp_path / "stayed")
    rows = [small.metrics(tmp_path / name) for name in ("moved", "stayed")]
    for row, other in zip(*rows, strict=True):
        assert (row["step"], row["split"]) == (other["step"], other["split"])
        assert row["loss"] == pytest.approx(other["loss"], rel=1e-5)
        assert ("example_hash" in row) == (objective == "hashed")
        if objective == "hashed":
            assert row["example_hash"] == pytest.approx(other["example_hash"], rel=1e-5)


@pytest.mark.parametrize("index", [0, 1], ids=["chief", "other"])
def test_a_worker_that_never_comes(data_dir, tmp_path, index):
    flags = small.arguments(data_dir, tmp_path / "m", defaults=TRAINING)
    workers = Pair(tmp_path, "run_pretraining.py", [*flags, "--worker_timeout=10"])
    workers.commands[1 - index].kill()
    done = workers.commands[index].finish(timeout=120)
    assert done.returncode == [-signal.SIGALRM, 75][index]
    assert "other workers" in done.stderr if index == 0 else "another worker" in done.stderr
    assert not list(tmp_path.glob("m/*"))


def test_a_signal_to_one_saves_and_stops_both_at_the_same_step(data_dir, tmp_path):
    changes = {"num_train_steps": 5000, "num_eval_steps": 1, "save_checkpoints_steps": 1000}
    flags = small.arguments(data_dir, tmp_path / "m", changes, defaults=TRAINING)
    workers = Pair(tmp_path, "run_pretraining.py", flags)
    workers.commands[0].wait_until(lambda: len(small.metrics(tmp_path / "m")) > 2)
    workers.commands[1].send(signal.SIGTERM)
    assert [done.returncode for done in workers.finish()] == [128 + signal.SIGTERM] * 2
    assert list((tmp_path / "m" / "checkpoints").glob("*.index"))
    assert not list(workers.temporary[1].glob("worker-*"))


def test_fine_tuning_by_two_workers_predicts_what_one_device_predicts(model_dir, tmp_path):
    """With fewer examples in the last batch than there are workers'."""
    task = kinds.declared_reviews(tmp_path, 120, 37, 11)
    changes = {"learning_rate": 1e-3, "eval_batch_size": 8}

    def flags(name):
        return arguments(model_dir, task, tmp_path / name, changes, num_trials=2)

    def logits(name, split):
        found = []
        for path in sorted((tmp_path / name).glob(f"own/*/trial_*/predictions/{split}.jsonl")):
            rows = kinds.read_predictions(str(path))
            found.append([np.diff(np.log(list(row["probabilities"].values()))) for row in rows])
        return np.array(found)

    command_support.run("run_finetuning.py", *flags("one"))
    first = Pair(tmp_path, "run_finetuning.py", flags("two")).succeed()
    assert "report: " in first.stdout
    assert set(os.listdir(tmp_path / "one")) == set(os.listdir(tmp_path / "two"))
    for split, count in (("dev", 37), ("test", 11)):
        found, expected = logits("two", split), logits("one", split)
        assert found.shape == (2, count, 1)
        np.testing.assert_allclose(found, expected, atol=1e-4)
