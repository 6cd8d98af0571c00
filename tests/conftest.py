"""Set-up of all tests: two logical CPU devices, so that distribution is tested in-process."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("MPLBACKEND", "Agg")

import pytest
import tensorflow as tf
import tf_keras

_CPU = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(_CPU, [tf.config.LogicalDeviceConfiguration()] * 2)


@pytest.fixture(autouse=True)
def _same_start():
    """Every test starts from the same seed and the float32 policy, and leaves the policy so."""
    tf_keras.utils.set_random_seed(1)
    tf_keras.mixed_precision.set_global_policy("float32")
    yield
    tf_keras.mixed_precision.set_global_policy("float32")
