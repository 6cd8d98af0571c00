"""Files that appear whole or not at all, and what unreadable JSON gets."""

import os

import pytest

import files
from errors import InputError


def test_text_and_json_come_back(tmp_path):
    files.write_text(str(tmp_path / "a.txt"), "höher\n\r\nend")
    assert (tmp_path / "a.txt").read_bytes() == "höher\n\r\nend".encode()
    value = {"ß": [1, None], "path": "not UTF-8: \udcff"}
    files.write_json(str(tmp_path / "a.json"), value)
    assert files.read_json(str(tmp_path / "a.json")) == value
    assert sorted(os.listdir(tmp_path)) == ["a.json", "a.txt"]


def test_a_failed_write_keeps_what_was_there(tmp_path):
    path = tmp_path / "a.json"
    path.write_text("before")

    def fail(error):
        with files.replacing(str(path)) as temporary, open(temporary, "w") as file:
            file.write("half")
            raise error

    with pytest.raises(InputError, match=r"a\.json: cannot be written: No space left"):
        fail(OSError(28, "No space left on device"))
    with pytest.raises(KeyboardInterrupt):
        fail(KeyboardInterrupt())
    assert os.listdir(tmp_path) == ["a.json"]
    assert path.read_text() == "before"
    with pytest.raises(InputError, match="absent/b: cannot be written"):
        files.write_text(str(tmp_path / "absent" / "b"), "")


def test_a_folder_appears_whole_or_not_at_all(tmp_path):
    with files.new_folder(str(tmp_path / "a" / "b")) as folder:
        (tmp_path / "a" / os.path.basename(folder) / "file").write_text("text")
        assert not (tmp_path / "a" / "b").exists()
    assert os.listdir(tmp_path / "a") == ["b"]
    assert (tmp_path / "a" / "b" / "file").read_text() == "text"
    for error in (KeyboardInterrupt, OSError(28, "No space left on device")):
        expected = InputError if isinstance(error, OSError) else KeyboardInterrupt
        with pytest.raises(expected), files.new_folder(str(tmp_path / "c")):
            raise error
    assert os.listdir(tmp_path) == ["a"]


def test_a_folder_replaces_nothing_but_an_empty_one(tmp_path):
    (tmp_path / "empty").mkdir()
    with files.new_folder(str(tmp_path / "empty")) as folder:
        (tmp_path / os.path.basename(folder) / "file").write_text("text")
    assert os.listdir(tmp_path) == ["empty"]
    for name in ("empty", "empty/file"):
        path = str(tmp_path / name)
        with pytest.raises(InputError, match="should not exist yet"), files.new_folder(path):
            pytest.fail("there is something already")
    assert (tmp_path / "empty" / "file").read_text() == "text"


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "cannot be read: No such file"),
        (b'{"a": 1,\n}', "line 2: not JSON"),
        (b"[1]", "should be a JSON object. Received: list"),
        (b'{"\xff": 1}', "should be UTF-8"),
    ],
)
def test_unreadable_json_is_named(tmp_path, content, complaint):
    path = tmp_path / "a.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError) as error:
        files.read_json(str(path))
    assert str(error.value).startswith(str(path))
    assert complaint in str(error.value)
