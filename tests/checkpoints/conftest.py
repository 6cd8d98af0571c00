"""Hugging Face's folders and their model directories, each made when a test first asks for it."""

import functools

import pytest

from convbert.checkpoints import model_directory
from tests import peers
from tests.huggingface_support import FOLDER, padded_copy, read


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """Name -> (folder, model directory); "padded NAME" has a padded vocabulary."""
    temporary = tmp_path_factory.mktemp("huggingface")

    @functools.cache
    def made(name: str) -> tuple:
        folder, directory = FOLDER / name, str(temporary / name / "model")
        if name.startswith("padded "):
            folder = padded_copy(name.removeprefix("padded "), temporary / name)
        model_directory.save(read(folder), directory, {"source": "huggingface"})
        return folder, directory

    return made


@pytest.fixture(scope="session")
def transformers():
    peers.need("torch", "transformers")
