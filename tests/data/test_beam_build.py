"""The builder as an Apache Beam pipeline gives the files of the local builder, byte for byte.

Slow: Beam is not among the requirements of the other tests; `make test-beam` installs it.
"""

from __future__ import annotations

import functools
import gzip
import pathlib
from dataclasses import replace

import pytest

from convbert.common.errors import InputError
from convbert.data import build
from tests.build_support import content

pytest.importorskip("apache_beam")
pytestmark = pytest.mark.slow

from convbert.data import beam_build  # noqa: E402  needs Beam


def built_by_beam(options: build.BuildOptions, folder: pathlib.Path, *arguments: str) -> dict:
    """The files that a pipeline builds."""
    build_shards = functools.partial(beam_build.build_shards, arguments=arguments)
    build.build(replace(options, output_dir=str(folder), num_processes=None), build_shards)
    return content(folder)


@pytest.mark.parametrize(
    "arguments", [(), ("--direct_num_workers=2", "--direct_running_mode=multi_processing")]
)
def test_the_local_builders_files(given, built, tmp_path, arguments):
    assert built_by_beam(given, tmp_path / "beam", *arguments) == content(built)


def test_bad_text_is_one_sentence_and_finished_shards_are_kept(given, tmp_path):
    (tmp_path / "corpus").mkdir()
    for path in pathlib.Path(given.corpus).iterdir():
        (tmp_path / "corpus" / path.name).write_bytes(path.read_bytes())
    (tmp_path / "corpus" / "6.gz").write_bytes(gzip.compress(b"a text " * 100)[:-9])
    options = replace(given, corpus=str(tmp_path / "corpus"))
    with pytest.raises(InputError, match=r"6\.gz"):
        built_by_beam(options, tmp_path / "data")
    unfinished = tmp_path / "data" / build.UNFINISHED
    assert len(list(unfinished.glob("shard-*.json"))) == given.num_shards - 1
    assert not (tmp_path / "data" / "manifest.json").exists()


def test_workers_that_write_elsewhere_are_told_from_a_finished_build(given, tmp_path, monkeypatch):
    monkeypatch.setattr(beam_build.BuildShard, "process", lambda self, index: iter(()))
    with pytest.raises(InputError):
        built_by_beam(given, tmp_path / "data")
