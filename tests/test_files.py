"""Atomic writes of files and folders, and what unreadable JSON gets."""

import os
import pathlib

import pytest

from convbert.common import files
from convbert.common.errors import InputError


def test_text_and_json_come_back(tmp_path):
    files.write_text(str(tmp_path / "a.txt"), "höher\n\r\nend")
    assert (tmp_path / "a.txt").read_bytes() == "höher\n\r\nend".encode()
    value = {"ß": [1, None], "path": "not UTF-8: \udcff"}
    files.write_json(str(tmp_path / "a.json"), value)
    assert files.read_json(str(tmp_path / "a.json")) == value
    assert sorted(os.listdir(tmp_path)) == ["a.json", "a.txt"]


def test_a_failed_write_keeps_what_was_there(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    path.write_text("before")

    def fail(error):
        with files.replacing(str(path)) as temporary, open(temporary, "w") as file:
            file.write("half")
            raise error

    with pytest.raises(InputError):
        fail(OSError(28, "No space left on device"))
    with pytest.raises(KeyboardInterrupt):
        fail(KeyboardInterrupt())
    assert os.listdir(tmp_path) == ["a.json"]
    assert path.read_text() == "before"
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError):
        files.write_text("absent/b", "")


def test_a_pipe_is_written_into(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    files.write_text(str(path), "said")
    assert os.read(reader, 8) == b"said"
    os.close(reader)
    assert path.is_fifo()


def test_a_new_folder_is_complete_or_not_there(tmp_path):
    (tmp_path / "empty").mkdir()
    for name in ("a/b", "empty"):
        with files.new_folder(str(tmp_path / name)) as folder:
            (pathlib.Path(folder) / "file").write_text("text")
            assert not (tmp_path / name / "file").exists()
        assert (tmp_path / name / "file").read_text() == "text"
    for name in ("empty", "empty/file"):
        path = str(tmp_path / name)
        with pytest.raises(InputError), files.new_folder(path):
            pytest.fail("there is something already")
    for error in (KeyboardInterrupt(), OSError(28, "No space left on device")):
        expected = InputError if isinstance(error, OSError) else KeyboardInterrupt
        with pytest.raises(expected), files.new_folder(str(tmp_path / "a" / "c" / "d" / "e")):
            raise error
    assert sorted(os.listdir(tmp_path)) == ["a", "empty"]
    assert os.listdir(tmp_path / "a") == ["b"]
    assert (tmp_path / "empty" / "file").read_text() == "text"
