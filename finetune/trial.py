"""One run: trains a task from one seed, predicts and scores its splits, keeps weights."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
import time
from typing import Any

import tensorflow as tf
import tqdm

from convbert.common import plugins, stopping, storage
from convbert.common.backend import on_tpu
from convbert.common.errors import warn
from convbert.common.files import read_json, write_json, write_text
from convbert.common.settings import present
from convbert.finetune import evaluations
from convbert.finetune.kinds.base import Predicted
from convbert.finetune.learner import Learner, Predictor, training_batches
from convbert.finetune.plan import Context, Trial
from convbert.finetune.task_data import Split
from convbert.training import checkpointing, monitoring, run_record, workers
from convbert.training.tracing import temporary_graphs

PREDICTIONS_FOLDER = "predictions"
CHECKPOINTS_KEPT = 2  # until a run is finished; if one is damaged, the one before is used
_ADVICE = "Choose another output folder; `evaluate` scores further examples."
_TESTED = "tested"  # in `result.json`


def finished_result(trial: Trial, context: Context) -> dict[str, Any] | None:
    """Returns `result.json` of a finished run; None if the run is not finished.

    Raises InputError if the folder holds a run of other hyper-parameters, encoder or data.
    """
    path = os.path.join(trial.folder, run_record.RESULT_FILE)
    if not storage.exists(path):
        if context.plan.train:
            checkpointing.check_run(trial.folder, describe_trial(trial, context), _ADVICE)
        return None
    result = {_TESTED: {}, **read_json(path)}
    before = result["hparams"]
    now = {**before, **describe_trial(trial, context)}  # training data is not always read again
    run_record.reject_other_run(trial.folder, before, now, _ADVICE)
    return result


def lacks(result: dict[str, Any] | None, trial: Trial) -> bool:
    """Returns True if a run is not finished, or can predict test examples that it has not."""
    if result is None:
        return True
    other = {**result[_TESTED], **_tested(trial)} != result[_TESTED]
    if other and not checkpointing.has_checkpoint(trial.folder):
        warn(f"{trial.folder}: predictions are of other test examples, as its weights were removed")
        return False
    return other


def _tested(trial: Trial) -> dict[str, str]:
    """Returns test split -> SHA-256 of its examples."""
    data = trial.data
    return {name: split.digest for name, split in data.splits.items() if name in data.task.test}


def describe_trial(trial: Trial, context: Context) -> dict[str, Any]:
    """Returns everything that determines a run's scores."""
    task = trial.data.task.to_json()
    del task["folders"]  # the data may move
    described = json.loads(json.dumps(dataclasses.asdict(trial.hparams)))  # lists, not tuples
    described["task"] = task
    described |= {f"data_{split}": digest for split, digest in trial.data.digests.items()}
    described["vocabulary"] = context.vocabulary.digest
    described["encoder"] = context.config.to_json()
    if trial.hparams.init == "pretrained":
        described["checkpoint"] = context.checkpoint
    return {**described, **plugins.recorded()}


@temporary_graphs()
def run_trial(trial: Trial, context: Context, learner: Learner, train: bool) -> dict[str, Any]:
    """Trains, or resumes training, and evaluates; returns the content of `result.json`.

    Without `train`, evaluates a finished run again. Saves scores and predictions before the
    result.
    """
    hparams, data = trial.hparams, trial.data
    objective = learner.objective
    if train:
        if workers.is_chief():
            _forget_useless(trial)
        workers.barrier()
        started = time.monotonic()
        trained = _train(trial, context, learner)
        seconds = round(time.monotonic() - started, 1)  # of this process, if it was interrupted
        result = {**trained, "train_rows": len(present(data.train)), "seconds": seconds}
    else:
        result = present(finished_result(trial, context))
        checkpointing.restore(tf.train.Checkpoint(objective=objective), trial.folder)
    result |= {
        "task": data.task.name,
        "kind": data.task.plugin.name,
        "setting": trial.setting,
        "trial": trial.number,
        "seed": hparams.seed,
        "init": hparams.init,
        "main_metric": data.task.metrics[0],
        **context.about(hparams.init),
        "truncated": {name: split.encoded.truncated for name, split in data.splits.items()},
        **_measure(trial, learner.predictor),
        _TESTED: result.get(_TESTED, {}) | _tested(trial),
        "hparams": {**result.get("hparams", {}), **describe_trial(trial, context)},
    }
    folder = workers.written(trial.folder)
    keeps_best = hparams.keep == "best"
    if train and keeps_best:  # first, as training's checkpoints hold the last weights
        evaluations.keep_weights_only(folder, objective, result["best_step"])
    write_json(os.path.join(folder, run_record.RESULT_FILE), result)
    if train and not keeps_best:
        evaluations.keep_weights_only(folder, objective, result["steps"])
    if train:
        evaluations.forget_best(folder)
    return result


def _train(trial: Trial, context: Context, learner: Learner) -> dict[str, Any]:
    """Trains, or resumes training; returns values for `result.json`."""
    hparams, run, total = trial.hparams, context.plan.run, trial.num_steps
    objective = learner.objective
    optimizer, trainer = present(learner.optimizer), present(learner.trainer)
    step, kind = optimizer.iterations, trial.data.task.plugin
    manager = checkpointing.create_manager(
        tf.train.Checkpoint(objective=objective, optimizer=optimizer),
        trial.folder,
        step=step,
        max_to_keep=CHECKPOINTS_KEPT,
    )
    folder = workers.written(trial.folder)
    settings = {**dataclasses.asdict(run), **context.about(hparams.init)}
    settings["pretraining"] = context.pretraining
    # After its checkpoint has been restored.
    run_record.describe_run(folder, describe_trial(trial, context), settings)
    objective.encoder.config.save(folder)
    context.vocabulary.save(folder)
    write_json(os.path.join(folder, run_record.TASK_FILE), trial.data.task.to_json())
    evaluated = evaluations.Evaluations(objective, trial, int(step.numpy()))
    log = monitoring.MetricsLog(folder, step, begins=manager.latest_checkpoint is None)
    bar = monitoring.ProgressBar(total, step, hparams.train_batch_size, {"loss": "loss"})
    if run.xla or on_tpu(context.strategy):
        lengths = f"{len(training_batches(trial).lengths)} lengths of batch"
        text = f"compiling the training step for {lengths}, each when it first comes ..."
        tqdm.tqdm.write(text, file=sys.stderr)  # above the bar
    try:
        with (
            contextlib.closing(trainer),
            contextlib.closing(bar),
            stopping.deferred("this loop of steps", workers.agree_to_stop) as stop_if_asked,
        ):
            while True:
                now = int(step.numpy())
                if evaluated.due(now):
                    split = trial.data.splits[trial.data.task.dev[0]]
                    scores = kind.score(_answered(trial, split, learner.predictor))
                    evaluated.add(now, scores)
                    log.add(evaluations.SPLIT, scores)
                if now >= total:
                    break
                multiple = (now // run.save_checkpoints_steps + 1) * run.save_checkpoints_steps
                until = min(multiple, evaluated.next(now), total)
                values = trainer.train(min(run.iterations_per_loop, until - now))
                log.add("train", values)
                bar(values)
                if int(step.numpy()) == until:
                    checkpointing.save(manager, until)
                stop_if_asked()
    except stopping.Stopped:
        checkpointing.save(manager, int(step.numpy()))
        raise
    return {"steps": now, **evaluated.finish()}


def _forget_useless(trial: Trial) -> None:
    """Removes checkpoints that training cannot resume from; the run then begins again.

    These are the weights of a run without its result, which have no slots, and checkpoints that
    are all damaged.
    """
    folder = os.path.join(trial.folder, run_record.CHECKPOINT_FOLDER)
    found = [os.path.basename(prefix) for prefix in checkpointing.find_checkpoints(folder)]
    if any(name.startswith(evaluations.WEIGHTS_NAME) for name in found):
        storage.rmtree(folder)
        evaluations.forget_best(trial.folder)
    elif checkpointing.has_checkpoint(trial.folder):
        good, damaged = checkpointing.newest_good(folder)
        if good is None:
            warn(f"{'; '.join(damaged)}; this run begins again from its first step")
            storage.rmtree(folder)


def _measure(trial: Trial, predictor: Predictor) -> dict[str, Any]:
    """Predicts all splits, scores labelled ones, writes predictions; returns result values."""
    task, kind = trial.data.task, trial.data.task.plugin
    found: dict[str, dict[str, Any]]  # each by split
    found = {"scores": {}, "baselines": {}, "collapsed": {}}
    folder = os.path.join(workers.written(trial.folder), PREDICTIONS_FOLDER)
    storage.makedirs(folder)
    for name, split in trial.data.splits.items():
        predicted = _answered(trial, split, predictor)
        write_predictions(folder, name, predicted)
        if name not in task.dev:
            continue
        found["scores"][name] = kind.score(predicted)
        if (constant := kind.baseline(split.examples)) is not None:
            scores = kind.score(Predicted(task, split.examples, constant))
            found["baselines"][name] = scores[task.metrics[0]]
        if reason := kind.collapsed(predicted):
            found["collapsed"][name] = reason
    return found


def write_predictions(folder: str, split: str, predicted: Predicted) -> None:
    """Writes `FOLDER/SPLIT.jsonl` and the kind's further files.

    Each line has an example, {"id", "prediction", ...}, and "label" if known, in the form of
    `Kind.row` and `Kind.gold`.
    """
    task, kind = predicted.task, predicted.task.plugin
    lines = []
    for number, example in enumerate(predicted.examples):
        row = {"id": example.id, **kind.row(predicted, number)}
        if (gold := kind.gold(task, example)) is not None:
            row["label"] = gold
        lines.append(json.dumps(row, ensure_ascii=False) + "\n")
    write_text(os.path.join(folder, f"{split}.jsonl"), "".join(lines))
    kind.write_files(predicted, folder, split)


def _answered(trial: Trial, split: Split, predictor: Predictor) -> Predicted:
    """Returns the network's answers to a split's examples, with the outputs."""
    task, hparams = trial.data.task, trial.hparams
    outputs = predictor(split)
    answers = task.plugin.answers(task, split, outputs, hparams)
    return Predicted(task, split.examples, answers, outputs)
