"""The optimizer against the trajectories of the original code, and its parts."""

import contextlib
import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from convbert.common.backend import for_accelerator
from convbert.training import optimizer as optimizers
from convbert.training.distribution import create_strategy

GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "optimizer"


def layers():
    layer = tf_keras.layers.Dense(3, name="dense")
    layer.build([None, 3])
    norm = tf_keras.layers.LayerNormalization(name="norm")
    norm.build([None, 3])
    return [*layer.trainable_variables, *norm.trainable_variables]


def layerwise_scale(name: str, settings: dict) -> float:
    """The original's layer-wise decay: even the top layer is scaled by decay ** 2."""
    decay, layers = settings["layerwise_lr_decay_power"], settings["n_transformer_layers"]
    if name.startswith("task_specific"):
        return 1.0
    if "/layer_" in name:
        layer = int(name.split("/layer_")[1].split("/")[0])
        return decay ** (layers + 2 - (layer + 1))
    return decay ** (layers + 2)


@pytest.mark.parametrize("stage", ["pretraining", "finetuning"])
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("platform", [None, "gpu"])
def test_trajectory_of_the_original(stage, compiled, platform):
    settings = json.loads((GOLDEN / f"{stage}.json").read_text())
    golden = np.load(GOLDEN / f"{stage}.npz")
    names = [key.removeprefix("initial/") for key in golden.files if key.startswith("initial/")]
    assert len(names) == 10
    variables = [tf.Variable(golden[f"initial/{name}"]) for name in names]
    steps = settings["num_train_steps"]
    warmup = settings.get("warmup_steps", int(steps * settings.get("warmup_proportion", 0)))
    scales = None
    if stage == "finetuning":
        scales = [layerwise_scale(name, settings) for name in names]
    schedule = optimizers.WarmupTimesDecay(settings["learning_rate"], steps, warmup)
    optimizer = optimizers.AdamWeightDecay(schedule, settings["weight_decay_rate"], scales)
    optimizer.build(variables)

    @tf.function(jit_compile=compiled)
    def step(gradients):
        optimizers.apply_gradients(optimizer, optimizers.clip(gradients)[0], variables)

    moved = 0.0
    for t in range(settings["steps"]):
        with for_accelerator(platform) if platform else contextlib.nullcontext():
            step([tf.constant(golden[f"gradient/{t}/{name}"]) for name in names])
        for name, variable in zip(names, variables):
            expected = golden[f"value/{t}/{name}"]
            np.testing.assert_allclose(variable.numpy(), expected, rtol=0, atol=1e-6)
            moved = max(moved, np.abs(expected - golden[f"initial/{name}"]).max())
    assert moved > 1e-4  # the trajectory does go somewhere


STEPS = np.arange(1, 111)  # the first 10 are warm-up
RISE = np.minimum(STEPS / 10, 1)
SCHEDULES = {
    "warmup_times_decay": ({}, RISE * (1 - STEPS / 110)),
    "warmup_then_decay": ({"power": 2.0}, RISE * (1 - np.maximum(STEPS - 10, 0) / 100) ** 2),
    "trapezoidal": ({"decay_steps": 25}, RISE * (1 - np.sqrt(np.maximum(STEPS - 85, 0) / 25))),
}


@pytest.mark.parametrize("from_step", [0, 1_000_000])
@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules(name, from_step):
    """Also of one that begins later, as if the steps before had not been."""
    options, expected = SCHEDULES[name]
    begun = {"from_step": from_step, "schedule": name}
    schedule = optimizers.WarmupTimesDecay(2.0, from_step + 110, 10, **options, **begun)
    found = [float(schedule(from_step + step)) for step in range(110)]
    np.testing.assert_allclose(found, 2.0 * expected, rtol=1e-5, atol=1e-6)
    # Of no warm-up, and of nothing else.
    np.testing.assert_allclose(optimizers.WarmupTimesDecay(2.0, 100, 0)(0), 2.0 * 0.99)
    all_warmup = optimizers.WarmupTimesDecay(2.0, 100, 100, schedule="warmup_then_decay")
    np.testing.assert_allclose(all_warmup(99), 2.0)


@pytest.mark.parametrize("compiled", [False, True])
def test_stable_adamw_is_its_published_algorithm(compiled):
    """Algorithm 2 of Wortsman et al. 2023, in float64; some gradients are ten times the others."""
    draw, decay, steps = np.random.default_rng(0), 0.01, 6
    values = [draw.normal(size=shape) for shape in ([3, 4], [5])]
    sizes = (1, 1, 1, 10, 1, 1)
    gradients = [[draw.normal(size=v.shape) * size for v in values] for size in sizes]
    variables = [tf.Variable(value, dtype=tf.float32) for value in values]
    schedule = optimizers.WarmupTimesDecay(0.1, total_steps=10, warmup_steps=2)
    optimizer = optimizers.create_optimizer("stable_adamw", schedule, decay, variables)

    @tf.function(jit_compile=compiled)
    def step(gradients):
        optimizers.apply_gradients(optimizer, gradients, variables)

    clipped = []
    moments = [(0.0, 0.0) for _ in values]
    for t in range(1, steps + 1):
        step([tf.constant(g, tf.float32) for g in gradients[t - 1]])
        rate = 0.1 * (1 - t / 10) * min(1, t / 2)
        for i, g in enumerate(gradients[t - 1]):
            b1, b2 = (b * (1 - b ** (t - 1)) / (1 - b**t) for b in (0.9, 0.98))
            m, v = moments[i]
            moments[i] = m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
            rms = np.sqrt(np.mean(g * g / np.maximum(v, 1e-12)))
            clipped.append(rms > 1)
            if values[i].ndim > 1:
                values[i] = values[i] * (1 - decay * rate / 0.1)
            values[i] = values[i] - rate / max(1, rms) * m / (np.sqrt(v) + 1e-6)
            np.testing.assert_allclose(variables[i], values[i], rtol=1e-5, atol=1e-6)
    assert 0 < sum(clipped) < len(clipped)


@pytest.mark.parametrize("name", ["adam", "lamb", "stable_adamw"])
def test_weight_decay_spares_layer_norms_and_biases(name):
    variables = layers()
    for variable in variables:
        variable.assign(tf.ones_like(variable))
    optimizer = optimizers.create_optimizer(name, 0.1, 0.5, variables)
    optimizers.apply_gradients(optimizer, [tf.zeros_like(v) for v in variables], variables)
    kernel, *others = variables
    assert (kernel.numpy() < 1.0).all()
    for variable in others:
        np.testing.assert_array_equal(variable.numpy(), 1.0)


def test_gradients_are_not_clipped_where_updates_are():
    gradients = [tf.fill([4], 10.0)]
    for clipped, expected in ((True, 0.5), (False, 10.0)):
        found, norm = optimizers.clip(gradients, clipped)
        np.testing.assert_allclose(found[0], expected)
        np.testing.assert_allclose(norm, 20.0)
    assert optimizers.create_optimizer("stable_adamw", 0.1, 0.0, layers()).clips_updates


def test_the_norm_on_a_gpu():
    shapes = [[3, 4], [5], [3, 4], [7], [2, 3, 4], []]
    gradients = [tf.random.stateless_normal(shape, [1, i]) for i, shape in enumerate(shapes)]
    expected, norm = optimizers.clip(gradients)

    with for_accelerator("gpu"):
        found, norm_on_gpu = tf.function(optimizers.clip)(gradients)
    np.testing.assert_allclose(norm_on_gpu, norm, rtol=1e-6)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_lamb_has_constants_of_table_5():
    optimizer = optimizers.create_optimizer("lamb", 1e-3, 0.01, [tf.Variable([1.0], name="kernel")])
    found = optimizer.get_config()
    constants = {"beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-6}
    assert {name: float(found[name]) for name in constants} == pytest.approx(constants)


def test_lamb_moves_differences_from_zero():
    """Whose ratio of norms would keep them there."""
    delta = tf.Variable(tf.zeros([3, 2]), name="delta/kernel")
    optimizer = optimizers.create_optimizer("lamb", 0.01, 0.01, [delta], followers=[delta])
    for _ in range(20):
        optimizers.apply_gradients(optimizer, [tf.ones_like(delta)], [delta])
    np.testing.assert_allclose(delta, -0.2, atol=0.01)


@pytest.mark.parametrize("name", ["adam", "lamb"])
def test_new_settings_win_over_those_of_a_restored_checkpoint(tmp_path, name):
    """Decay and schedule are settings; slots and step are what a checkpoint is for."""

    def make(peak, decay):
        variable = tf.Variable([[1.0, 2.0]])
        schedule = optimizers.WarmupTimesDecay(peak, total_steps=100, warmup_steps=0)
        optimizer = optimizers.create_optimizer(name, schedule, decay, [variable])
        return variable, optimizer, tf.train.Checkpoint(variable=variable, optimizer=optimizer)

    def step(variable, optimizer):
        optimizers.apply_gradients(optimizer, [tf.ones_like(variable)], [variable])
        return variable.numpy()

    variable, optimizer, checkpoint = make(peak=0.01, decay=0.5)
    before = step(variable, optimizer)
    path = checkpoint.write(str(tmp_path / "c"))
    change = {}
    for peak, decay in ((0.01, 0.5), (0.02, 0.5), (0.01, 4.0)):
        variable, optimizer, checkpoint = make(peak, decay)
        checkpoint.read(path).assert_consumed()
        assert optimizer.iterations == 1
        change[peak, decay] = step(variable, optimizer) - before
    np.testing.assert_allclose(change[0.02, 0.5], 2 * change[0.01, 0.5], rtol=1e-4)
    assert np.abs(change[0.01, 4.0] - change[0.01, 0.5]).max() > 1e-3


@pytest.mark.parametrize("name", ["adam", "lamb", "stable_adamw"])
def test_replicas_stay_equal(name):
    """LAMB knows variables by name, and every replica's copy has another."""
    strategy = create_strategy("mirrored:2")
    with strategy.scope():
        variables = layers()
        optimizer = optimizers.create_optimizer(name, 0.1, 0.5, variables)

    @tf.function
    def step():
        def replica():
            optimizers.apply_gradients(optimizer, [tf.ones_like(v) for v in variables], variables)

        strategy.run(replica)

    for _ in range(3):
        step()
    for variable in variables:
        one, two = strategy.experimental_local_results(variable)
        np.testing.assert_array_equal(one.numpy(), two.numpy())
