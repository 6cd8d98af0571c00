"""Keeps Keras 3 out of the process. Every command imports it before TensorFlow.

Without it TensorFlow imports Keras 3, and with that scikit-learn and Matplotlib, which no command
needs, for nearly two seconds. `import convbert` alone leaves Keras 3 to the program that uses it.
"""

from __future__ import annotations

import os

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")  # TensorFlow reads it when it is imported
