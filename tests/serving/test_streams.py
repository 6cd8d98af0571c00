"""Lines of pipes as they arrive, and when there is time to answer."""

import pytest

from convbert.common.errors import InputError
from convbert.serving.streams import Lines


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
