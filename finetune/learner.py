"""A network with its optimizer and traced functions, shared by runs that differ in numbers only.

Tracing a small model's training step and predictions takes seconds, and a sweep has a hundred runs.
Most differ only in the head's initial weights, the seed, the order of the data and the optimizer's
numbers, which are all read from variables here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

from convbert.common.backend import on_tpu
from convbert.common.settings import present
from convbert.finetune import kinds
from convbert.finetune.batches import EvaluationBatches, TrainingBatches
from convbert.finetune.declaration import Task
from convbert.finetune.hparams import DROPOUT, FinetuningHParams
from convbert.finetune.objective import FineTuning, learning_rate_scales
from convbert.finetune.plan import Context, Trial
from convbert.finetune.task_data import Split
from convbert.model import Backbone, build_backbone
from convbert.model.backbone import rematerialize
from convbert.pretrain.load import restore_encoder
from convbert.training import workers
from convbert.training.distribution import micro_batches, on_this_machine, own_rows
from convbert.training.loop import Trainer
from convbert.training.optimizer import Adjustable, WarmupTimesDecay, create_optimizer
from convbert.training.randomness import seed_initializers
from convbert.training.tracing import plain_function

# Hyper-parameters that a traced step reads from variables or does not read.
NUMBERS = (
    *("seed", "learning_rate", "lr_decay_power", "warmup_proportion"),
    *("num_train_epochs", "max_steps", "weight_decay_rate"),
    *("layerwise_lr_decay", "corrected_layerwise_lr_decay"),
    *("eval_steps", "keep"),
)
_SCHEDULE = ("learning_rate", "total_steps", "warmup_steps", "lr_decay_power")


class Learner:
    """The model, optimizer and trainer of a run; `begin` reuses them if a run `may_follow`."""

    def __init__(self, trial: Trial, context: Context):
        hparams, run, strategy = trial.hparams, context.plan.run, context.strategy
        self.trial = trial  # the first trial
        tf_keras.backend.clear_session()
        seed_initializers(hparams.seed)  # not the seeds of the caller's own code
        self.objective = _with_new_head(_new_encoder(trial, context), trial, context)
        task = trial.data.task
        each = strategy.num_replicas_in_sync * task.plugin.group_size(task)
        size = -(-run.eval_batch_size // each) * each  # whole examples on every device
        self.predictor = Predictor(self.objective, task, size, hparams, strategy)
        self.optimizer = self.trainer = None  # if nothing is trained
        if trial.data.train is None:
            return
        if run.rematerialize:
            rematerialize(self.objective)
        adjustable = Adjustable if may_follow(trial, trial, strategy) else lambda value: value
        with strategy.scope():
            numbers = _numbers(trial, self.objective)
            self._numbers = numbers = {n: adjustable(value) for n, value in numbers.items()}
            rate, total, warmup, power = (numbers[name] for name in _SCHEDULE)
            self.optimizer = create_optimizer(
                hparams.optimizer,
                WarmupTimesDecay(rate, total, warmup, power, schedule=hparams.lr_schedule),
                numbers.get("weight_decay_rate", 0.0),
                self.objective.trainable_variables,
                numbers.get("scales"),
            )
        devices = strategy.num_replicas_in_sync
        self.trainer = Trainer(
            self.objective,
            self.optimizer,
            training_batches(trial),
            seed=adjustable(hparams.seed),
            strategy=strategy,
            xla=run.xla,
            micro_batches=micro_batches(hparams.train_batch_size, devices, run.micro_batch_size),
        )

    def begin(self, trial: Trial, context: Context) -> None:
        """Resets everything for this run, as `__init__` would, but keeps traced functions."""
        encoder, head = self.objective.encoder, self.objective.head
        restore_encoder(encoder, context.plan.model_dir, context.plan.checkpoint_step)
        initial = _with_new_head(encoder, trial, context).head
        for variable, value in zip(head.variables, initial.variables, strict=True):
            variable.assign(value)
        for variable in present(self.optimizer).variables:
            variable.assign(tf.zeros_like(variable))
        for name, value in _numbers(trial, self.objective).items():
            self._numbers[name].assign(value)
        trainer = present(self.trainer)
        assert isinstance(trainer.seed, Adjustable)
        trainer.seed.assign(trial.hparams.seed)
        trainer.begin(training_batches(trial))


def may_follow(last: Trial, trial: Trial, strategy: tf.distribute.Strategy) -> bool:
    """Returns True if `trial` can reuse the learner of `last` with its traced step.

    Returns False for several replicas, a TPU or LAMB, whose steps have numbers as constants, for
    random encoders, which draw their weights when they are built, and for kinds of plug-ins.
    """
    hparams, data = trial.hparams, trial.data
    if strategy.num_replicas_in_sync > 1 or on_tpu(strategy) or data.train is None:
        return False
    if hparams.optimizer != "adam" or hparams.init != "pretrained" or last.data is not data:
        return False
    # The heads of plug-ins may read `NUMBERS`.
    ours = type(data.task.plugin).__module__.startswith(kinds.__name__)
    return ours and _what_is_traced(last.hparams) == _what_is_traced(hparams)


def training_batches(trial: Trial) -> TrainingBatches:
    """Returns the batches of a run's training split, in the order of its seed."""
    hparams, task = trial.hparams, trial.data.task
    return TrainingBatches(
        present(trial.data.train),
        hparams.train_batch_size,
        hparams.seed,
        length_buckets=hparams.length_buckets,
        max_seq_length=hparams.max_seq_length,
        group_size=task.plugin.group_size(task),
        whole_examples=task.plugin.whole_examples(hparams),
    )


def _new_encoder(trial: Trial, context: Context) -> Backbone:
    """Builds an encoder with a run's dropout and, if requested, the pre-trained weights."""
    hparams = trial.hparams
    config = context.config.replace(**{name: getattr(hparams, name) for name in DROPOUT})
    with context.strategy.scope():
        encoder = build_backbone(config)
    if hparams.init == "pretrained":
        restore_encoder(encoder, context.plan.model_dir, context.plan.checkpoint_step)
    return encoder


def _with_new_head(encoder: Backbone, trial: Trial, context: Context) -> FineTuning:
    """Adds a head whose weights do not depend on the encoder's random weights."""
    hparams, task = trial.hparams, trial.data.task
    seed_initializers(f"head {hparams.seed}")  # or it would repeat the encoder's numbers
    with context.strategy.scope():
        head = task.plugin.head(task, encoder.config, hparams)
        return FineTuning(encoder, head, hparams.loss_reduction)


def _what_is_traced(hparams: FinetuningHParams) -> dict[str, Any]:
    """Returns the hyper-parameters that are constants in the graph of a step."""
    values = dataclasses.asdict(hparams)
    traced = {name: value for name, value in values.items() if name not in NUMBERS}
    return traced | {n: bool(values[n]) for n in ("weight_decay_rate", "layerwise_lr_decay")}


def _numbers(trial: Trial, objective: FineTuning) -> dict[str, Any]:
    """Returns the active numbers of schedule and optimizer by name."""
    hparams, total = trial.hparams, trial.num_steps
    decay, corrected = hparams.layerwise_lr_decay, hparams.corrected_layerwise_lr_decay
    numbers = {
        "learning_rate": hparams.learning_rate,
        "total_steps": total,
        "warmup_steps": int(total * hparams.warmup_proportion),
        "lr_decay_power": hparams.lr_decay_power,
        "weight_decay_rate": hparams.weight_decay_rate or None,
        "scales": learning_rate_scales(objective, decay, corrected),
    }
    return {name: value for name, value in numbers.items() if value is not None}


@dataclasses.dataclass(frozen=True, eq=False)
class Predictor:
    """Computes predictions for splits of a task; traced once for splits with the same columns.

    `hparams` determine the lengths of batches.
    """

    objective: FineTuning
    task: Task
    batch_size: int  # over all devices
    hparams: FinetuningHParams
    strategy: tf.distribute.Strategy
    traced: dict[str, Callable] = dataclasses.field(default_factory=dict)  # by columns of batches

    def __call__(self, split: Split) -> dict[str, np.ndarray]:
        """Returns arrays with one item per sequence, or flat along the split's tokens.

        Includes the head's `constants()`, if any.
        """
        kind, strategy = self.task.plugin, self.strategy
        batches = EvaluationBatches(
            split.encoded,
            self.batch_size,
            length_buckets=self.hparams.length_buckets,
            max_seq_length=self.hparams.max_seq_length,
            group_size=kind.group_size(self.task),
        )
        with on_this_machine(strategy):
            dataset = batches()
            iterator = iter(dataset)
        held = str(dataset.element_spec)
        run = self.traced.setdefault(held, self._function(dataset.element_spec))
        emitted: dict[str, list[np.ndarray]] = {}
        for features in iterator:
            for name, value in run(features).items():
                for part in strategy.experimental_local_results(value):
                    emitted.setdefault(name, []).extend(part.numpy())
        outputs = _collect(emitted, batches.own, split.encoded.lengths, kind.token_outputs)
        return outputs | getattr(self.objective.head, "constants", dict)()

    def _function(self, spec) -> Callable:
        """Returns the prediction function for a batch."""

        def predict_batch(features):
            return self.strategy.run(lambda own: self.objective.predict(own_rows(own)), (features,))

        # One trace for all lengths, except on a TPU, where shapes are static.
        options = {} if on_tpu(self.strategy) else {"input_signature": [spec]}
        return plain_function(predict_batch, **options)


def _collect(
    emitted: dict[str, list[np.ndarray]], own: np.ndarray, lengths: np.ndarray, token_outputs
) -> dict[str, np.ndarray]:
    """Sorts the outputs of all workers' batches into the order of the sequences.

    `emitted` maps names to an array for each sequence of this worker, whose indices are `own`;
    arrays of `token_outputs` have an item per token, including padding.
    """
    packed = {name: np.stack(v) for name, v in emitted.items() if name not in token_outputs}
    for name in emitted.keys() - packed:
        cut = [value[:length] for value, length in zip(emitted[name], lengths[own])]
        packed[name] = np.concatenate(cut)
    gathered = workers.gather({**packed, "": own})
    all_own = np.concatenate([arrays.pop("") for arrays in gathered])
    place = np.unique(all_own, return_index=True)[1]  # of each sequence, without copies
    collected = {}
    for name in emitted:
        values = np.concatenate([arrays[name] for arrays in gathered])
        if name in token_outputs:
            parts = np.split(values, np.cumsum(lengths[all_own])[:-1])
            collected[name] = np.concatenate([parts[i] for i in place])
        else:
            collected[name] = values[place]
    return collected
