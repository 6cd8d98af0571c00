"""The cache gives back what was encoded under the same key, and never anything else."""

import os

import numpy as np

from finetune import cache
from finetune.encoded import Encoded

KEY = {"examples": "ab" * 64, "labels": ["no", "yes"], "max_seq_length": 128}


def encoded_of(value=0):
    return Encoded(
        row_splits=np.array([0, 2, 5]),
        tokens={"input_ids": np.arange(5, dtype=np.int32) + value},
        sequences={"example": np.array([0, 1], np.int32), "label": np.array([0.5, 1], np.float32)},
        truncated=3,
    )


class Encode:
    """Counts its calls and gives something else each time."""

    def __init__(self):
        self.calls = 0

    def __call__(self):
        self.calls += 1
        return encoded_of(self.calls)


def assert_equal(a, b):
    np.testing.assert_equal(vars(a), vars(b))
    for mine, other in ((a.tokens, b.tokens), (a.sequences, b.sequences)):
        assert [column.dtype for column in mine.values()] == [x.dtype for x in other.values()]


def test_an_equal_key_is_read_and_not_encoded(tmp_path):
    encode = Encode()
    first = cache.load_or_encode(str(tmp_path / "new"), dict(KEY), encode)
    reordered = dict(reversed(KEY.items()))
    second = cache.load_or_encode(str(tmp_path / "new"), reordered, encode)
    assert encode.calls == 1
    assert_equal(first, second)
    assert len(os.listdir(tmp_path / "new")) == 1  # no temporary file is left


def test_every_part_of_the_key_counts(tmp_path, monkeypatch):
    encode = Encode()
    cache.load_or_encode(str(tmp_path), KEY, encode)
    changes = [{name: "other"} for name in KEY] + [{"another": 1}]
    for number, change in enumerate(changes, 2):
        result = cache.load_or_encode(str(tmp_path), {**KEY, **change}, encode)
        assert_equal(result, encoded_of(number))
    for name, other in (("FORMAT_VERSION", -1), ("package_version", lambda package: "other")):
        with monkeypatch.context() as patch:
            patch.setattr(cache, name, other)
            result = cache.load_or_encode(str(tmp_path), KEY, encode)
        assert_equal(result, encoded_of(encode.calls))
    assert_equal(cache.load_or_encode(str(tmp_path), KEY, encode), encoded_of(1))
    assert encode.calls == 1 + len(changes) + 2


def test_damage_anywhere_in_the_file_is_noticed(tmp_path):
    encode = Encode()
    cache.load_or_encode(str(tmp_path), KEY, encode)
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    random = np.random.default_rng(0)
    damaged = [b"", b"not a zip file", whole[: len(whole) // 2], whole[:-1]]
    for place in random.integers(0, len(whole), 150):
        flipped = bytearray(whole)
        flipped[place] ^= 1 << random.integers(8)
        damaged.append(bytes(flipped))
    for content in damaged:
        path.write_bytes(content)
        calls = encode.calls
        result = cache.load_or_encode(str(tmp_path), KEY, encode)
        # Some bits of a zip file, such as dates, mean nothing.
        assert_equal(result, encoded_of(encode.calls if encode.calls > calls else 1))
        path.write_bytes(whole)
    assert encode.calls > 80


def test_a_file_of_another_key_or_of_objects_is_not_trusted(tmp_path):
    encode, short = Encode(), {**KEY, "max_seq_length": 64}
    cache.load_or_encode(str(tmp_path), KEY, encode)
    (other,) = tmp_path.iterdir()
    cache.load_or_encode(str(tmp_path), short, encode)
    (path,) = set(tmp_path.iterdir()) - {other}
    good = dict(np.load(path))
    path.write_bytes(other.read_bytes())
    assert_equal(cache.load_or_encode(str(tmp_path), short, encode), encoded_of(3))
    with open(path, "wb") as file:
        np.savez(file, **{**good, "row_splits": np.array([0, 2, 5], object)})
    assert_equal(cache.load_or_encode(str(tmp_path), short, encode), encoded_of(4))


def test_what_cannot_be_written_is_no_obstacle_and_leaves_nothing(tmp_path, monkeypatch):
    file = tmp_path / "a_file"
    file.write_text("not a folder")
    for folder in (file, file / "below"):
        assert_equal(cache.load_or_encode(str(folder), KEY, Encode()), encoded_of(1))
    assert file.read_text() == "not a folder"

    def full_disk(file, **arrays):
        file.write(b"half of")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full_disk)
    assert_equal(cache.load_or_encode(str(tmp_path), KEY, Encode()), encoded_of(1))
    assert list(tmp_path.iterdir()) == [file]
