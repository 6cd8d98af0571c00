"""One shard of a build: units of a corpus -> one training and one held-out record file.

The result does not depend on the process that builds it, nor on the number of processes.
"""

from __future__ import annotations

import collections
import contextlib
import hashlib
import heapq
import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from convbert.common import storage
from convbert.data import records
from convbert.data.build_options import BuildSettings
from convbert.data.examples import OF_LAYOUTS
from convbert.data.input_pipeline import SPLITS
from convbert.data.readers.base import Corpus, Document, Unit
from convbert.data.tokenization import Tokenizer, batches

DIGEST_BYTES = 64 << 10


class DealtUnit(NamedTuple):
    """A corpus unit assigned to a shard."""

    number: int  # index in the corpus
    corpus: Corpus
    unit: Unit
    side: str | None = None  # the split of all its documents; None: see `is_heldout`


def is_heldout(document: Document, heldout_fraction: float, seed: int) -> bool:
    """Returns True if a document is held out, depending only on its text and the seed.

    Copies of a document are in the same split, wherever they are in the corpus.
    """
    text = "\n".join(document.lines).encode()
    key = (seed % 2**64).to_bytes(8, "little")
    digest = hashlib.blake2b(text, digest_size=8, key=key).digest()
    return int.from_bytes(digest, "little") < heldout_fraction * 2**64


def split_of(document: Document, settings: BuildSettings) -> str:
    """Returns the split of a whole document."""
    heldout = is_heldout(document, settings.heldout_fraction, settings.seed)
    return "heldout" if heldout else "train"


def build_shard(
    index: int,
    units: Sequence[DealtUnit],
    tokenizer: Tokenizer,
    settings: BuildSettings,
    folder: str,
) -> dict[str, Any]:
    """Builds the record files of one shard in the existing split folders of `folder`.

    Returns `splits`: `Layout.counts`, `problems`: reader's counts, `files`: records and bytes.
    """
    layout = OF_LAYOUTS[settings.example_layout](settings, tokenizer)
    problems: collections.Counter = collections.Counter()
    for number, corpus, unit, side in units:
        layout.begin_unit(number)
        documents = corpus.documents(unit, problems)
        for batch in batches(documents, lambda document: document.characters):
            layout.add([(side or split_of(document, settings), document) for document in batch])

    files = {}
    for number, split in enumerate(settings.splits):
        # ELECTRA's file names.
        file = f"pretrain_data.tfrecord-{index:05d}-of-{settings.num_shards:05d}"
        name = f"{SPLITS[split]}/{file}"
        examples = layout.arrays(split, [settings.seed % 2**64, 2 * index + number])
        encoded = (records.encode_examples(*arrays) for arrays in examples)
        count, size = records.write_record_file(os.path.join(folder, name), encoded)
        files[name] = {"records": count, "bytes": size}
    splits = {split: dict(sorted(counts.items())) for split, counts in layout.counts.items()}
    return {"splits": splits, "problems": dict(sorted(problems.items())), "files": files}


def sample_training_lines(
    corpus: Corpus, settings: BuildSettings, max_characters: int
) -> Iterator[str]:
    """Yields lines of training documents, about `max_characters`, to learn a vocabulary from.

    No unit contributes much more than its share of the bytes, or 1 Mi. The seed determines the
    order of units.
    """
    key = np.array([settings.seed % 2**64, 2**63], np.uint64)
    keys = np.random.Philox(key=key).random_raw(len(corpus.units))
    sizes, taken = [unit_bytes(unit) for unit in corpus.units], 0
    whole = max(1, sum(sizes))
    for i in np.argsort(keys, kind="stable").tolist():
        unit_end = taken + max(max_characters * sizes[i] // whole, 1 << 20)
        for document in corpus.documents(corpus.units[i], collections.Counter()):
            if split_of(document, settings) == "train":
                yield from document.lines
                taken += document.characters
            if taken >= unit_end:
                break
        if taken >= max_characters:
            return


def deal_units(
    corpus: Corpus, num_shards: int, heldout_corpus: Corpus | None = None
) -> list[list[DealtUnit]]:
    """Assigns units to shards so that all shards have about the same number of bytes.

    Assigns the largest units first, each to the smallest shard. The units of a held-out corpus are
    assigned separately in the same way.
    """
    dealt: list[list[DealtUnit]] = [[] for _ in range(num_shards)]
    for source, side in ((corpus, None), (heldout_corpus, "heldout")):
        if source is None:
            continue
        sizes = [unit_bytes(unit) for unit in source.units]
        loads = [(0, shard) for shard in range(num_shards)]  # a heap
        own: list[list[int]] = [[] for _ in range(num_shards)]
        for number in sorted(range(len(sizes)), key=lambda number: (-sizes[number], number)):
            load, shard = loads[0]
            own[shard].append(number)
            heapq.heapreplace(loads, (load + max(1, sizes[number]), shard))
        for shard, numbers in enumerate(own):
            dealt[shard] += [DealtUnit(n, source, source.units[n], side) for n in sorted(numbers)]
    return dealt


def unit_bytes(unit: Unit) -> int:
    """Returns the approximate size of a unit on disk, in bytes."""
    return sum(end - start for _, start, end in _byte_ranges(unit))


def unit_digest(unit: Unit) -> str:
    """Returns the SHA-256 of the first and last `DIGEST_BYTES` of a unit's concatenated files.

    It detects a changed corpus without reading all of it, except for a change in the middle of a
    large unit that keeps its size.
    """
    ranges, digest = _byte_ranges(unit), hashlib.sha256()
    for backwards in (False, True):
        left = DIGEST_BYTES
        for path, start, end in reversed(ranges) if backwards else ranges:
            size = min(left, end - start)
            left -= size
            # The reader rejects or skips a file that cannot be read.
            with contextlib.suppress(OSError), storage.open(path, "rb") as file:
                file.seek(end - size if backwards else start)
                digest.update(file.read(size))
            if not left:
                break
    return digest.hexdigest()


def _byte_ranges(unit: Unit) -> list[tuple[str, int, int]]:
    """Returns (path, first byte, one past the last) of each file of a unit."""
    return [
        (path, unit.start, storage.getsize(path) if unit.end < 0 else unit.end)
        for path in [os.path.join(unit.path, name) for name in unit.members] or [unit.path]
    ]
