"""The optimizer of BERT and ELECTRA, its learning-rate schedule, and clipping."""

from __future__ import annotations

import collections
import dataclasses
import re
from collections.abc import Iterable, Sequence

import tensorflow as tf
import tf_keras

from convbert.common.backend import built_for_tpu, running_on_cpu_only

CLIP_NORM = 1.0
BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-6


class Adjustable:
    """One number or several that a traced step reads from a variable, so that they can change.

    It is not trackable: like a constant, it is not in checkpoints.
    """

    def __init__(self, value: int | float | Sequence[float]):
        # GPUs have no int32 variables: it would be on the CPU, where XLA cannot read it.
        dtype = tf.int64 if isinstance(value, int) else tf.float32
        self._variable = tf.Variable(value, trainable=False, dtype=dtype)
        self.assign = self._variable.assign

    def __call__(self) -> tf.Tensor:
        return tf.convert_to_tensor(self._variable)


def adjusted(number):
    """Returns the current value of an `Adjustable`, and other numbers unchanged."""
    return number() if isinstance(number, Adjustable) else number


@dataclasses.dataclass(eq=False)
class WarmupTimesDecay(tf_keras.optimizers.schedules.LearningRateSchedule):
    """Polynomial decay to 0 over all steps, times min(1, step / warm-up steps).

    Warm-up multiplies the decayed rate, as in BERT's and ELECTRA's `model/optimization.py`, so
    `peak` is never reached: the highest rate, at the last warm-up step, is peak * (1 - warm-up
    steps / total steps)^power. Steps count from 1: the first one, step 0 in Keras, already has a
    positive rate.

    Numbers may be `Adjustable`.

    Args:
        total_steps: the step at which the rate is 0.
        from_step: the number of steps before warm-up and decay begin.
        schedule: "warmup_times_decay", or "warmup_then_decay": the rate rises to the full peak
            during warm-up and then decays over the remaining steps; or "trapezoidal": it rises,
            stays, and in the last `decay_steps` falls by 1 - sqrt(their share that is done)
            (ModernBERT, arXiv 2412.13663; Hägele et al., arXiv 2405.18392), without `power`.
    """

    peak: float | Adjustable
    total_steps: int | Adjustable
    warmup_steps: int | Adjustable
    power: float | Adjustable = 1.0
    from_step: int = 0
    schedule: str = "warmup_times_decay"
    decay_steps: int = 0

    def __call__(self, step):
        step = tf.cast(step, tf.float32) - self.from_step + 1.0
        ends = (self.total_steps, self.warmup_steps)
        total, warmup = (tf.cast(adjusted(end), tf.float32) for end in ends)
        if self.schedule == "trapezoidal":
            done = tf.maximum(step - (total - self.from_step - self.decay_steps), 0.0)
            decayed = 1.0 - tf.sqrt(tf.minimum(done / self.decay_steps, 1.0))
            return adjusted(self.peak) * decayed * tf.minimum(1.0, step / warmup)
        if self.schedule == "warmup_then_decay":
            left = tf.maximum(total - self.from_step - warmup, 1.0)
            progress = tf.clip_by_value((step - warmup) / left, 0.0, 1.0)
        else:
            progress = tf.minimum(step / (total - self.from_step), 1.0)
        warmup = tf.minimum(1.0, step / warmup)  # 1 without warm-up, as step > 0
        return adjusted(self.peak) * (1.0 - progress) ** adjusted(self.power) * warmup


def decays(variable: tf.Variable) -> bool:
    """Returns True if weight decay applies: rank 2 and higher, not layer norms and biases."""
    return variable.shape.rank > 1


class AdamWeightDecay(tf_keras.optimizers.Optimizer):
    """Adam without bias correction, with decoupled weight decay.

    m <- β1 m + (1 - β1) g;  v <- β2 v + (1 - β2) g²
    w <- w - rate * scale(w) * (m / (sqrt(v) + ε) + decay * w)

    Source: model/optimization.py of ELECTRA. AdamW in Keras and tf-models-official corrects the
    bias, which makes the first steps smaller, up to 6.6 times in step 12.

    Args:
        weight_decay_rate: applied to variables for which `decays`; a number or `Adjustable`.
        scales: per-variable factors of the learning rate (layer-wise decay), in the order of the
            variables, or `Adjustable` ones; 1 by default.
    """

    clips_updates = False  # True if it clips its updates; the loop then leaves gradients unclipped

    def __init__(
        self,
        learning_rate,
        weight_decay_rate: float | Adjustable = 0.0,
        scales: Sequence[float] | Adjustable | None = None,
    ):
        # None, as the default 0 makes Keras subtract 0 times every variable.
        super().__init__(name="AdamWeightDecay", weight_decay=None, jit_compile=False)
        self._learning_rate = self._build_learning_rate(learning_rate)
        self.decay_rate, self.scales = weight_decay_rate, scales
        self._scalars = None

    def build(self, var_list):
        """Creates the slots m and v of every variable."""
        super().build(var_list)
        if getattr(self, "_built", False):
            return
        self._m = [self.add_variable_from_reference(var, "m") for var in var_list]
        self._v = [self.add_variable_from_reference(var, "v") for var in var_list]
        self._built = True

    def slots(self, variable: tf.Variable) -> tuple[tf.Variable, tf.Variable]:
        """Returns the moments m and v of a variable."""
        index = self._index_dict[self._var_key(variable)]
        return self._m[index], self._v[index]

    def apply_gradients(self, *args, **kwargs):
        # The first variable of an update creates the scalars for all: separate scalars for hundreds
        # of variables would be a tenth of a step's operations.
        self._scalars = None
        return super().apply_gradients(*args, **kwargs)

    def update_step(self, gradient, variable):
        """Updates one variable with its (dense) gradient."""
        if self._scalars is None:
            constants = (0.0, BETA_1, BETA_2, EPSILON)
            rate, decay = tf.convert_to_tensor(self.learning_rate), adjusted(self.decay_rate)
            scales = self.scales
            if isinstance(scales, Adjustable):
                scales = tf.unstack(scales())
            self._scalars = rate, decay, scales, 1.0 - rate * decay, *map(tf.constant, constants)
        rate, decay, scales, kept, zero, beta_1, beta_2, epsilon = self._scalars
        m, v = self.slots(variable)
        if scales is not None:
            rate *= scales[self._index_dict[self._var_key(variable)]]
            kept = 1.0 - rate * decay
        # An adjustable rate is never 0 and has no truth value in a graph.
        if (isinstance(self.decay_rate, Adjustable) or self.decay_rate) and decays(variable):
            # The product's buffer becomes the variable's: half the memory traffic of a difference.
            variable.assign(kept * variable)
        _apply_adam(variable, m, v, gradient, rate, beta_1, beta_2, epsilon, zero)


def _apply_adam(variable, m, v, gradient, rate, beta_1, beta_2, epsilon, zero) -> None:
    """Updates a variable and its moments in one kernel, one pass.

    Powers of beta of `zero` disable the kernel's bias correction.
    """
    tf.raw_ops.ResourceApplyAdam(
        var=variable.handle,
        m=m.handle,
        v=v.handle,
        beta1_power=zero,
        beta2_power=zero,
        lr=rate,
        beta1=beta_1,
        beta2=beta_2,
        epsilon=epsilon,
        grad=gradient,
    )


class StableAdamW(AdamWeightDecay):
    """AdamW with bias correction that clips updates instead of gradients.

    β'_i = β_i (1 - β_i^(t-1)) / (1 - β_i^t);  m <- β'_1 m + (1 - β'_1) g;  v likewise with g²
    r = sqrt(mean(g² / max(v, ε²))), of the variable;  rate' = rate / max(1, r)
    w <- (1 - decay * rate / peak) w - rate' * m / (sqrt(v) + ε)

    Source: algorithm 2 of Wortsman et al. 2023 (arXiv 2304.13013). As for ModernBERT, weight decay
    does not depend on the schedule's peak; it follows the rate before clipping. t counts the run's
    steps; moments that begin later (--continue_from) are not corrected, so r keeps about forty
    updates small.
    """

    clips_updates = True
    BETAS = (0.9, 0.98)

    def update_step(self, gradient, variable):
        """Updates one variable with its (dense) gradient."""
        if self._scalars is None:
            step = tf.cast(self.iterations, tf.float32)
            betas = [b * (1.0 - b**step) / (1.0 - b ** (step + 1.0)) for b in self.BETAS]
            rate = tf.convert_to_tensor(self.learning_rate)
            peak = getattr(self._learning_rate, "peak", rate)
            kept = 1.0 - self.decay_rate * tf.math.divide_no_nan(rate, peak)
            self._scalars = rate, kept, *betas, tf.constant(0.0), tf.constant(EPSILON)
        rate, kept, beta_1, beta_2, zero, epsilon = self._scalars
        m, v = self.slots(variable)
        squares = tf.square(gradient)
        after = beta_2 * v + (1.0 - beta_2) * squares
        mean_square = tf.reduce_mean(squares / tf.maximum(after, epsilon**2))
        if self.decay_rate and decays(variable):
            variable.assign(kept * variable)
        rate *= tf.math.rsqrt(tf.maximum(1.0, mean_square))
        _apply_adam(variable, m, v, gradient, rate, beta_1, beta_2, epsilon, zero)


def create_optimizer(
    name: str,
    learning_rate,
    weight_decay_rate: float,
    variables: Sequence[tf.Variable],
    scales: Sequence[float] | None = None,
    followers: Sequence[tf.Variable] = (),
):
    """Creates an optimizer in which norms and biases have no weight decay.

    Args:
        name: "adam", AdamWeightDecay; "stable_adamw", StableAdamW; "lamb", tf-models-official's.
        scales: for "adam", factors of the learning rate in the order of the variables.
        followers: for "lamb", differences from other variables, which begin at zero, so that the
            ratio of norms would keep them there: they are updated as by Adam.

    Restoring a checkpoint later changes neither the decay nor a learning-rate schedule; a constant
    rate is one of the optimizer's variables and is restored.
    """
    assert scales is None or name == "adam"
    if name in (adams := {"adam": AdamWeightDecay, "stable_adamw": StableAdamW}):
        optimizer = adams[name](learning_rate, weight_decay_rate, scales)
        optimizer.build(variables)
        return optimizer
    from official.modeling.optimization import lamb

    # LAMB knows variables by name only, so the exclusions are listed; with several replicas it sees
    # each replica's copy, under another name.
    def patterns(of: Iterable[tf.Variable]) -> list[str]:
        names = (re.escape(variable.name.split(":")[0]) for variable in of)
        return [rf"^{name}(/replica_\d+)?$" for name in names]

    excluded = patterns(variable for variable in variables if not decays(variable))
    optimizer = lamb.LAMB(
        learning_rate=learning_rate,
        beta_1=0.9,  # these three: Table V of the ALE report
        beta_2=0.999,
        epsilon=1e-6,
        weight_decay_rate=lambda: weight_decay_rate,  # a number would be saved in checkpoints
        exclude_from_weight_decay=excluded,
        # By default the same.
        exclude_from_layer_adaptation=[*excluded, *patterns(followers)],
    )
    optimizer._create_all_weights(variables)  # so that a checkpoint restores them at once
    return optimizer


def clip(gradients: Sequence[tf.Tensor], clipped: bool = True) -> tuple[list[tf.Tensor], tf.Tensor]:
    """Clips to global norm 1 if `clipped`; returns the dense gradients and the norm before."""
    with tf.name_scope("clip_gradients"):  # benchmarks.tpu_compile counts what is in this scope
        gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]
        if not clipped:
            return gradients, tf.linalg.global_norm(gradients)
        if running_on_cpu_only() or built_for_tpu():
            return tf.clip_by_global_norm(gradients, CLIP_NORM)
        return _clipped_by_shape(gradients)


def _clipped_by_shape(gradients):
    """Clips as `tf.clip_by_global_norm`, with all gradients of a shape in one tensor.

    A GPU launches one or two kernels per sum; updates that read parts of the same tensor are
    compiled into one.
    """
    places = collections.defaultdict(list)
    for place, gradient in enumerate(gradients):
        places[tuple(gradient.shape)].append(place)
    stacks = [tf.stack([gradients[i] for i in found]) for found in places.values()]
    sums = [tf.reshape(tf.reduce_sum(tf.square(stack), -1), [-1]) for stack in stacks]
    norm = tf.sqrt(tf.reduce_sum(tf.concat(sums, 0)))
    scale = CLIP_NORM / tf.maximum(norm, CLIP_NORM)
    clipped = [None] * len(gradients)
    for found, stack in zip(places.values(), stacks, strict=True):
        for place, gradient in zip(found, tf.unstack(stack * scale), strict=True):
            clipped[place] = gradient
    return clipped, norm


def apply_gradients(optimizer, gradients: Sequence[tf.Tensor], variables) -> None:
    """Applies gradients that are already summed over the replicas."""
    if isinstance(optimizer, tf_keras.optimizers.legacy.Optimizer):
        skip = {"experimental_aggregate_gradients": False}
    else:
        skip = {"skip_gradients_aggregation": True}
    with tf.name_scope("update_weights"):  # as above
        optimizer.apply_gradients(zip(gradients, variables), **skip)
