"""SavedModels of every kind, each exported when a test first asks for it."""

import functools
import os

import pytest
import tensorflow as tf

import convbert
from convbert.serving.export import export
from convbert.serving.load import load_model_directory
from tests.serving.support import fine_tuned, pretrained, task

TASKS = {
    "classification": lambda: task("classification"),
    "pairs": lambda: task("classification", True),
    "regression": lambda: task("regression", True, label_range=(1.0, 5.0)),
    "tagging": lambda: task("tagging"),
    "span": lambda: task("span"),
    "multiple_choice": lambda: task("multiple_choice"),
}


class Saved:
    """Kind of model -> the folder of a SavedModel."""

    def __init__(self, folder):
        self._folder = folder

    def __getitem__(self, kind: str) -> str:
        self.network(kind)
        return str(self._folder / kind / "saved")

    def directory(self, kind: str) -> str:
        """The model directory that it was exported from."""
        return os.path.join(os.path.dirname(self[kind]), "run")

    @functools.cache  # noqa: B019  (lives as long as the tests)
    def network(self, kind: str):
        """Returns the result of `fine_tuned` or `pretrained`."""
        run = self._folder / kind / "run"
        if kind == "pretraining":
            made = pretrained(run)
        else:
            made = fine_tuned(run, TASKS[kind](), seed=2, num_hidden_layers=1)  # all labels occur
        export(load_model_directory(str(run)), str(self._folder / kind / "saved"), "run")
        return made

    @functools.cache  # noqa: B019
    def loaded(self, kind: str):
        """As TensorFlow loads it."""
        return tf.saved_model.load(self[kind])

    @functools.cache  # noqa: B019
    def model(self, kind: str, from_directory: bool = False) -> convbert.Model:
        """As `convbert` loads it, or the model directory."""
        return convbert.load(self.directory(kind) if from_directory else self[kind])


@pytest.fixture(scope="session")
def saved(tmp_path_factory):
    """A `Saved`; kinds are those of TASKS, and "pretraining"."""
    return Saved(tmp_path_factory.mktemp("saved"))
