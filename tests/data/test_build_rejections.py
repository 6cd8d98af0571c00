"""The builder given bad input: one clear sentence, and nothing half-written."""

from __future__ import annotations

import contextlib
import os
import random
import resource
from dataclasses import replace

import pytest

from data import build
from errors import InputError
from tests import command_support
from tests.build_support import content, stopped_after


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
    with full_disk(size), pytest.raises(InputError, match=r"cannot be written|must be writable"):
        build.build(options)
    assert not [name for name in content(folder) if "tfrecord" in name or "tmp" in name]
    assert not (folder / "manifest.json").exists()
    build.build(options)  # with room again
    assert content(folder) == content(built)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"corpus": "absent"}, "absent"),
        ({"corpus": "empty"}, "empty"),
        ({"corpus": "blank"}, "blank"),
        ({"corpus": "one.txt", "heldout_fraction": 0.9999}, "corpus"),  # nothing to train on
        ({"vocab": "vocab.txt"}, r"vocab\.txt"),
        ({"output_dir": "one.txt/data"}, r"one\.txt/data"),
        ({"output_dir": "/proc/data"}, "/proc/data"),
        ({"max_seq_length": 4}, "`max_seq_length`"),
        ({"heldout_fraction": 1.0}, "`heldout_fraction`"),
        ({"num_shards": 0}, "`num_shards`"),
        ({"num_processes": 0}, "`num_processes`"),
        ({"max_undecodable_share": -1.0}, "`max_undecodable_share`"),
    ],
)
def test_bad_input_is_named_and_leaves_nothing(given, tmp_path, changes, named):
    (tmp_path / "empty").mkdir()
    (tmp_path / "blank").mkdir()
    (tmp_path / "blank" / "a.txt").write_text("\n\n  \n")
    (tmp_path / "one.txt").write_text("one document only")
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\na\n")
    options = {"output_dir": "data", **changes}
    for name in {"corpus", "vocab", "output_dir"} & set(options):
        options[name] = str(tmp_path / options[name])  # but for absolute paths
    with pytest.raises(InputError, match=named):
        build.build(replace(given, **options))
    left = [path for path in (tmp_path / "data").rglob("*") if path.is_file()]
    assert left == []


def test_undecodable_bytes(given, tmp_path):
    (tmp_path / "corpus.txt").write_bytes(b"good text here\nbad \xff\xfe byte\n\nthe end\n")
    options = replace(
        given,
        corpus=str(tmp_path / "corpus.txt"),
        output_dir=str(tmp_path / "data"),
        heldout_fraction=0,
    )
    with pytest.raises(InputError, match=r"corpus\.txt must be UTF-8"):
        build.build(replace(options, strict=True))
    assert not (tmp_path / "data" / "pretrain_tfrecords").exists()
    assert build.build(options)["problems"] == {"undecodable_bytes": 2}


@pytest.mark.parametrize("finished", [False, True])
def test_strict_rejects_what_was_built_without(given, tmp_path, monkeypatch, finished):
    (tmp_path / "corpus").mkdir()
    for i in range(3):
        text = b"good text here\n\nbad \xff\xfe byte\n\nthe end of it\n"
        (tmp_path / "corpus" / f"{i}.txt").write_bytes(text)
    options = replace(
        given,
        corpus=str(tmp_path / "corpus"),
        output_dir=str(tmp_path / "data"),
        heldout_fraction=0,
    )
    if not finished:
        stopped_after(1, monkeypatch)
    with contextlib.nullcontext() if finished else pytest.raises(KeyboardInterrupt):
        build.build(options)
    monkeypatch.undo()
    count = 6 if finished else 2
    with pytest.raises(InputError, match=f"without --strict, with {count} bytes replaced"):
        build.build(replace(options, strict=True))
    build.build(options)
    (tmp_path / "corpus2").mkdir()
    (tmp_path / "corpus2" / "a.txt").write_text("all is well here")
    clean = replace(options, corpus=str(tmp_path / "corpus2"), output_dir=str(tmp_path / "clean"))
    build.build(clean)
    build.build(replace(clean, strict=True))


def test_what_is_hardly_text_is_rejected_unless_told(given, tmp_path):
    """300 kB of random bytes; and 5 % of undecodable bytes, as of a Latin-1 file among others."""
    (tmp_path / "noise.bin").write_bytes(random.Random(0).randbytes(300_000))
    noise = replace(given, corpus=str(tmp_path / "noise.bin"), output_dir=str(tmp_path / "noise"))
    with pytest.raises(InputError, match=r"noise\.bin .*--max_undecodable_share.*Received: "):
        build.build(noise)
    assert not (tmp_path / "noise" / "manifest.json").exists()
    found = build.build(replace(noise, max_undecodable_share=1.0))
    assert found["problems"]["undecodable_bytes"] > 100_000
    (tmp_path / "mixed.txt").write_bytes(b"a\xe9 an ordinary line \n\n" * 100)
    mixed = replace(given, corpus=str(tmp_path / "mixed.txt"), output_dir=str(tmp_path / "mixed"))
    assert build.build(mixed)["problems"] == {"undecodable_bytes": 100}


@pytest.mark.parametrize(
    "corpus_format", [pytest.param("text", marks=pytest.mark.slow), "text_per_file"]
)
def test_a_file_that_is_hardly_text_is_rejected_among_good_ones(
    given, tmp_path, capsys, corpus_format
):
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    (corpus / "good.txt").write_text("an ordinary line of text\n\n" * 40_000)
    (corpus / "noise.bin").write_bytes(random.Random(0).randbytes(64_000))
    options = replace(given, corpus=str(corpus), output_dir=str(tmp_path / "data"))
    options = replace(options, corpus_format=corpus_format)
    with pytest.raises(InputError, match=r"noise\.bin .*--max_undecodable_share.*Received: "):
        build.build(options)
    assert "problems" in build.build(replace(options, max_undecodable_share=1.0))
    (corpus / "noise.bin").write_bytes(random.Random(0).randbytes(10_000))  # too small to judge
    capsys.readouterr()
    build.build(replace(options, output_dir=str(tmp_path / "small")))
    (warning,) = [line for line in capsys.readouterr().err.splitlines() if "warning: " in line]
    assert str(corpus / "noise.bin") in warning


def test_the_command_ends_with_one_sentence_and_status_1(tmp_path):
    arguments = ["--corpus", str(tmp_path / "absent"), "--output_dir", str(tmp_path / "data")]
    ended = command_support.run("build_pretraining_data.py", *arguments)
    assert ended.returncode == 1
    assert ended.stdout == ""
    (line,) = ended.stderr.strip().splitlines()
    assert line.startswith("error: ")
    assert "absent" in line
    assert os.listdir(tmp_path) == []
