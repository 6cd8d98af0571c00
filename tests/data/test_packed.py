"""Packed rows hold the examples of unpacked ones, apart from each other, with little padding."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from convbert.data import build
from convbert.data.build_options import MAX_SEQUENCES, PACKING_GAP
from convbert.data.examples import pack
from convbert.data.manifest import read_manifest
from tests.build_support import read_split

S = 64


@pytest.fixture(scope="module")
def folders(given, tmp_path_factory):
    """The same documents as single examples and packed."""
    found = {}
    for layout in ("segments", "packed"):
        folder = tmp_path_factory.mktemp(layout) / "data"
        options = replace(given, example_layout=layout, max_seq_length=S, output_dir=str(folder))
        build.build(options)
        found[layout] = folder
    return found


def examples(rows) -> list[tuple]:
    """Ids and segments of every sequence, sorted."""
    numbers, found = rows.get("sequence_ids", rows["input_mask"]), []
    for ids, segments, row in zip(rows["input_ids"], rows["segment_ids"], numbers):
        for number in range(1, row.max() + 1):
            (where,) = np.nonzero(row == number)
            assert where[-1] - where[0] + 1 == len(where)
            found.append((ids[where].tolist(), segments[where].tolist()))
    return sorted(found)


def test_rows_hold_the_examples(folders):
    for split in ("train", "heldout"):
        rows = read_split(folders["packed"], split, S, packed=True)
        assert examples(rows) == examples(read_split(folders["segments"], split, S))
        np.testing.assert_array_equal(rows["input_mask"], rows["sequence_ids"] > 0)
        for row in rows["sequence_ids"]:
            starts, ends = (
                np.array([np.flatnonzero(row == n)[end] for n in range(1, row.max() + 1)])
                for end in (0, -1)
            )
            assert starts[0] == 0
            assert (starts[1:] - ends[:-1] - 1 == PACKING_GAP).all()


def test_counts(folders):
    of_segments, of_packed = (
        read_manifest(str(folders[name]))["splits"]["train"] for name in ("segments", "packed")
    )
    same = ("documents", "tokens", "tokens_kept", "unknown_tokens")
    assert [of_packed[n] for n in same] == [of_segments[n] for n in same]
    rows = read_split(folders["packed"], "train", S, packed=True)
    assert of_packed["examples"] == len(rows["input_ids"]) < of_segments["examples"]
    assert of_packed["padding"] == int((rows["input_mask"] == 0).sum())


@pytest.mark.parametrize("longest", [3, 20, 64])
def test_every_sequence_has_a_place_of_its_own(longest):
    sizes = np.random.default_rng(longest).integers(3, longest + 1, 3000)
    row, offset, number = pack(sizes, S).T
    taken = np.zeros([row.max() + 1, S + PACKING_GAP], int)
    for i, size in enumerate(sizes):
        assert offset[i] + size <= S
        taken[row[i], offset[i] : offset[i] + size + PACKING_GAP] += 1
    assert taken.max() == 1
    for r in range(row.max() + 1):
        assert sorted(number[row == r]) == list(range(1, 1 + (row == r).sum()))
    ideal = (sizes + PACKING_GAP).sum() / (S + PACKING_GAP)
    assert len(taken) < 1.1 * ideal + 1


def test_a_row_has_a_limit():
    number = pack(np.full(600, 3), 4096)[:, 2]
    assert number.max() == MAX_SEQUENCES
