"""Evaluates a pre-trained model on held-out records of its own data or of other data."""

from __future__ import annotations

import os
import sys
from typing import Any

import tensorflow as tf
import tf_keras

from convbert.common import storage
from convbert.common.errors import InputError, warn
from convbert.common.settings import present, replace_checked
from convbert.data.input_pipeline import clear_read_errors
from convbert.data.manifest import build_settings, settings_digest
from convbert.data.vocabulary import Vocabulary
from convbert.pretrain.batches import Batches
from convbert.pretrain.hparams import (
    PretrainingHParams,
    RunSettings,
    report_unused,
    resolve_hparams,
)
from convbert.pretrain.load import data_vocabulary, load_hparams, load_objective
from convbert.training import checkpointing, monitoring, workers
from convbert.training.distribution import create_strategy
from convbert.training.loop import Evaluator
from convbert.training.run_record import read_record, reject_other_run

_ADVICE = "Evaluation reads them from the model directory: leave out those that differ."


def check_vocabulary(data_dir: str, model_dir: str) -> Vocabulary:
    """Returns a model's vocabulary; InputError if the data was built with another one."""
    vocabulary = Vocabulary.load(model_dir)
    if data_vocabulary(data_dir, vocabulary.do_lower_case).digest != vocabulary.digest:
        raise InputError(
            f"{data_dir}: its vocabulary should be that of {model_dir}; build the data with"
            f" --vocab {model_dir}"
        )
    return vocabulary


def is_own_data(data_dir: str, model_dir: str) -> bool:
    """Returns True if the model in `model_dir` was trained on the data in `data_dir`."""
    record = read_record(model_dir)
    trained_on, digest = record["hparams"].get("data"), settings_digest(data_dir)
    if trained_on is not None and digest is not None:
        return trained_on == digest
    folder = record["run_settings"].get("data_dir")
    return folder is not None and os.path.realpath(folder) == os.path.realpath(data_dir)


def describe_data(data_dir: str, model_dir: str) -> str:
    """Returns "the model's own data" or "other data than the model's own".

    Warns if the model may have been trained on the held-out text: with another seed or share, other
    documents of the same corpus are held out.
    """
    if is_own_data(data_dir, model_dir):
        return "the model's own data"
    record, corpus = read_record(model_dir), build_settings(data_dir).get("corpus_digest")
    trained, folder = record["hparams"].get("data"), record["run_settings"].get("data_dir")
    same = folder and trained is not None and settings_digest(folder) == trained
    if same and corpus is not None and corpus == build_settings(folder).get("corpus_digest"):
        warn(
            f"{data_dir} was built from the corpus that {model_dir} was trained on, with other"
            " settings: the model may have been trained on its held-out text"
        )
    return "other data than the model's own"


def evaluate(
    model_dir: str, data_dir: str, hparam_values: dict[str, Any], run_values: dict[str, Any]
) -> tuple[int, dict[str, Any]]:
    """Evaluates the last checkpoint of a model directory on held-out records.

    Returns its step and, on the chief, the row of metrics. Writes only `metrics.jsonl` in the model
    directory, if it can be written (and, for the model's own data, TensorBoard's events). Rows of
    other data have the split `other_heldout` and name their `data_dir`.
    """
    step = checkpointing.step_of(checkpointing.latest_checkpoint(model_dir))
    hparams, run = read_settings(model_dir, hparam_values, run_values)
    check_vocabulary(data_dir, model_dir)
    strategy = create_strategy(run.strategy, run.tpu)  # before anything uses TensorFlow
    batches = Batches(data_dir, "heldout", hparams, run, strategy)
    tf_keras.mixed_precision.set_global_policy(hparams.precision)
    with strategy.scope():
        objective = load_objective(model_dir)
    parts = {"strategy": strategy, "micro_batches": batches.micro_batches}
    evaluator = Evaluator(objective, batches, seed=hparams.seed, **parts)
    with clear_read_errors(batches.files):
        values = evaluator.evaluate(run.num_eval_steps)
    if not workers.is_chief():
        return step, {}
    own = is_own_data(data_dir, model_dir)
    row = {"split": "heldout"} if own else {"split": "other_heldout", "data_dir": data_dir}
    if storage.is_url(model_dir) or os.access(model_dir, os.W_OK):  # not on a read-only disk
        log = monitoring.MetricsLog(model_dir, tf.Variable(step, dtype=tf.int64))
        log.add(row["split"], values, None if own else storage.abspath(data_dir))
    print(
        f"evaluated {model_dir} at step {step} on {batches.examples(run.num_eval_steps):,}"
        f" held-out examples of {data_dir}, {describe_data(data_dir, model_dir)}",
        file=sys.stderr,
    )
    return step, row | values


def read_settings(
    model_dir: str, hparam_values: dict[str, Any], run_values: dict[str, Any]
) -> tuple[PretrainingHParams, RunSettings]:
    """Returns the model's hyper-parameters, and its evaluation settings updated by given ones.

    InputError if a given hyper-parameter differs from the model's.
    """
    saved, saved_run = load_hparams(model_dir)
    report_unused(hparam_values, saved.objective)
    described = saved.as_json()
    hparams = resolve_hparams(described | hparam_values, present(saved.vocab_size))
    reject_other_run(model_dir, described, hparams.as_json(), _ADVICE)
    settings = {n: saved_run[n] for n in ("num_eval_steps", "eval_batch_size") if n in saved_run}
    return hparams, replace_checked(RunSettings(), settings | run_values)
