"""A model directory whose vocabulary is that of `reviews` of tests/finetune/kinds_support.py."""

import pytest

from convbert.data.vocabulary import SPECIAL_TOKENS, Vocabulary
from tests.finetune.kinds_support import BAD, GOOD, OTHER, model_directory


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory):
    vocabulary = Vocabulary((*SPECIAL_TOKENS, *GOOD, *BAD, *OTHER))
    return model_directory(tmp_path_factory.mktemp("reviews") / "model", vocabulary)
