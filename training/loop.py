"""Trainer and evaluator: steps, and loops of steps."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from convbert.common.backend import on_tpu, running_on_cpu_only
from convbert.common.errors import InputError, LossNotFinite
from convbert.common.seeds import split_seeds
from convbert.common.settings import present
from convbert.data.streams import without_autotuning
from convbert.training import metrics, workers
from convbert.training.distribution import on_this_machine, own_rows, sum_over_replicas
from convbert.training.objective import Objective
from convbert.training.optimizer import Adjustable, adjusted, apply_gradients, clip
from convbert.training.randomness import step_seed
from convbert.training.tracing import plain_function

NO_STEP = -1


class Trainer:
    """Runs training steps of an objective.

    A step depends only on the variables and (seed, step). With `xla`, the whole step is compiled on
    one device; on several, the loss and its gradients. A TPU always compiles everything.

    One step, from the outside in: `_batch_step` sums over the replicas; `_replica_step` prepares a
    replica's share and updates the weights; `_gradients` loops over micro-batches;
    `_part_gradients` sums over the terms of the loss; `_term_gradients` computes one term.

    Args:
        optimizer: a Keras optimizer, built; its `iterations` is the step.
        create_dataset: returns the dataset of training batches from a given step on. Its attribute
            `in_graph` is True if batches have one static shape and only TensorFlow operations make
            them, so that a TPU's loop of steps can read them. Other batches are passed to a TPU
            step by step.
        micro_batches: number of equal parts of each device's share of a batch, whose gradients are
            computed one after the other and summed. Masks, dropout, normalizers and clipping are
            those of the whole batch.

    Attributes:
        skipped: the numbers of steps, from 1, that `train` skips.
    """

    def __init__(
        self,
        objective: Objective,
        optimizer,
        create_dataset: Callable[[int], tf.data.Dataset],
        *,
        seed: int | Adjustable,
        strategy: tf.distribute.Strategy,
        xla: bool = False,
        micro_batches: int = 1,
    ):
        self.objective, self.optimizer, self.strategy = objective, optimizer, strategy
        self.seed, self.micro_batches = seed, micro_batches
        check_parts(objective, strategy, micro_batches, xla and not on_tpu(strategy))
        self.skipped: set[int] = set()
        self._create_dataset = create_dataset
        self._passed = on_tpu(strategy) and not getattr(create_dataset, "in_graph", False)
        self._iterator: Iterator | None = None
        self._variables = objective.trainable_variables
        self._replica_step, self._gradients = self._replica_step_fn, self._gradients_fn
        if on_tpu(strategy):
            pass  # compiles each replica's function; nothing inside may be compiled again
        elif xla and strategy.num_replicas_in_sync == 1:
            self._replica_step = plain_function(self._replica_step_fn, jit_compile=True)
        elif xla:  # sums over replicas cannot be compiled
            self._gradients = plain_function(self._gradients_fn, jit_compile=True)
        self._step = plain_function(self._step_fn)
        self._batch_step = plain_function(self._batch_step_fn)
        self._run = plain_function(self._run_fn)

    def train(self, num_steps: int) -> dict[str, float]:
        """Trains `num_steps` steps and returns mean metrics; LossNotFinite names the step.

        Of a step in `skipped`, the batch is dropped and nothing but the step's number changes.
        """
        first = int(self.optimizer.iterations.numpy())
        if self._iterator is None:  # not in __init__, as the step is restored after it
            here = on_this_machine(self.strategy) if self._passed else contextlib.nullcontext()
            with here:
                self._iterator = iter(without_autotuning(self._create_dataset(first)))
        iterator, last, found = present(self._iterator), first + num_steps, []
        skipped = sorted(step for step in self.skipped if first < step <= last)
        for step in (*skipped, None):
            end = last if step is None else step - 1
            if (count := end - int(self.optimizer.iterations.numpy())) > 0:
                found.append(self._finite_steps(iterator, count))
            if step is not None:
                next(iterator)
                self.optimizer.iterations.assign_add(1)
        sums = functools.reduce(lambda a, b: tf.nest.map_structure(tf.add, a, b), found or [{}])
        rate = self.optimizer.learning_rate  # of the last step; LAMB returns the schedule itself
        rate = rate(self.optimizer.iterations - 1) if callable(rate) else rate
        told = {"learning_rate": float(tf.convert_to_tensor(rate))}
        told |= {"skipped_steps": float(len(skipped))} if skipped else {}
        return {**metrics.summarize(sums), **told}

    def _finite_steps(self, iterator, count: int) -> dict[str, tf.Tensor]:
        """Takes `count` steps and returns the sums of their metrics; LossNotFinite as above."""
        sums, first_bad_step = self._run_steps(iterator, count)
        if (step := int(first_bad_step)) != NO_STEP:
            bad = f"the loss or its gradient is not finite (NaN or infinite) at step {step}"
            raise LossNotFinite(f"{bad}; nothing after the last checkpoint was kept", step)
        return sums

    def begin(self, create_dataset: Callable[[int], tf.data.Dataset]) -> None:
        """Switches to other batches of the same kind; keeps traced functions."""
        self.close()
        self._create_dataset = create_dataset

    def close(self) -> None:
        """Ends the stream of batches; `train` would start a new one at the current step.

        A Python generator has to end before the interpreter does, as TensorFlow calls it then.
        """
        self._iterator = None

    def _run_steps(self, iterator, num_steps):
        """Returns the metrics' sums over steps, and the first non-finite step or NO_STEP.

        On a CPU, the loop is in Python: in a graph, where each variable is an input of the loop, it
        takes two seconds to start and saves only one or two milliseconds per step.
        """
        in_python = running_on_cpu_only() and not on_tpu(self.strategy)
        if not (self._passed or in_python):
            return self._run(iterator, tf.constant(num_steps))
        totals, bad_steps = None, []
        for _ in range(num_steps):
            passed = self._passed
            sums, bad_step = self._batch_step(next(iterator)) if passed else self._step(iterator)
            totals = sums if totals is None else tf.nest.map_structure(tf.add, totals, sums)
            bad_steps.append(bad_step)
        return totals, next((step for step in bad_steps if step != NO_STEP), NO_STEP)

    def _run_fn(self, iterator, num_steps):
        # Starts at the first step, so that the graph holds, and optimizes, a single step.
        outputs = self._step.get_concrete_function(iterator).structured_outputs
        zeros = tf.nest.map_structure(lambda spec: tf.zeros(spec.shape, spec.dtype), outputs[0])

        def run_step(number, totals, first_bad_step):
            sums, bad_step = self._step(iterator)
            totals = tf.nest.map_structure(tf.add, totals, sums)
            return number + 1, totals, tf.where(first_bad_step == NO_STEP, bad_step, first_bad_step)

        start = (tf.zeros_like(num_steps), zeros, tf.constant(NO_STEP, tf.int64))
        _, totals, first_bad_step = tf.while_loop(
            lambda number, *_: number < num_steps, run_step, start, parallel_iterations=1
        )
        return totals, first_bad_step

    def _step_fn(self, iterator):
        return self._batch_step_fn(next(iterator))

    def _batch_step_fn(self, features):
        """Takes a step; returns its metrics' sums, and its number if not finite, else NO_STEP."""
        sums = self.strategy.run(self._replica_step, args=(features,))
        if self.strategy.num_replicas_in_sync > 1:
            reduce_op = tf.distribute.ReduceOp.SUM
            sums = {k: self.strategy.reduce(reduce_op, v, axis=None) for k, v in sums.items()}
        finite = tf.math.is_finite(sums["loss"][0] + sums["gradient_norm"][0])
        step = tf.cast(self.optimizer.iterations, tf.int64)
        return sums, tf.where(finite, tf.constant(NO_STEP, tf.int64), step)

    def _replica_step_fn(self, features):
        seed = step_seed(adjusted(self.seed), self.optimizer.iterations)
        data_seed, dropout_seed = split_seeds(seed, 2)
        batch = self.objective.prepare(own_rows(features), data_seed)
        normalizers = sum_over_replicas(self.objective.normalizers(batch))
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        loss, sums, gradients = self._gradients(batch, normalizers, dropout_seed, replica)
        clipped = not getattr(self.optimizer, "clips_updates", False)
        gradients, norm = clip(sum_over_replicas(gradients), clipped)
        self._add_leaders(-1.0)  # leaves the followers' own parts, with their weight decay
        apply_gradients(self.optimizer, gradients, self._variables)
        self._add_leaders(1.0)
        share = 1.0 / self.strategy.num_replicas_in_sync
        return {
            "loss": tf.stack([loss, share]),  # replicas' losses add up to the batch's
            "gradient_norm": tf.stack([norm * share, share]),
            **sums,
        }

    def _add_leaders(self, sign: float) -> None:
        """Adds their leaders, times `sign`, to the objective's followers."""

        def add(strategy, values):
            for (variable, _), value in zip(self.objective.followers, values, strict=True):
                strategy.extended.update(variable, lambda v, by: v.assign_add(by), args=(value,))

        if self.objective.followers:
            values = [sign * tf.convert_to_tensor(leader) for _, leader in self.objective.followers]
            merge_call = tf.__internal__.distribute.interim.maybe_merge_call
            merge_call(add, tf.distribute.get_strategy(), values)

    def _gradients_fn(self, batch, normalizers, seed, replica):
        """Returns loss, metrics' sums and gradients of this replica's share of the batch."""
        count = self.micro_batches
        if self.strategy.num_replicas_in_sync * count == 1:
            return self._part_gradients_fn(batch, normalizers, seed)

        def gradients(part, number):
            place = tf.cast(replica * count + number, tf.int32)  # in the whole batch
            return self._part_gradients_fn(part, normalizers, tf.concat([seed, [place]], 0))

        return sum_over_parts(gradients, batch, count)

    def _part_gradients_fn(self, batch, normalizers, seed):
        """Sums over the terms of the loss, computing their gradients one after the other."""
        terms = self.objective.losses(batch, normalizers, training=True, seed=seed)
        with self.objective.tracing():
            loss, sums, gradients = self._term_gradients(terms)
            while True:
                with tf.control_dependencies([tf.group(*gradients)]):
                    term = self._term_gradients(terms)
                if term is None:
                    return loss, sums, gradients
                more, more_sums, more_gradients = term
                loss, sums = loss + more, {**sums, **more_sums}
                gradients = [a + b for a, b in zip(gradients, more_gradients)]

    def _term_gradients(self, terms):
        """Returns the next term of the loss, its metrics and gradients; None after the last."""
        with tf.GradientTape() as tape:
            term = next(terms, None)
        if term is None:
            return None
        gradients = tape.gradient(term[0], self._variables)
        unused = [v.name for v, gradient in zip(self._variables, gradients) if gradient is None]
        if unused:
            expected = "every trainable variable should get a gradient from the loss"
            raise InputError(f"{expected}. Received: none for {', '.join(unused)}")
        return *term, [tf.convert_to_tensor(gradient) for gradient in gradients]


class Evaluator:
    """Evaluates an objective on held-out batches, always with the same masks.

    `micro_batches` is as for `Trainer`.
    """

    def __init__(
        self,
        objective: Objective,
        create_dataset: Callable[[], tf.data.Dataset],
        *,
        seed: int,
        strategy: tf.distribute.Strategy,
        micro_batches: int = 1,
    ):
        self.objective, self.strategy, self.seed = objective, strategy, seed
        self._create_dataset, self._micro_batches = create_dataset, micro_batches
        check_parts(objective, strategy, micro_batches)
        self._run = plain_function(self._run_fn)

    def evaluate(self, num_steps: int) -> dict[str, float]:
        """Returns mean metrics over the first `num_steps` batches; -1: all."""
        totals: dict[str, Any] = {}
        for number, features in enumerate(without_autotuning(self._create_dataset())):
            if number == num_steps:
                break
            sums = self._run(features, tf.constant(number, tf.int64))
            for name, value in sums.items():  # in float64, which sums any number of tokens
                parts = self.strategy.experimental_local_results(value)
                totals[name] = totals.get(name, 0.0) + sum(np.float64(part) for part in parts)
        gathered = workers.gather(totals)
        return metrics.summarize({name: sum(g[name] for g in gathered) for name in totals})

    def _run_fn(self, features, number):  # no lambda: a TPU needs a name
        return self.strategy.run(self._replica_step, args=(features, number))

    def _replica_step(self, features, number):
        rows = own_rows(features)
        batch = self.objective.prepare(rows, evaluation_seed(self.seed, number))
        normalizers = sum_over_replicas(self.objective.normalizers(batch))
        # A batch counts by its examples, as the last one is filled up with padding.
        filled = tf.reduce_sum(tf.cast(tf.reduce_any(rows["input_mask"] > 0, axis=1), tf.float32))
        filled = sum_over_replicas({"examples": filled})["examples"]
        loss, sums = sum_over_parts(
            lambda part, _: self.objective.loss(part, normalizers, training=False),
            batch,
            self._micro_batches,
        )
        share = filled / self.strategy.num_replicas_in_sync
        return {**sums, "loss": tf.stack([loss * filled, share])}


def check_parts(
    objective: Any, strategy: tf.distribute.Strategy, micro_batches: int, xla: bool = False
) -> None:
    """Raises InputError if the loss of an objective or a head reads a whole batch that is split."""
    replicas, gathers = strategy.num_replicas_in_sync, getattr(objective, "gathers_batch", False)
    if not getattr(objective, "reads_whole_batch", False):
        return
    if micro_batches > 1:
        raise InputError("`micro_batch_size` should be left out, as the loss reads a whole batch")
    if replicas > 1 and (xla or not gathers):
        name, value = ("xla", "false") if gathers else ("strategy", "one_device")
        expected = f"`{name}` should be {value}, as the loss reads a whole batch"
        raise InputError(f"{expected}. Received: {replicas} devices")


def sum_over_parts(function: Callable, batch: dict[str, tf.Tensor], count: int):
    """Sums the results of `function` for `count` parts of a batch [B, ...], one after the other.

    It takes a part, tensors [B / count, ...], and the part's number.
    """
    if count == 1:
        return function(batch, 0)
    parts = {name: tf.stack(tf.split(value, count)) for name, value in batch.items()}
    graph = plain_function(function)

    def part(number):
        return {name: value[number] for name, value in parts.items()}, tf.convert_to_tensor(number)

    def add_part(number, totals):
        return number + 1, tf.nest.map_structure(tf.add, totals, graph(*part(number)))

    # Starts at the first part, so that the graph holds the network once.
    outputs = graph.get_concrete_function(*part(0)).structured_outputs
    zeros = tf.nest.map_structure(lambda spec: tf.zeros(spec.shape, spec.dtype), outputs)
    _, totals = tf.while_loop(
        lambda number, _: number < count, add_part, (0, zeros), parallel_iterations=1
    )
    return totals


def evaluation_seed(seed: int, number: tf.Tensor) -> tf.Tensor:
    """Returns the seed of evaluation batch `number`, constant over training, unlike its seeds."""
    return step_seed(seed ^ 0x5EED, number)
