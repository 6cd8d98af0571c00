"""A network with its optimizer and its traced functions, which runs that differ in numbers share.

Tracing the training step and the predictions of a small model takes seconds, and a sweep has a
hundred runs. What differs between its runs, as a rule, are initial weights, the seed, the data's
order and the optimizer's numbers; all of these are read from variables here.
"""

from __future__ import annotations

import dataclasses
import gc
from typing import TYPE_CHECKING, Any

import tensorflow as tf
import tf_keras

from backend import on_tpu
from finetune.batches import TrainingBatches
from finetune.objective import FineTuning, learning_rate_scales
from finetune.predictor import Predictor
from model import Backbone
from model.backbone import rematerialize
from model.heads.task import exclude_outputs
from training.distribution import micro_batches
from training.loop import Trainer
from training.optimizer import Adjustable, WarmupTimesDecay, create_optimizer
from training.randomness import seed_initializers

if TYPE_CHECKING:
    from finetune.trial import Context, Trial

# Hyper-parameters that a traced step reads from variables, or that no step reads.
_NUMBERS = (
    *("seed", "init", "learning_rate", "lr_decay_power", "warmup_proportion"),
    *("num_train_epochs", "max_steps", "weight_decay_rate"),
    *("layerwise_lr_decay", "corrected_layerwise_lr_decay"),
    *("eval_steps", "keep", "early_stopping_patience"),
)


_OWN_KINDS, _OWN_BACKBONES = "finetune.kinds.", "model."
_SCHEDULE = ("learning_rate", "total_steps", "warmup_steps", "lr_decay_power")


class Learner:
    """What a run trains and asks; `begin` prepares it for another run.

    Attributes:
        objective: encoder and head.
        predictor: asks them about splits.
        optimizer: its `iterations` is the step; None where nothing is trained.
        trainer: takes the steps; None likewise.
    """

    def __init__(self, trial: Trial, context: Context):
        hparams, run, strategy = trial.hparams, context.run, context.strategy
        tf_keras.backend.clear_session()
        self.objective = _new_objective(trial, context)
        self.predictor = Predictor(
            self.objective,
            trial.data.task,
            batch_size=run.eval_batch_size,
            hparams=hparams,
            strategy=strategy,
        )
        self.optimizer = self.trainer = None
        if trial.data.train is None:
            return
        if run.rematerialize:
            rematerialize(self.objective)
        adjustable = Adjustable if _may_be_shared(trial, context) else lambda value: value
        with strategy.scope():
            numbers = _numbers(trial, self.objective)
            numbers = {name: adjustable(value) for name, value in numbers.items()}
            self._numbers = numbers
            self.optimizer = create_optimizer(
                hparams.optimizer,
                WarmupTimesDecay(
                    *(numbers[name] for name in _SCHEDULE), schedule=hparams.lr_schedule
                ),
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
        """Makes everything as `__init__` would for this run, and keeps what is traced.

        Of the generators of random numbers that of Keras' initializers alone is seeded.
        """
        encoder = self.objective.encoder
        if trial.hparams.init == "random":
            _assign(encoder, _new_encoder(trial, context))
        else:
            context.load_weights(encoder)
        initial = _with_new_head(encoder, trial, context)
        _assign(self.objective.head, initial.head)
        for variable in self.optimizer.variables:
            variable.assign(tf.zeros_like(variable))
        for name, value in _numbers(trial, self.objective).items():
            self._numbers[name].assign(value)
        self.trainer.seed.assign(trial.hparams.seed)
        self.trainer.begin(training_batches(trial))


class Learners:
    """The learner of the last run, for the next one if it may be shared."""

    def __init__(self):
        self._last: Learner | None = None
        self._data, self._traced = None, {}
        self._made = False  # whether there is a learner to be freed, also one that is not shared

    def of(self, trial: Trial, context: Context) -> Learner:
        """A learner at the first step of a run, whose values are those of a new one."""
        shared = _may_be_shared(trial, context)
        traced = _what_is_traced(trial) if shared else {}
        if shared and self._last and trial.data is self._data and traced == self._traced:
            self._last.begin(trial, context)
            return self._last
        self.forget()  # two at a time would be twice the memory
        learner, self._made = Learner(trial, context), True
        # A plug-in's backbone may draw its weights from other generators than Keras'.
        if shared and type(learner.objective.encoder).__module__.startswith(_OWN_BACKBONES):
            self._last, self._data, self._traced = learner, trial.data, traced
        return learner

    def forget(self) -> None:
        """Frees the learner, and one that was not shared; their functions refer to themselves."""
        self._last, self._data, self._traced = None, None, {}
        if self._made:
            self._made = False
            gc.collect()


def in_order_of_sharing(trials: list[Trial]) -> list[Trial]:
    """Runs whose steps have one graph one after the other, otherwise as they come."""
    groups: dict[Any, list[Trial]] = {}
    for trial in trials:
        traced = {} if trial.data.train is None else _what_is_traced(trial)
        groups.setdefault((id(trial.data), repr(traced)), []).append(trial)
    return [trial for group in groups.values() for trial in group]


def training_batches(trial: Trial) -> TrainingBatches:
    """The batches of a run's training split, in the order of its seed."""
    hparams, task = trial.hparams, trial.data.task
    return TrainingBatches(
        trial.data.train,
        hparams.train_batch_size,
        hparams.seed,
        length_buckets=hparams.length_buckets,
        max_seq_length=hparams.max_seq_length,
        group_size=task.plugin.group_size(task),
        whole_examples=task.plugin.whole_examples(hparams),
    )


def _new_objective(trial: Trial, context: Context) -> FineTuning:
    # All of it, though own networks draw from Keras' initializers alone, for those of plug-ins.
    tf_keras.utils.set_random_seed(trial.hparams.seed)
    encoder = _new_encoder(trial, context)
    if trial.hparams.init == "pretrained":
        context.load_weights(encoder)
    return _with_new_head(encoder, trial, context)


def _new_encoder(trial: Trial, context: Context) -> Backbone:
    """Of random weights, with the names that it has in a new process."""
    tf_keras.backend.reset_uids()
    seed_initializers(trial.hparams.seed)
    with context.strategy.scope():
        return context.random_encoder(trial.hparams)


def _with_new_head(encoder: Backbone, trial: Trial, context: Context) -> FineTuning:
    """The head's weights do not depend on what the encoder drew."""
    hparams, task = trial.hparams, trial.data.task
    seed_initializers(f"head {hparams.seed}")  # or it would repeat what the encoder drew
    with context.strategy.scope():
        head = task.plugin.head(task, encoder.config, hparams)
        objective = FineTuning(encoder, head, hparams.loss_reduction)
        if task.untrained:
            exclude_outputs(head, [task.labels.index(name) for name in task.untrained])
        return objective


def _assign(network: tf.Module, initial: tf.Module) -> None:
    for variable, value in zip(network.variables, initial.variables, strict=True):
        variable.assign(value)


def _may_be_shared(trial: Trial, context: Context) -> bool:
    """Not where replicas or a TPU read numbers, nor with LAMB, which keeps them its own way.

    Nor of a plug-in's kind, whose head may hold what it read of the hyper-parameters.
    """
    one = context.strategy.num_replicas_in_sync == 1 and not on_tpu(context.strategy)
    trains = trial.data.train is not None and trial.hparams.optimizer == "adam"
    return one and trains and type(trial.data.task.plugin).__module__.startswith(_OWN_KINDS)


def _what_is_traced(trial: Trial) -> dict[str, Any]:
    """The hyper-parameters that are in the graph of a step."""
    values = dataclasses.asdict(trial.hparams)
    traced = {name: value for name, value in values.items() if name not in _NUMBERS}
    return traced | {
        name: bool(values[name]) for name in ("weight_decay_rate", "layerwise_lr_decay")
    }


def _numbers(trial: Trial, objective: FineTuning) -> dict[str, Any]:
    """What the optimizer reads, {name: number or list of numbers}; what is off is left out."""
    hparams, total = trial.hparams, trial.num_steps
    scales = learning_rate_scales(
        objective, hparams.layerwise_lr_decay, hparams.corrected_layerwise_lr_decay
    )
    numbers = {
        "learning_rate": hparams.learning_rate,
        "total_steps": total,
        "warmup_steps": int(total * hparams.warmup_proportion),
        "lr_decay_power": hparams.lr_decay_power,
        "weight_decay_rate": hparams.weight_decay_rate or None,
        "scales": scales,
    }
    return {name: value for name, value in numbers.items() if value is not None}
