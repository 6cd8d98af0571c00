"""Builds that are stopped and resumed give the same bytes, and two do not work in one folder."""

import contextlib
import os
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from convbert.common.errors import InputError
from convbert.data import build, shards
from tests.build_support import content
from tests.command_support import Started


def test_a_stopped_build_goes_on_to_the_same_bytes(built, given, tmp_path, monkeypatch, capsys):
    """While it is at work, and only then, another one in its folder is rejected."""
    options = replace(given, output_dir=str(tmp_path / "data"))
    whole, calls = shards.build_shard, []

    def stopping(index, *arguments):
        calls.append(index)
        with pytest.raises(InputError):
            build.build(options)
        if index == 2:
            (tmp_path / "data/unfinished_build/pretrain_tfrecords/x.tmp-1").mkdir()
            raise KeyboardInterrupt
        return whole(index, *arguments)

    monkeypatch.setattr(shards, "build_shard", stopping)
    with pytest.raises(KeyboardInterrupt):
        build.build(options)
    assert not (tmp_path / "data/pretrain_tfrecords").exists()
    with pytest.raises(InputError):
        build.build(replace(options, seed=9))

    monkeypatch.setattr(shards, "build_shard", lambda i, *rest: calls.append(i) or whole(i, *rest))
    build.build(options)
    assert calls == [0, 1, 2, 2]
    assert "2 of 3 shards are there already" in capsys.readouterr().out
    assert content(tmp_path / "data") == content(built)


def stop(options, monkeypatch, owner, name, when=lambda *_: True):
    """Builds until this function of the builder is called with such arguments."""
    whole = getattr(owner, name)

    def stopping(*arguments):
        if when(*arguments):
            raise KeyboardInterrupt
        return whole(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, stopping)
        with pytest.raises(KeyboardInterrupt):
            build.build(options)


def test_a_build_stopped_while_files_took_their_places_goes_on(built, given, tmp_path, monkeypatch):
    options = replace(given, output_dir=str(tmp_path / "data"))
    last = lambda path, _: path.endswith("manifest.json")  # noqa: E731
    stop(options, monkeypatch, build.files, "write_json", last)
    monkeypatch.setattr(shards, "build_shard", None)  # nothing is built again
    build.build(options)
    assert content(tmp_path / "data") == content(built)


def test_shards_that_a_power_cut_emptied_are_built_again(given, built, tmp_path, monkeypatch):
    options = replace(given, output_dir=str(tmp_path / "data"))
    stop(options, monkeypatch, build, "_finish")
    first, second, _ = sorted((tmp_path / "data/unfinished_build/pretrain_tfrecords").iterdir())[:3]
    first.write_bytes(b"")
    second.unlink()
    (tmp_path / "data/unfinished_build/shard-00002.json").write_bytes(b"")
    build.build(options)
    assert content(tmp_path / "data") == content(built)


def test_a_complete_folder_is_left_alone(built, given, capsys):
    before = content(built)
    options = replace(given, output_dir=str(built))
    build.build(options)
    assert "is complete" in capsys.readouterr().out
    with pytest.raises(InputError):
        build.build(replace(options, max_seq_length=64))
    assert content(built) == before


@pytest.mark.slow  # needs a minute: four builds, three with processes that import TensorFlow
def test_a_signal_to_all_processes_of_a_build(given, tmp_path):
    """As `timeout` and schedulers send it: one message, nothing half-done, resumed to the bit."""

    def start(name):
        line = ["--corpus", tmp_path / "corpus", "--vocab", given.vocab, "--num_processes=2"]
        line += ["--max_seq_length=32", f"--output_dir={tmp_path / name}", "--num_shards=12"]
        code = "import runpy; runpy.run_path('build_pretraining_data.py', run_name='__main__')"
        return Started(code, *line, before=os.setsid)

    shutil.copytree(given.corpus, tmp_path / "corpus")
    for path in (tmp_path / "corpus").iterdir():
        path.write_text("\n\n".join([path.read_text()] * 400))
    whole, stopped = start("whole"), start("stopped")
    work = tmp_path / "stopped" / "unfinished_build"
    stopped.wait_until(lambda: list(work.glob("shard-*.json")))
    for number in (signal.SIGTERM, signal.SIGHUP):  # of a build, then of workers that start
        group = stopped.process.pid
        os.killpg(group, number)
        status, _, errors = stopped.ended()
        assert status == 128 + number, errors
        assert errors.count(f"stopped by {number.name}") == 1
        assert "error" not in errors
        assert not (tmp_path / "stopped" / ".lock").exists()
        deadline = time.monotonic() + 10
        while members(group):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        stopped = start("stopped")
        if number == signal.SIGTERM:
            stopped.wait_until(lambda pid=stopped.process.pid: len(members(pid)) >= 4)
    for started in (whole, stopped):
        status, _, errors = started.ended()
        assert status == 0, errors
    assert content(tmp_path / "stopped") == content(tmp_path / "whole")


def members(group: int) -> list[str]:
    """Numbers of the running processes of a process group."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            state, _, of_group = path.read_text(errors="replace").rpartition(")")[2].split()[:3]
            found += [path.parent.name] if of_group == str(group) and state not in "ZX" else []
    return found
