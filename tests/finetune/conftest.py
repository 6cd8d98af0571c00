"""A model directory whose vocabulary is that of `reviews` of tests/finetune/kinds_support.py."""

import pytest

from tests.finetune.kinds_support import VOCABULARY, model_directory


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory):
    return model_directory(tmp_path_factory.mktemp("reviews") / "model", VOCABULARY)
