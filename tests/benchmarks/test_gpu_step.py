"""The exported pre-training step: JAX computes with it what TensorFlow does. Needs jax to run."""

import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest
import tensorflow as tf

import files
from benchmarks import exported as library
from benchmarks import gpu_export
from model.kernels import fusion

TINY = {
    "vocab_size": 1200,
    "model_hparam_overrides": {
        "num_hidden_layers": 1,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "embedding_size": 32,
    },
}
needs_jax = pytest.mark.skipif(find_spec("jax") is None, reason="jax is not installed")


@pytest.fixture
def exported(tmp_path, monkeypatch, request):
    """Folder, trainer, features and variables of a tiny step, given precision and check_steps."""
    precision, check_steps = getattr(request, "param", ("float32", 0))
    monkeypatch.setattr(fusion, "SMALLEST_FUSED", 0)  # the kernels of real sizes
    folder = str(tmp_path / "tiny")
    return folder, *gpu_export.export(folder, "small", 2, 16, precision, check_steps, **TINY)


def test_initial_values():
    name = {"name": "a", "shape": [2, 3], "dtype": "float32"}
    fill = library.initial_value({**name, "fill": 2.0}, {})
    np.testing.assert_array_equal(fill, np.full([2, 3], 2, np.float32))
    many = {"name": "a", "shape": [100, 100], "dtype": "float32"}
    drawn = library.initial_value({**many, "draw": {"seed": 1, "deviation": 0.5}}, {})
    assert drawn.dtype == np.float32
    assert drawn.std() == pytest.approx(0.5, rel=0.05)
    stored = {"a": np.arange(6).reshape(2, 3)}
    np.testing.assert_array_equal(library.initial_value(name, stored), stored["a"])


@pytest.mark.slow  # exports a step for ten seconds
def test_description(exported):
    folder, trainer, features, variables = exported
    parameters = files.read_json(f"{folder}/step.json")["parameters"]
    with np.load(f"{folder}/values.npz") as file:
        assert set(file) == {"input_ids"}  # everything else is described
        stored = dict(file)
    tensors = [*tf.nest.flatten(features), *variables]
    assert len(parameters) == len(tensors)
    for parameter, tensor in zip(parameters, tensors):
        np.testing.assert_array_equal(library.initial_value(parameter, stored), tensor.numpy())
    trained = {id(variable) for variable in trainer.objective.trainable_variables}
    assert trained < {id(variable) for variable in variables}


@needs_jax
@pytest.mark.parametrize(
    ("exported", "loss_tolerance", "tolerance"),
    [(("float32", 0), 1e-6, 1e-5), (("mixed_bfloat16", 0), 2e-3, 2e-2)],
    indirect=["exported"],
)
def test_same_losses_and_variables_as_tensorflow(exported, loss_tolerance, tolerance):
    folder, trainer, features, variables = exported
    handles = {id(variable.handle) for variable in trainer.objective.trainable_variables}
    weights = [id(variable.handle) in handles for variable in variables]
    assert sum(weights) == len(handles)
    first = [variable.numpy() for variable in variables]

    step = library.ExportedStep(folder)
    given_away = step.variables
    own_step = tf.function(trainer._replica_step_fn)  # op by op
    for number in range(1, 4):
        loss = own_step(features)["loss"].numpy()
        np.testing.assert_allclose(np.asarray(step.take()), loss, rtol=loss_tolerance)
        own, ours = ([np.asarray(v) for v in values] for values in (variables, step.variables))
        assert [v.dtype for v in ours] == [v.dtype for v in own]
        for chosen in (weights, [not weight for weight in weights]):
            own_change, change = (changes(values, first, chosen) for values in (own, ours))
            difference = np.linalg.norm(change - own_change) / np.linalg.norm(own_change)
            assert difference < tolerance
        counts = [v for v in ours if v.dtype == np.int64]
        assert counts == [number]
    assert all(value.is_deleted() for value in given_away)


def changes(values, first, chosen):
    """How far the chosen floating-point values have moved, as one vector."""
    moved = [v - f for v, f, c in zip(values, first, chosen) if c and v.dtype == np.float32]
    return np.concatenate([change.ravel() for change in moved])


def test_does_not_import_tensorflow():
    imports = "import sys; from benchmarks import exported, gpu_step"
    code = f"{imports}; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
def test_huggingface_step(exported):
    description = files.read_json(f"{exported[0]}/step.json")
    names = ("fields", "generator_fields", "batch", "length", "precision")
    arguments = {**{name: description[name] for name in names}, "steps": 2}
    # On the CPU, as this process may have no GPU; compiled in the benchmark's process only.
    code = (
        f"from benchmarks import huggingface; print(huggingface.pretraining_step(**{arguments})())"
    )
    loss = float(subprocess.check_output([sys.executable, "-c", code], text=True))
    assert 30 < loss < 50  # about 50 ln 2, and the logarithm of V


def command(*arguments):
    line = [sys.executable, "-m", "benchmarks.gpu_step", *arguments]
    return subprocess.run(line, check=False, capture_output=True, text=True)


@needs_jax
@pytest.mark.parametrize("exported", [("float32", 2)], indirect=True)
def test_the_table(exported):
    shared = ("--nopeers", "--rounds=1", "--steps=1", "--side=64")
    output = command(f"--run={exported[0]}/..", *shared).stdout
    rows = [line.split("|")[1:-1] for line in output.splitlines() if line.startswith("| tiny")]
    ours, ceiling = ([cell.strip() for cell in row] for row in rows)
    assert ours[:4] == ["tiny, ours", "cpu", "2", "16"]
    assert min(float(ours[4]), float(ours[5]), float(ceiling[5])) > 0
    assert float(ours[7]) < 1e-6


@pytest.mark.skipif(find_spec("jax") is not None, reason="jax is installed")
def test_without_jax(exported):
    output = command(f"--run={exported[0]}/..", "--nopeers", "--rounds=1").stdout
    assert "- ours: not run, jax is not installed" in output
    assert "nan" not in output


@pytest.mark.parametrize("arguments", [(), ("--export=a", "--run=b")])
def test_export_or_run(arguments):
    finished = command(*arguments)
    assert finished.returncode == 1
    assert "--export or --run" in finished.stderr
