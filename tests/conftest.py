"""Set-up of all tests: two logical CPU devices, so that distribution is tested in-process."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("MPLBACKEND", "Agg")

import pytest
import tensorflow as tf
import tf_keras

_CPU = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(_CPU, [tf.config.LogicalDeviceConfiguration()] * 2)

# What takes longest comes first, lest one of two workers be left alone with it at the end.
LONGEST = (
    "test_readme",
    "test_run_pretraining",
    "serving/test_spans",
    "serving/test_predict",
    "training/test_loop",
    "serving/test_export",
    "test_continue_pretraining",
    "checkpoints/test_tf1_convert",
    "serving/test_texts",
    "finetune/test_objective",
    "model/test_encoder",
    "test_run_finetuning",
    "benchmarks/test_commands",
    "pretrain/test_objectives",
    "data/test_build",
    "analysis/test_flops",
)


def pytest_collection_modifyitems(items):
    """Puts the modules of `LONGEST` before all others, each in its own order."""
    places = {f"tests/{name}.py": place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.nodeid.split("::")[0], len(places)))


@pytest.fixture(autouse=True, scope="module")
def _same_start_of_a_module():
    """What a module's tests share does not depend on the modules before it either."""
    tf_keras.utils.set_random_seed(1)


@pytest.fixture(autouse=True)
def _same_start():
    """Every test starts from the same seed and the float32 policy, and leaves the policy so."""
    tf_keras.utils.set_random_seed(1)
    tf_keras.mixed_precision.set_global_policy("float32")
    yield
    tf_keras.mixed_precision.set_global_policy("float32")
