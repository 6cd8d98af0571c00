"""SavedModels of every kind, each exported when a test first asks for it."""

import functools

import pytest

from serving.export import export
from serving.load import load
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

    @functools.cache  # noqa: B019  (lives as long as the tests)
    def __getitem__(self, kind: str) -> str:
        run, saved = self._folder / kind / "run", str(self._folder / kind / "saved")
        if kind == "pretraining":
            pretrained(run)
        else:
            fine_tuned(run, TASKS[kind](), num_hidden_layers=1)
        export(load(str(run)), saved, "run")
        return saved


@pytest.fixture(scope="session")
def saved(tmp_path_factory):
    """See `Saved`; kinds are those of TASKS, and "pretraining"."""
    return Saved(tmp_path_factory.mktemp("saved"))
