"""How many files a reader passes through from the command to the convolution."""

import pytest

from tests.call_path_support import longest_path
from tests.pretraining_support import arguments, build_data

MOST_FILES = 7


@pytest.mark.slow  # needs twelve seconds: a run is traced by the interpreter
def test_few_files_lead_from_the_command_to_the_convolution(tmp_path):
    data_dir = build_data(tmp_path, count=20)
    changes = {"num_train_steps": 1, "num_warmup_steps": 0, "objective": "masked_lm"}
    line = arguments(data_dir, tmp_path / "m", changes)
    kernel = "model/kernels/convolution.py"
    path = longest_path(tmp_path, "run_pretraining.py", kernel, line, "training/loop.py")
    assert len(path) <= MOST_FILES
