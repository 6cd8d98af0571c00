"""Hugging Face's folders and their model directories, each made when a test first asks for it."""

import functools

import pytest

from checkpoints import huggingface, model_directory
from checkpoints.model_directory import Options
from tests import peers
from tests.huggingface_support import FOLDER, padded_copy


class Folders:
    """Name -> (folder, model directory); "padded NAME" has a padded vocabulary."""

    def __init__(self, temporary):
        self._temporary = temporary

    @functools.cache  # noqa: B019  (lives as long as the tests)
    def __getitem__(self, name: str) -> tuple:
        folder, directory = FOLDER / name, str(self._temporary / name / "model")
        if name.startswith("padded "):
            folder = padded_copy(name.removeprefix("padded "), self._temporary / name)
        read = huggingface.read(str(folder), Options())
        model_directory.save(read, directory, {"source": "huggingface"})
        return folder, directory


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """See `Folders`."""
    return Folders(tmp_path_factory.mktemp("huggingface"))


@pytest.fixture(scope="session")
def transformers():
    """Skips tests where there is no such."""
    peers.need("torch", "transformers")
