"""ConvBERT and the encoders it is compared with, in TensorFlow 2; see docs/python.md.

    import convbert

    model = convbert.load("tiny")
    vectors = model.embed(["The weather is fine.", "It rains."])  # float32 [2, D]

Names are imported on first use, so that `import convbert` takes no time.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from convbert.common.errors import InputError as InputError
    from convbert.finetune.frames import FineTuned as FineTuned
    from convbert.finetune.frames import fine_tune as fine_tune
    from convbert.serving.client import Answers as Answers
    from convbert.serving.metrics import Evaluation as Evaluation
    from convbert.serving.model import Model as Model
    from convbert.serving.model import load as load
    from convbert.serving.search import whitening as whitening

__version__ = "0.2.0"
_MODULES = {
    "Answers": "serving.client",
    "Evaluation": "serving.metrics",
    "FineTuned": "finetune.frames",
    "InputError": "common.errors",
    "Model": "serving.model",
    "fine_tune": "finetune.frames",
    "load": "serving.model",
    "whitening": "serving.search",
}
__all__ = [*_MODULES]

# TensorFlow reads the level when it is imported. With an NVIDIA driver, warnings explain why a GPU
# cannot be used. Without one, even the level "error" only reports that there is no CUDA, and which
# operations oneDNN leaves to Eigen. Errors of operations are always exceptions.
_NVIDIA = ("/proc/driver/nvidia", "/dev/nvidiactl", "/dev/dxg")
_WARNINGS, _FATAL = "1", "3"
_level = _WARNINGS if any(map(os.path.exists, _NVIDIA)) else _FATAL
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", _level)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
