"""SavedModels of every kind, each exported when a test first asks for it."""

import functools
import os

import filelock
import pytest
import tensorflow as tf

import convbert
from convbert.serving.export import export
from convbert.serving.load import load_model_directory
from tests.serving.support import fine_tuned, pretrained, task

KINDS = ("classification", "multi_label", "tagging", "span", "multiple_choice")
TASKS = {kind: functools.partial(task, kind) for kind in KINDS}
TASKS["pairs"] = functools.partial(task, "classification", True)
TASKS["regression"] = functools.partial(task, "regression", True, label_range=(1.0, 5.0))
SEARCH = {kind: functools.partial(task, kind) for kind in ("embedding", "reranking")}


class Saved:
    """Kind of model -> the folder of a SavedModel, in `shared`; the first process that needs one
    exports it for all. Model directories are in `folder`."""

    def __init__(self, folder, shared):
        self._folder, self._shared = folder, shared

    def __getitem__(self, kind: str) -> str:
        path = self._shared / kind
        with filelock.FileLock(f"{path}.lock"):
            if not path.exists():
                export(load_model_directory(self.directory(kind)), str(path), "run")
        return str(path)

    def directory(self, kind: str) -> str:
        """The model directory that it is exported from."""
        self.network(kind)
        return str(self._folder / kind)

    @functools.cache  # noqa: B019  (lives as long as the tests)
    def network(self, kind: str):
        """Returns the result of `fine_tuned` or `pretrained`."""
        run = self._folder / kind
        if kind == "pretraining":
            return pretrained(run)
        own = (TASKS | SEARCH)[kind]()
        return fine_tuned(run, own, seed=2, num_hidden_layers=1)  # all labels occur

    @functools.cache  # noqa: B019
    def loaded(self, kind: str):
        return tf.saved_model.load(self[kind])

    @functools.cache  # noqa: B019
    def model(self, kind: str, from_directory: bool = False) -> convbert.Model:
        """As `convbert` loads it, or the model directory."""
        return convbert.load(self.directory(kind) if from_directory else self[kind])


@pytest.fixture(scope="session")
def saved(tmp_path_factory):
    """A `Saved`; kinds are those of TASKS, and "pretraining"."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:  # whose folder is in that of all workers
        shared = shared.parent
    (shared / "saved").mkdir(exist_ok=True)
    return Saved(tmp_path_factory.mktemp("models"), shared / "saved")
