"""ConvBERT in Python programs and notebooks; see docs/python.md.

import convbert

model = convbert.load("my_data/models/mine")
vectors = model.embed(["The weather is fine.", "It rains."])  # float32 [2, D]
"""

from __future__ import annotations

import os

os.environ.setdefault("TF_USE_LEGACY_KERAS", "")  # no: the program keeps Keras 3

import common.library_logs  # noqa: F401  TensorFlow reads the environment when it is imported

# isort: split
from common.errors import InputError
from finetune.frames import FineTuned, fine_tune
from serving.answers import Answers
from serving.metrics import Evaluation
from serving.model import Model, load

if not os.environ["TF_USE_LEGACY_KERAS"]:  # for commands that the program starts
    del os.environ["TF_USE_LEGACY_KERAS"]

__all__ = ["Answers", "Evaluation", "FineTuned", "InputError", "Model", "fine_tune", "load"]
