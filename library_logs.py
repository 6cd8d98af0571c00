"""Keeps what TensorFlow's C++ libraries log off the terminal, and Keras 3 out of the process.

Every command imports it first.

TensorFlow reads its environment when it is imported. A variable that is set already stays.
"""

from __future__ import annotations

import ctypes
import os

# Where an NVIDIA driver is, its errors and the warning that no GPU could be used are worth reading.
# Elsewhere even the level "error" holds only what every run says: that there is no CUDA, and which
# operations oneDNN leaves to Eigen. What makes an operation fail comes as an exception, always.
_NVIDIA = ("/proc/driver/nvidia", "/dev/nvidiactl", "/dev/dxg")
_WARNINGS_AND_WORSE, _NOTHING_BUT_FATAL = "1", "3"
_found = any(map(os.path.exists, _NVIDIA))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", _WARNINGS_AND_WORSE if _found else _NOTHING_BUT_FATAL)

# Without it TensorFlow imports Keras 3, and with that scikit-learn and Matplotlib, which no command
# uses, for nearly two seconds.
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")

# `void absl::SetMinLogLevel(absl::LogSeverityAtLeast)` of the Abseil in TensorFlow 2.20.
_SET_MIN_LOG_LEVEL = "_ZN4absl12lts_2025012714SetMinLogLevelENS0_18LogSeverityAtLeastE"


def silence_compiler() -> None:
    """Raises Abseil's lowest level to warnings, for XLA says once that it compiled something.

    It does so through Abseil, which no variable of the environment governs. A TensorFlow
    that has the function under another name prints XLA's line; so does TF_CPP_MIN_LOG_LEVEL=0.
    """
    if os.environ["TF_CPP_MIN_LOG_LEVEL"] == "0":
        return
    import tensorflow as tf

    library = os.path.join(tf.sysconfig.get_lib(), "libtensorflow_framework.so.2")
    try:
        set_level = getattr(ctypes.CDLL(library), _SET_MIN_LOG_LEVEL)
    except (OSError, AttributeError):
        return
    set_level(1)
