"""The builder on small corpora: what it writes, and that bad input leaves nothing half-written."""

import gzip
import os
import random
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from convbert.common.errors import InputError
from convbert.data import build, input_pipeline, shards
from convbert.data.corpus import open_corpus
from convbert.data.manifest import read_manifest
from convbert.data.readers.base import Document
from convbert.data.tokenization import Tokenizer
from convbert.data.vocabulary import Vocabulary
from convbert.pretrain.load import data_vocabulary
from tests.build_support import VOCABULARY, content, read_split, settings
from tests.finetune.kinds_support import rejects

PACKAGES = {"corpus_format": "installed_documentation"}


def pieces_of(folder: Path, split: str) -> list[tuple[int, ...]]:
    specials = [VOCABULARY.cls_id, VOCABULARY.sep_id, VOCABULARY.pad_id]
    return [
        tuple(ids[~np.isin(ids, specials)].tolist())
        for ids in read_split(folder, split)["input_ids"]
    ]


def split_documents(given: build.BuildOptions) -> dict[str, list[list[str]]]:
    found = {"train": [], "heldout": []}
    for path in Path(given.corpus).iterdir():
        for text in path.read_text().split("\n\n"):
            lines = text.split("\n")
            heldout = shards.is_heldout(Document("", lines), given.heldout_fraction, given.seed)
            found["heldout" if heldout else "train"].append(lines)
    return found


def test_layout_and_manifest(built):
    names = {f"pretrain_data.tfrecord-{i:05d}-of-00003" for i in range(3)}
    assert set(os.listdir(built)) == {
        "vocab.txt", "tokenizer_config.json", "manifest.json",
        "pretrain_tfrecords", "heldout_tfrecords",
    }  # fmt: skip
    assert set(os.listdir(built / "pretrain_tfrecords")) == names
    assert set(os.listdir(built / "heldout_tfrecords")) == names
    found = read_manifest(str(built))
    assert found["vocabulary_digest"] == VOCABULARY.digest == Vocabulary.load(built).digest
    for split in ("train", "heldout"):
        counts = found["splits"][split]
        listed = input_pipeline.count_records(input_pipeline.record_files(str(built), split))
        pieces, mask = pieces_of(built, split), read_split(built, split)["input_mask"]
        assert counts["examples"] == sum(listed.values()) == len(pieces)
        assert counts["tokens"] == counts["tokens_kept"] == sum(map(len, pieces))
        assert counts["padding_share"] == pytest.approx(1 - mask.mean())
    assert found["splits"]["train"]["documents"] + found["splits"]["heldout"]["documents"] == 120
    assert 10 < found["splits"]["heldout"]["documents"] < 40  # 0.2 of 120


def test_every_piece_of_text_is_there_once_on_its_side(built, given):
    tokenizer = Tokenizer(VOCABULARY)
    for split, documents in split_documents(given).items():
        pieces = [*pieces_of(built, split)]
        texts = [tuple(tokenizer.tokenize(lines)[0]) for lines in documents]
        assert sum(map(len, pieces)) == sum(map(len, texts))
        for rest in texts:
            while rest:  # the letters are random: the longest example that fits is the right one
                fitting = [piece for piece in pieces if rest[: len(piece)] == piece]
                assert fitting
                rest = rest[len(max(fitting, key=len)) :]


@pytest.mark.slow  # needs ten seconds: two more processes
def test_same_bytes_from_two_processes(built, given, tmp_path):
    build.build(replace(given, output_dir=str(tmp_path / "data"), num_processes=2))
    assert content(tmp_path / "data") == content(built)


def test_the_heldout_split_looks_at_the_text_alone():
    rng = random.Random(0)
    texts = [[str(rng.random()), "more"] for _ in range(4000)]
    heldout = [shards.is_heldout(Document(f"a{i}", t), 0.1, 3) for i, t in enumerate(texts)]
    assert heldout == [shards.is_heldout(Document("b", t), 0.1, 3) for t in texts]
    assert heldout != [shards.is_heldout(Document("b", t), 0.1, 4) for t in texts]
    assert 0.08 < np.mean(heldout) < 0.12
    # A larger share takes more documents, never others.
    more = [shards.is_heldout(Document("", t), 0.3, 3) for t in texts]
    assert all(large or not few for few, large in zip(heldout, more))
    assert not any(shards.is_heldout(Document("", t), 0.0, 3) for t in texts)


def test_no_more_shards_than_parts_and_nothing_held_out(given, tmp_path):
    (tmp_path / "corpus.txt").write_text("one document\n")
    options = replace(given, corpus=str(tmp_path / "corpus.txt"), heldout_fraction=0.0)
    found = build.build(replace(options, output_dir=str(tmp_path / "data"), num_shards=3))
    assert len(os.listdir(tmp_path / "data" / "pretrain_tfrecords")) == 1
    assert list(found["splits"]) == ["train"]
    assert not (tmp_path / "data" / "heldout_tfrecords").exists()


def test_an_edited_corpus_of_the_same_size_is_another(given, tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "DIGEST_BYTES", 100)  # of the beginning and the end of a unit
    shutil.copytree(given.corpus, tmp_path / "corpus")
    options = replace(given, corpus=str(tmp_path / "corpus"), output_dir=str(tmp_path / "data"))
    build.build(options)
    for name, place in (("0.txt", 50), ("9.txt", -50)):
        edited = tmp_path / "corpus" / name
        os.utime(edited, (1, 1))
        build.build(options)  # when it was touched does not matter
        text = edited.read_bytes()
        changed = bytearray(text)
        changed[place] ^= 1
        edited.write_bytes(changed)
        with pytest.raises(InputError):
            build.build(options)
        edited.write_bytes(text)


@pytest.mark.parametrize(
    ("whole", "file"),
    [
        (True, "heldout_tfrecords/pretrain_data.tfrecord-00001-of-00003"),
        (False, "pretrain_tfrecords/a"),
        (False, "tokenizer_config.json"),
    ],
)
def test_folders_that_are_not_as_they_should_be(built, given, tmp_path, monkeypatch, whole, file):
    folder = tmp_path / "data"
    if whole:
        shutil.copytree(built, folder)
    (folder / file).parent.mkdir(parents=True, exist_ok=True)
    (folder / file).write_bytes(b"")
    before = content(folder)
    monkeypatch.chdir(folder)
    with rejects(file.split("/")[0]):
        build.build(replace(given, output_dir=".", vocab=given.vocab if whole else None))
    assert content(folder) == before


def test_the_vocabulary_is_learned_from_training_text_only(given, tmp_path, monkeypatch):
    seen = []
    learn = lambda texts, *_, **__: seen.extend(texts) or VOCABULARY  # noqa: E731
    monkeypatch.setattr(build, "learn_vocabulary", learn)
    options = replace(given, output_dir=str(tmp_path / "data"), vocab=None, vocab_size=120)
    found = build.build(options)
    sides = split_documents(given).values()
    train, heldout = ({line for lines in side for line in lines} for side in sides)
    assert set(seen) == train
    assert not set(seen) & heldout
    assert found["settings"]["vocabulary"]["learned"]
    assert Vocabulary.load(tmp_path / "data").digest == VOCABULARY.digest


def test_a_large_file_among_small_ones_is_sampled_whole(given, tmp_path):
    """And the sample is bounded. A file's share follows its bytes; compressed ones are whole."""
    corpus = open_corpus(given.corpus, "text")
    everything = list(shards.sample_training_lines(corpus, settings(0.2), 1 << 30))
    few = list(shards.sample_training_lines(corpus, settings(0.2), 3000))
    assert 0 < len(few) < len(everything)
    assert few == everything[: len(few)]
    lines = [f"line {number} of a large file" for number in range(60_000)]
    (tmp_path / "large.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    for number in range(99):
        (tmp_path / f"small-{number}").write_text(f"text {number}")
    corpus = open_corpus(str(tmp_path), "text")
    sample = list(shards.sample_training_lines(corpus, settings(0.0), 2 << 20))
    assert len(sample) == 60_099


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"corpus": "absent"}, "absent"),
        ({"corpus": "one.txt", "heldout_fraction": 0.9999}, "corpus"),  # nothing to train on
        ({"output_dir": "one.txt/data"}, "one.txt/data"),
        ({"output_dir": "/proc/data"}, "/proc/data"),
        ({"max_seq_length": 4}, "`max_seq_length`"),
        ({"corpus_format": "language_model", "example_layout": "segments"}, "`example_layout`"),
        ({"tokenizer": "word"}, "`tokenizer`"),
        ({"tokenizer": "words", "strip_accents": True}, "`strip_accents`"),
        ({"heldout_corpus": "absent"}, "absent"),
        ({"corpus": ""}, "--output_dir"),  # the folder of the output
        ({"corpus": "one.txt", "heldout_corpus": "one.txt"}, "--heldout_corpus"),
        ({"corpus": "part", "heldout_corpus": ""}, "--heldout_corpus"),  # which holds the corpus
        (PACKAGES | {"corpus": "a", "heldout_corpus": "a"}, "--heldout_corpus"),
        ({"heldout_corpus": "held", "output_dir": "held/data"}, "--output_dir"),
        ({"vocab_size": 100}, "--vocab_size"),  # of another size than the given vocabulary
    ],
)
def test_bad_input_is_named_and_leaves_nothing(given, tmp_path, changes, named):
    (tmp_path / "one.txt").write_text("one document only")
    options = {"output_dir": "data", **changes}
    for name in {"corpus", "heldout_corpus", "output_dir"} & set(options):
        options[name] = str(tmp_path / options[name])  # but for absolute paths
    with pytest.raises((InputError, OSError)) as error:
        build.build(replace(given, **options))
    assert named in str(error.value)
    left = [path for path in (tmp_path / "data").rglob("*") if path.is_file()]
    assert left == []


def test_a_vocabulary_with_capitals(given, tmp_path, capsys):
    """Without a record of its casing; BERT's cased ones come so."""
    tokens = [*Vocabulary.load(given.vocab).tokens, "Haus"]
    (tmp_path / "vocab.txt").write_text("\n".join(tokens) + "\n")
    for name, lower, warned in (("quiet", False, False), ("warned", None, True)):
        options = {"vocab": str(tmp_path / "vocab.txt"), "do_lower_case": lower}
        build.build(replace(given, output_dir=str(tmp_path / name), **options))
        assert ("capitals" in capsys.readouterr().err) == warned
    options = {"vocab": given.vocab, "do_lower_case": False, "output_dir": f"{tmp_path}/lower"}
    build.build(replace(given, **options))
    assert "capitals" in capsys.readouterr().err
    (tmp_path / "warned/tokenizer_config.json").unlink()  # as in folders of ELECTRA
    data_vocabulary(str(tmp_path / "warned"))
    assert "capitals" in capsys.readouterr().err


def test_bytes_that_are_not_text(given, tmp_path, capsys):
    """A few are replaced; a file of random bytes among others is rejected."""
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    (corpus / "good.txt").write_text("an ordinary line of text\n\n" * 4_000)
    (corpus / "bad.txt").write_bytes(b"bad \xff\xfe byte\n\nthe end\n")
    options = replace(given, corpus=str(corpus))
    found = build.build(replace(options, output_dir=str(tmp_path / "few")))
    assert found["problems"] == {"undecodable_bytes": 2}
    assert "2 bytes" in capsys.readouterr().err
    (corpus / "noise.bin").write_bytes(random.Random(0).randbytes(60_000))
    with pytest.raises(InputError):
        build.build(replace(options, output_dir=str(tmp_path / "many")))
    assert not (tmp_path / "many").exists()
    for path in corpus.iterdir():
        path.unlink()
    (corpus / "german.txt").write_text("das Haus für die Mädchen\n\n" * 99, encoding="latin-1")
    with pytest.raises(InputError, match="UTF-8"):
        build.build(replace(options, output_dir=str(tmp_path / "german")))
