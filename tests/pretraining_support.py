"""Helpers of run_pretraining.py's tests: small data and models, the command in this process."""

import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf
from absl import flags
from absl.testing import flagsaver

from convbert import run_pretraining
from convbert.data import build
from convbert.data.vocabulary import SPECIAL_TOKENS, Vocabulary
from convbert.training.monitoring import read_metrics
from tests.command_support import import_command

with pytest.MonkeyPatch.context() as patched:
    average = import_command(patched, "convbert.checkpoints.average")[0].average

WORDS = [f"w{i}" for i in range(60)]
WIDTHS = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
WIDTHS |= {"intermediate_size": 64}
HPARAMS = {"model_size": "convbert-tiny", "generator_hidden_size": 0.5, "train_batch_size": 4}
HPARAMS["model_hparam_overrides"] = {**WIDTHS, "embedding_size": 16, "max_position_embeddings": 64}
HPARAMS |= {"max_seq_length": 32, "num_train_steps": 12, "num_warmup_steps": 2, "num_eval_steps": 2}
HPARAMS |= {"learning_rate": 1e-3, "iterations_per_loop": 2, "save_checkpoints_steps": 5}


def build_data(folder, name="data", words=WORDS, count=80, parts=1, seed=0, vocab=None, **options):
    """A data folder, made by the real builder of `count` random documents in `parts` files."""
    draw = np.random.default_rng(seed)
    lines = ([" ".join(draw.choice(words, 12)) for _ in range(6)] for _ in range(count))
    documents = ["\n".join(of) for of in lines]
    corpus = folder / f"{name}_corpus"
    corpus.mkdir()
    for part in range(parts):
        (corpus / f"{part}.txt").write_text("\n\n".join(documents[part::parts]))
    if vocab is None:
        vocab = folder / f"{name}_vocabulary"
        Vocabulary((*SPECIAL_TOKENS, *words)).save(vocab)
    options = {"max_seq_length": 32, "heldout_fraction": 0.1, "num_shards": 2, **options}
    places = str(corpus), "text", str(folder / name), str(vocab)
    build.build(build.BuildOptions(*places, **options))
    return str(folder / name)


def arguments(data_dir, model_dir, hparams=None, *, defaults=HPARAMS, **options) -> list[str]:
    """Flags of the command; hyper-parameters are the defaults and what is changed of them."""
    hparams = json.dumps({**defaults, **(hparams or {})})
    named = {"data_dir": data_dir, "model_name": "m", "model_dir": model_dir, "hparams": hparams}
    return [f"--{name}={value}" for name, value in {**named, **options}.items()]


def run(*given, **options) -> None:
    """`main` in this process, with the flags as a command line would set them; see `arguments`."""
    with flagsaver.flagsaver():
        flags.FLAGS.unparse_flags()
        flags.FLAGS(["run_pretraining.py", *arguments(*given, **options)])
        run_pretraining.main(["run_pretraining.py"])


def metrics(model_dir) -> list[dict]:
    """The rows of metrics.jsonl without their times."""
    return [{k: v for k, v in row.items() if k != "time"} for row in read_metrics(str(model_dir))]


def checkpoint_tensors(model_dir, step) -> dict[str, np.ndarray]:
    """Returns a checkpoint's tensors, except for its count of saves."""
    path = pathlib.Path(model_dir) / "checkpoints" / f"model.ckpt-{step}"
    reader = tf.train.load_checkpoint(str(path))
    skipped = ("_CHECKPOINTABLE_OBJECT_GRAPH", "save_counter/.ATTRIBUTES/VARIABLE_VALUE")
    names = set(reader.get_variable_to_shape_map()) - set(skipped)
    return {name: reader.get_tensor(name) for name in names}


def assert_same_run(found, expected, step) -> None:
    """Weights, state of the optimizer and measurements are equal to the bit."""
    np.testing.assert_equal(checkpoint_tensors(found, step), checkpoint_tensors(expected, step))
    assert metrics(found) == metrics(expected)
