"""Lines of pipes as they arrive, and when there is time to answer."""

import os

import pytest

from common.errors import InputError
from serving.streams import Lines


def test_before_more_is_waited_for_there_is_time_to_answer():
    """What the reader gets of a pipe, with None where it would have to wait."""
    reading, writing = os.pipe()
    to_come = [b"a\nb\nhalf", b" a line\n", b"\n\xff" * 3 + b"\n", b"no end"]
    got = []

    def before_waiting():
        got.append(None)
        os.write(writing, to_come.pop(0)) if to_come else os.close(writing)

    with Lines(f"/dev/fd/{reading}") as source:
        assert not source.regular
        for line in source.read(before_waiting):
            got.append(line)
    os.close(reading)
    lines = [line for line in got if line is not None]
    assert lines == [b"a\n", b"b\n", b"half a line\n", b"\n", *[b"\xff\n"] * 3, b"no end"]
    assert got == [None, *lines[:2], None, lines[2], None, *lines[3:7], None, None, lines[7]]


def test_of_a_file_all_is_there(tmp_path):
    path = tmp_path / "rows"
    path.write_bytes(b"a\n\nb")
    with Lines(str(path)) as source:
        assert source.regular
        lines = list(source.read(lambda: pytest.fail("nothing to wait for")))
    assert lines == [b"a\n", b"\n", b"b"]


def test_what_cannot_be_read(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError):
        Lines(str(tmp_path / "absent"))
    with pytest.raises(IsADirectoryError):
        Lines(str(tmp_path))
    for encoding in ("utf-16-le", "utf-32-be"):
        (tmp_path / "rows").write_bytes("\ufefftext,id\na,b\n".encode(encoding))
        with Lines(str(tmp_path / "rows")) as source, pytest.raises(InputError):
            list(source.read())
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(InputError):
        Lines("-")
