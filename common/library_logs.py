"""Keeps what TensorFlow's C++ libraries log off the terminal, and Keras 3 out of the process.

Every command imports it first.

TensorFlow reads its environment when it is imported. A variable that is set already stays.
"""

from __future__ import annotations

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
