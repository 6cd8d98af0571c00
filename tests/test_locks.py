"""One command at a time in a folder: who is rejected, whose lock is taken over."""

import os
import signal

import pytest

from convbert.common.errors import InputError
from convbert.common.locks import locked
from tests.test_stopping import start


def is_rejected(folder, **options):
    with pytest.raises(InputError), locked(str(folder), **options):
        pytest.fail("it is another's")


@pytest.mark.parametrize("beside", [False, True], ids=["inside", "beside"])
def test_the_second_is_rejected_and_nothing_is_left(tmp_path, beside):
    folder = tmp_path / "runs" / "m"
    with locked(str(folder), beside=beside), locked(str(tmp_path / "runs/other"), beside=beside):
        is_rejected(folder, beside=beside)
    assert os.listdir(tmp_path) == []
    (tmp_path / "file").write_text("text")  # which stays
    with pytest.raises(KeyError), locked(str(folder), beside=beside):
        raise KeyError
    assert os.listdir(tmp_path) == ["file"]


def test_the_lock_of_a_process_that_was_killed(tmp_path):
    """Other signals leave none: tests/test_stopping.py."""
    holding = "with locks.locked(folder):\n    say('begun')\n    time.sleep(30)"
    started = start(holding, tmp_path / "m").until("begun")
    is_rejected(tmp_path / "m")
    started.send(signal.SIGKILL).ended()
    with locked(str(tmp_path / "m")):
        pass


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("in the way")
    for folder in (tmp_path / "file" / "m", "/proc/none/m"):
        is_rejected(folder)
