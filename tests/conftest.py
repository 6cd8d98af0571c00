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
    "experiments/test_run_experiment",
    "serving/test_litert",
    "finetune/test_evaluations",
    "test_run_finetuning",
    "test_run_pretraining",
    "serving/test_predict",
    "training/test_loop",
    "checkpoints/test_tf1_convert",
    "serving/test_export",
    "serving/test_requests",
    "serving/scoring/test_scorer",
    "finetune/test_frames",
    "test_continue_pretraining",
    "serving/test_spans",
    "test_environment",
    "finetune/test_objective",
    "pretrain/test_plugin_objective",
    "training/test_micro_batches",
    "data/test_build",
    "analysis/test_flops",
    "model/test_encoder",
    "benchmarks/test_commands",
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
