"""The same steps by every strategy, with less memory and by XLA: losses and weights beside another.

    python -m benchmarks.strategies
    python -m benchmarks.strategies --strategies one_device,mirrored:2 --xla no --steps 10

Each strategy is a process of its own (multi_worker: two, on this machine), which trains the same
model from the same seed once for each number of micro-batches, with and without XLA and
rematerialization. Differences are from one device that does nothing of the kind: of the losses of
all steps the largest relative one, of the weights the largest.
"""

from __future__ import annotations

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import itertools
import subprocess
import sys
import tempfile

import numpy as np
import tensorflow as tf
import tf_keras
from absl import app, flags

from benchmarks.table import Report
from benchmarks.texts import made_up_words
from data import build
from data.vocabulary import SPECIAL_TOKENS, Vocabulary
from errors import InputError, main_with_clear_errors
from model.backbone import rematerialize
from pretrain.batches import Batches
from pretrain.build import build_objective, build_optimizer
from pretrain.hparams import PretrainingHParams, encoder_config, resolve_hparams
from pretrain.saved_settings import special_ids
from training import workers
from training.cluster import read_cluster
from training.distribution import create_strategy
from training.loop import Trainer

STRATEGIES = ("one_device", "mirrored:2", "multi_worker")
PLAIN = (1, False, False)  # the run that others are compared with
SWITCHES = {"no": False, "yes": True}
COLUMNS = ("micro-batches", "XLA", "rematerialized")
BATCH, LENGTH, WORDS = 16, 32, 500

FLAGS = flags.FLAGS
_STRATEGIES = flags.DEFINE_list("strategies", list(STRATEGIES), "Strategies compared.")
_STEPS = flags.DEFINE_integer("steps", 50, "Steps of training.")
_XLA = flags.DEFINE_multi_enum("xla", list(SWITCHES), list(SWITCHES), "XLA, one each time.")
_PARTS = flags.DEFINE_multi_integer(
    "micro_batches", [1, 2, 8], "Micro-batches of a device's share, one number each time."
)
_LAYERS = flags.DEFINE_integer("layers", 2, "Layers of ConvBERT-tiny.")
_FOLDER = flags.DEFINE_string("folder", "", "For a process of one strategy: data and results.")


def variants(strategy: str) -> list[tuple[int, bool, bool]]:
    """Micro-batches, XLA and rematerialization of each run of a strategy."""
    xla = [SWITCHES[name] for name in _XLA.value]
    found = list(itertools.product(_PARTS.value, xla, (False, True)))
    first = [PLAIN] if strategy == STRATEGIES[0] and PLAIN not in found else []
    return first + found


def main(argv: list[str]) -> None:
    """Prints the table, or makes one strategy's part of it."""
    if len(argv) > 1:
        raise InputError(f"Unknown argument {argv[1]!r}; see --help")
    if _FOLDER.value:
        train_all(_STRATEGIES.value[0], _FOLDER.value)
        return
    if _STRATEGIES.value[:1] != [STRATEGIES[0]]:
        raise InputError(f"--strategies should begin with {STRATEGIES[0]}, the one compared with")
    report = Report(
        {
            "strategy": "",
            **dict.fromkeys(COLUMNS, ""),
            "first loss": ".6f",
            "last loss": ".6f",
            "losses differ by": ".1e",
            "weights differ by": ".1e",
        }
    )
    with tempfile.TemporaryDirectory() as folder:
        make_data(folder)
        expected = None
        for strategy in _STRATEGIES.value:
            start(strategy, folder)
            for number, (parts, *switches) in enumerate(variants(strategy)):
                losses, weights = read(folder, strategy, number)
                expected = expected or (losses, weights)
                report.row(
                    strategy,
                    str(parts),
                    *("yes" if switch else "no" for switch in switches),
                    losses[0],
                    losses[-1],
                    np.max(np.abs(losses / expected[0] - 1)),
                    max(np.max(np.abs(a - b)) for a, b in zip(weights, expected[1], strict=True)),
                )
    report.end(
        f"{_STEPS.value} steps of ConvBERT-tiny with --layers {_LAYERS.value}, float32,"
        f" batch {BATCH} x {LENGTH}, dropout on."
    )


def start(strategy: str, folder: str) -> None:
    """Runs the processes of a strategy to their end."""
    command = [sys.executable, "-m", "benchmarks.strategies", f"--strategies={strategy}"]
    command += [f"--xla={name}" for name in _XLA.value]
    command += [f"--micro_batches={number}" for number in _PARTS.value]
    command += [f"--folder={folder}", f"--steps={_STEPS.value}", f"--layers={_LAYERS.value}"]
    if strategy == "multi_worker":
        launch = [sys.executable, "-m", "training.launch", "--hosts=localhost:2", "--"]
        command = [*launch, *command]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise InputError(f"{strategy}: {(done.stdout + done.stderr)[-2000:]}")


def make_data(folder: str) -> None:
    """Records of made-up texts, by the real builder."""
    draw, words = np.random.default_rng(0), made_up_words(WORDS)
    Vocabulary((*SPECIAL_TOKENS, *words)).save(os.path.join(folder, "vocabulary"))
    corpus = os.path.join(folder, "corpus.txt")
    with open(corpus, "w", encoding="utf-8") as file:
        for _ in range(300):
            file.write("\n".join(" ".join(draw.choice(words, 12)) for _ in range(6)) + "\n\n")
    options = {"corpus": corpus, "corpus_format": "text", "max_seq_length": LENGTH, "num_shards": 4}
    options |= {"output_dir": os.path.join(folder, "data"), "heldout_fraction": 0.1}
    with open(os.devnull, "w") as nowhere:
        stdout, sys.stdout = sys.stdout, nowhere
        try:
            build.build(build.BuildOptions(vocab=os.path.join(folder, "vocabulary"), **options))
        finally:
            sys.stdout = stdout


def hyper_parameters(vocab_size: int) -> PretrainingHParams:
    """Those of all runs."""
    values = {"model_size": "convbert-tiny", "train_batch_size": BATCH, "max_seq_length": LENGTH}
    values |= {"model_hparam_overrides": {"num_hidden_layers": _LAYERS.value}}
    values |= {"num_train_steps": _STEPS.value, "num_warmup_steps": 10, "learning_rate": 3e-4}
    return resolve_hparams(values, vocab_size)


def train_all(strategy: str, folder: str) -> None:
    """Trains every variant by one strategy, in a process of its own."""
    if strategy == "multi_worker":
        with workers.joined(read_cluster(os.environ), {}):
            train_variants(strategy, folder)
    else:
        train_variants(strategy, folder)


def train_variants(name: str, folder: str) -> None:
    """Trains; the chief keeps losses and weights, see `read`."""
    strategy, data = create_strategy(name), os.path.join(folder, "data")
    vocabulary = Vocabulary.load(data)
    hparams = hyper_parameters(vocabulary.size)
    config, ids = encoder_config(hparams, vocabulary.size), special_ids(vocabulary)
    share = BATCH // strategy.num_replicas_in_sync
    for number, (parts, xla, rematerialized) in enumerate(variants(name)):
        tf_keras.backend.clear_session()
        tf_keras.utils.set_random_seed(0)
        with strategy.scope():
            objective = build_objective(hparams, config, ids)
            optimizer = build_optimizer(hparams, objective)
        if rematerialized:
            rematerialize(objective)
        batches = Batches(data, "train", hparams, BATCH, strategy, share // parts)
        settings = {"seed": 0, "strategy": strategy, "xla": xla, "micro_batches": parts}
        trainer = Trainer(objective, optimizer, batches, **settings)
        losses = [trainer.train(tf.constant(1))["loss"] for _ in range(_STEPS.value)]
        trainer.close()
        if workers.current().is_chief:
            weights = [variable.numpy() for variable in objective.trainable_variables]
            np.savez(_file(folder, name, number), np.float64(losses), *weights)


def read(folder: str, strategy: str, number: int) -> tuple[np.ndarray, list[np.ndarray]]:
    """The losses of all steps, and the weights, of a run."""
    with np.load(_file(folder, strategy, number), allow_pickle=False) as arrays:
        losses, *weights = (arrays[f"arr_{i}"] for i in range(len(arrays)))
    return losses, weights


def _file(folder: str, strategy: str, number: int) -> str:
    return os.path.join(folder, f"{strategy.replace(':', '_')}-{number}.npz")


if __name__ == "__main__":
    app.run(main_with_clear_errors(main))
