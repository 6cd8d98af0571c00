"""Paths with a scheme, here ram://, TensorFlow's memory; local paths without TensorFlow."""

import errno
import io
import json
import os
import re

import numpy as np
import pytest
import tensorflow as tf

from convbert.common import files, storage
from convbert.common.errors import InputError
from tests.finetune.kinds_support import rejects


@pytest.fixture
def url(request):
    folder = "ram://" + re.sub(r"\W", "_", request.node.name)
    storage.makedirs(folder)
    yield folder
    storage.rmtree(folder)


def content(folder):
    paths = [os.path.join(place, n) for place, _, names in storage.walk(folder) for n in names]
    return {path[len(folder) + 1 :]: storage.open(path).read().decode() for path in paths}


def test_files_are_read_as_local_ones_are(url, tmp_path):
    text = "erste\r\nzwei\rdrei\nhöher" * 50_000
    for folder in (url, str(tmp_path)):
        files.write_text(f"{folder}/a", text)
    with storage.open(f"{url}/a", "rb") as file, open(tmp_path / "a", "rb") as local:
        assert list(file) == list(local)
        for position in (5, 900_000, 3):
            assert file.seek(position) == local.seek(position)
            assert file.read(20) == local.read(20)
        assert file.seek(-3, io.SEEK_END) == local.seek(-3, io.SEEK_END)
        assert file.readline() == local.readline()
    with files.replacing(f"{url}/b.npz") as temporary:
        np.savez(temporary, c=np.arange(5))
    with storage.open(f"{url}/b.npz", "rb") as file, np.load(file) as arrays:
        assert arrays["c"].tolist() == [0, 1, 2, 3, 4]
    copy = storage.download(f"{url}/a", str(tmp_path))
    assert os.path.getsize(copy) == storage.getsize(f"{url}/a")
    with pytest.raises(FileNotFoundError) as error:
        storage.open(f"{url}/absent")
    assert error.value.filename == f"{url}/absent"


def test_a_failed_write_keeps_what_was_there(url, monkeypatch):
    for number in (1, 2):
        files.write_json(f"{url}/a.json", {"b": number})

    def fail(*arguments, **options):
        raise tf.errors.ResourceExhaustedError(None, None, "the quota is used up")

    monkeypatch.setattr(tf.io.gfile, "rename", fail)
    with rejects(f"{url}/a.json"):
        files.write_text(f"{url}/a.json", "other")
    assert {name: json.loads(text) for name, text in content(url).items()} == {"a.json": {"b": 2}}


def test_the_marker_of_a_folder_comes_last(url, monkeypatch):
    upload, uploaded = storage.upload, []

    def noting(local, path):
        if fails and path.endswith("config.json"):
            raise OSError(errno.ENOSPC, "the quota is used up", path)
        uploaded.append(path)
        upload(local, path)

    def make():
        with files.new_folder(f"{url}/new") as folder:
            os.mkdir(f"{folder}/z")
            for name in ("config.json", "a", "z/config.json"):
                files.write_text(f"{folder}/{name}", name)

    monkeypatch.setattr(storage, "upload", noting)
    fails = True
    with pytest.raises(InputError):
        make()
    assert len(uploaded) == 1
    assert content(url) == {}
    uploaded.clear()
    fails = False
    make()
    assert uploaded[-1] == f"{url}/new/config.json"
    assert content(f"{url}/new") == {n: n for n in ("config.json", "a", "z/config.json")}
    with pytest.raises(InputError):
        make()


def test_moving_a_folder_can_be_resumed(url, monkeypatch):
    storage.makedirs(f"{url}/old/c")
    for name in ("a", "b", "c/d"):
        files.write_text(f"{url}/old/{name}", name)
    move, moved = storage.move_file, []

    def stopping(source, target):
        if len(moved) == 2:
            moved.append(None)
            raise KeyboardInterrupt
        moved.append(target)
        move(source, target)

    monkeypatch.setattr(storage, "move_file", stopping)
    with pytest.raises(KeyboardInterrupt):
        files.move_folder(f"{url}/old", f"{url}/new")
    files.move_folder(f"{url}/old", f"{url}/new")
    files.move_folder(f"{url}/old", f"{url}/new")  # as when the manifest was not written
    assert content(url) == {f"new/{name}": name for name in ("a", "b", "c/d")}
