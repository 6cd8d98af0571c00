"""The builder given bad input: one clear sentence, and nothing half-written."""

from __future__ import annotations

import contextlib
import random
import resource
from dataclasses import replace

import pytest

from data import build
from errors import InputError
from tests.build_support import content


@contextlib.contextmanager
def full_disk(size: int):
    """Lets no file of this process grow beyond `size` bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("size", [100, 250, 4096])
def test_a_full_disk(built, given, tmp_path, size):
    folder = tmp_path / "data"
    options = replace(given, output_dir=str(folder))
    with full_disk(size), pytest.raises(InputError):
        build.build(options)
    assert not [name for name in content(folder) if "tfrecord" in name or "tmp" in name]
    assert not (folder / "manifest.json").exists()
    build.build(options)  # with room again
    assert content(folder) == content(built)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"corpus": "absent"}, "absent"),
        ({"corpus": "one.txt", "heldout_fraction": 0.9999}, "corpus"),  # nothing to train on
        ({"output_dir": "one.txt/data"}, "one.txt/data"),
        ({"output_dir": "/proc/data"}, "/proc/data"),
        ({"max_seq_length": 4}, "`max_seq_length`"),
        ({"heldout_fraction": 1.0}, "`heldout_fraction`"),
        ({"num_shards": 0}, "`num_shards`"),
        ({"num_processes": 0}, "`num_processes`"),
    ],
)
def test_bad_input_is_named_and_leaves_nothing(given, tmp_path, changes, named):
    (tmp_path / "one.txt").write_text("one document only")
    options = {"output_dir": "data", **changes}
    for name in {"corpus", "output_dir"} & set(options):
        options[name] = str(tmp_path / options[name])  # but for absolute paths
    with pytest.raises((InputError, OSError)) as error:
        build.build(replace(given, **options))
    assert named in str(error.value)
    left = [path for path in (tmp_path / "data").rglob("*") if path.is_file()]
    assert left == []


@pytest.mark.parametrize("corpus_format", ["text", "text_per_file"])
def test_bytes_that_are_not_text(given, tmp_path, capsys, corpus_format):
    """A few are replaced; a file of random bytes among others is rejected."""
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    (corpus / "good.txt").write_text("an ordinary line of text\n\n" * 4_000)
    (corpus / "bad.txt").write_bytes(b"bad \xff\xfe byte\n\nthe end\n")
    options = replace(given, corpus=str(corpus), corpus_format=corpus_format)
    found = build.build(replace(options, output_dir=str(tmp_path / "few")))
    assert found["problems"] == {"undecodable_bytes": 2}
    assert "2 bytes" in capsys.readouterr().err
    (corpus / "noise.bin").write_bytes(random.Random(0).randbytes(60_000))
    with pytest.raises(InputError):
        build.build(replace(options, output_dir=str(tmp_path / "many")))
    assert not list((tmp_path / "many").iterdir())
