"""Keeps Keras 3 out of the process. Every command imports it before TensorFlow.

Otherwise TensorFlow imports Keras 3, scikit-learn and Matplotlib, which takes nearly two seconds
for nothing. `import convbert` does not change a program's choice of Keras.
"""

from __future__ import annotations

import os

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")  # TensorFlow reads it when it is imported
