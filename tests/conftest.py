"""Set-up of all tests: two logical CPU devices, so that distribution is tested in-process."""

import gc
import os
import pathlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")  # see common.startup

import pytest
import tensorflow as tf
import tf_keras

from convbert.training.tracing import temporary_graphs

_CPU = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(_CPU, [tf.config.LogicalDeviceConfiguration()] * 2)

# What takes longest comes first, lest one of two workers be left alone with it at the end.
LONGEST = (
    *("test_run_pretraining", "serving/test_predict", "checkpoints/test_tf1_convert"),
    *("model/test_encoder", "serving/test_requests", "checkpoints/test_huggingface"),
    *("data/test_input_pipeline", "serving/test_litert", "serving/test_scoring"),
    *("model/test_kernels", "model/test_causality", "serving/test_answers"),
    *("serving/test_pretraining", "model/test_modern", "training/test_loop"),
    *("serving/test_export", "finetune/test_objective", "checkpoints/test_tf1"),
)


# TensorFlow picks oneDNN's bfloat16 operations by the CPU, and they crash where a limit of oneDNN's
# instructions below the CPU's takes them away. `make test-avx2` runs these tests without oneDNN, as
# a CPU that has no AVX-512 does.
_LIMIT = os.environ.get("ONEDNN_MAX_CPU_ISA", "DEFAULT")
ONEDNN_LACKS_BFLOAT16 = (
    _LIMIT.startswith(("SSE", "AVX"))
    and not _LIMIT.startswith("AVX512")
    and os.environ.get("TF_ENABLE_ONEDNN_OPTS") != "0"
    and "avx512f" in pathlib.Path("/proc/cpuinfo").read_text().split()
)


def pytest_collection_modifyitems(items):
    """Marks tests that are given bfloat16; puts the modules of `LONGEST` before all others."""
    for item in items:
        given = item.callspec.params.values() if hasattr(item, "callspec") else ()
        if any("bfloat16" in str(value) for value in given):
            item.add_marker("bfloat16")
        if ONEDNN_LACKS_BFLOAT16 and item.get_closest_marker("bfloat16"):
            item.add_marker(pytest.mark.skip(reason="oneDNN is kept from bfloat16"))
    places = {f"tests/{name}.py": place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.nodeid.split("::")[0], len(places)))


# Collections then pass over what the libraries have made, which stays: 0.4 seconds each.
gc.collect()
gc.freeze()


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory):
    """A model directory whose vocabulary is that of `reviews` of kinds_support.py."""
    from tests.finetune import kinds_support as support  # after the devices are set

    return support.model_directory(tmp_path_factory.mktemp("reviews") / "model", support.VOCABULARY)


@pytest.fixture(autouse=True, scope="module")
def _same_start_of_a_module():
    """Makes a module's fixtures independent of the modules before it, and frees them after it."""
    tf_keras.utils.set_random_seed(1)
    with temporary_graphs():
        yield
    gc.collect()


@pytest.fixture(autouse=True)
def _same_start():
    """Every test starts from the same seed and the float32 policy, and leaves the policy so."""
    tf_keras.utils.set_random_seed(1)
    tf_keras.mixed_precision.set_global_policy("float32")
    yield
    tf_keras.mixed_precision.set_global_policy("float32")
