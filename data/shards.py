"""What one process does: some units of a corpus -> one training and one held-out record file.

Nothing here depends on which process does it, nor on how many there are.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import hashlib
import heapq
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

import storage
from data import records
from data.corpus import Corpus, Document, Unit
from data.example_layouts import CLASSES
from data.input_pipeline import SPLITS
from data.readers.base import member_paths
from data.tokenization import Tokenizer, batches

DIGEST_BYTES = 64 << 10


@dataclasses.dataclass(frozen=True)
class ShardSettings:
    """What decides the bytes of the records, besides corpus and vocabulary.

    Attributes:
        max_seq_length: S.
        heldout_fraction: expected share of documents that are held out, in [0, 1).
        seed: of the examples, their order and the held-out split.
        num_shards: number of record files of each split.
        longest_whole: characters of the longest document that falls on one side as a whole; of a
            longer one, the end is held out. None divides none.
        layout: of examples; one of `data.build_options.LAYOUTS`.
        separated_lines: whether a contiguous layout has a separator behind each line.
        heldout_corpus: whether what is held out comes from a corpus of its own.
    """

    max_seq_length: int
    heldout_fraction: float
    seed: int
    num_shards: int
    longest_whole: int | None = None
    layout: str = "segments"
    separated_lines: bool = False
    heldout_corpus: bool = False

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that have files."""
        held_out = self.heldout_fraction or self.heldout_corpus
        return ("train", "heldout") if held_out else ("train",)


class DealtUnit(NamedTuple):
    """A unit that a shard is built of.

    Attributes:
        number: its index in the corpus.
        corpus: where it comes from.
        unit: what to read.
        side: the split that all of it belongs to; None: see `divide`.
    """

    number: int
    corpus: Corpus
    unit: Unit
    side: str | None = None


def is_heldout(document: Document, heldout_fraction: float, seed: int) -> bool:
    """Whether a document is held out: a function of its text and the seed alone.

    Copies of a document fall on the same side wherever they lie in the corpus.
    """
    text = "\n".join(document.lines).encode()
    key = (seed % 2**64).to_bytes(8, "little")
    digest = hashlib.blake2b(text, digest_size=8, key=key).digest()
    return int.from_bytes(digest, "little") < heldout_fraction * 2**64


def divide(document: Document, settings: ShardSettings) -> dict[str, Document]:
    """The sides of a document: it falls on one as a whole, or is too long and has an end held out.

    A document of more text than is to be held out of the whole corpus, a novel among ten, would
    decide by itself how much is. Of such a one the last `heldout_fraction` of the characters is
    held out, from the beginning of a word on; so copies are divided alike.
    """
    longest, fraction = settings.longest_whole, settings.heldout_fraction
    sizes = [len(line) for line in document.lines]
    if not fraction or longest is None or sum(sizes) <= longest:
        heldout = is_heldout(document, fraction, settings.seed)
        return {"heldout" if heldout else "train": document}
    left = min(round(sum(sizes) * (1 - fraction)), sum(sizes) - 1)  # characters to train on
    number = 0
    while left >= sizes[number]:
        left -= sizes[number]
        number += 1
    line = document.lines[number]
    cut = line.rfind(" ", 0, left) + 1 or (left if sizes[number] > longest else 0)
    sides = {
        "train": [*document.lines[:number], line[:cut].rstrip()],
        "heldout": [line[cut:].lstrip(), *document.lines[number + 1 :]],
    }
    return {
        split: Document(document.name, [line for line in lines if line])
        for split, lines in sides.items()
        if any(lines)
    }


def shard_file(split: str, index: int, num_shards: int) -> str:
    """Path of a record file inside the data folder, named as ELECTRA names them."""
    return f"{SPLITS[split]}/pretrain_data.tfrecord-{index:05d}-of-{num_shards:05d}"


class _Shard:
    """Reads documents into the layout of one shard."""

    def __init__(self, settings: ShardSettings, tokenizer: Tokenizer) -> None:
        self.settings, self.tokenizer = settings, tokenizer
        self.layout = CLASSES[settings.layout](settings, tokenizer.vocabulary)
        self.counts = self.layout.counts

    def add(self, documents: list[Document], side: str | None) -> None:
        """Tokenizes documents in one call; all are on one side, or each is where it falls."""
        if side is not None:
            sides = [(side, document) for document in documents]
        else:
            sides = [part for each in documents for part in divide(each, self.settings).items()]
        lines = [line for _, document in sides for line in document.lines]
        ids, row_splits = self.tokenizer.tokenize(lines)
        unknown = np.concatenate([[0], np.cumsum(ids == self.tokenizer.vocabulary.unk_id)])
        row = 0
        for split, document in sides:
            bounds = row_splits[row : row + len(document.lines) + 1]
            row += len(document.lines)
            begin, end = int(bounds[0]), int(bounds[-1])
            self.layout.add(split, document.lines, ids[begin:end], bounds[1:] - begin)
            self.counts[split].update(
                documents=1,
                lines=len(document.lines),
                characters=_characters(document),
                unknown_tokens=int(unknown[end] - unknown[begin]),
            )

    def encoded(self, split: str, order_key: list[int]) -> Iterator[list[bytes]]:
        """Yields the examples of a split, serialised; see `Layout.arrays`."""
        for arrays in self.layout.arrays(split, order_key):
            yield records.encode_examples(*arrays)


def build_shard(
    index: int,
    units: Sequence[DealtUnit],
    tokenizer: Tokenizer,
    settings: ShardSettings,
    folder: str,
    unit_done: Callable[[Unit], None],
) -> dict[str, Any]:
    """Builds the record files of one shard.

    Args:
        index: of the shard.
        units: in order.
        tokenizer: with the vocabulary of the build.
        settings: of the build.
        folder: where the split folders lie; they exist.
        unit_done: called after each unit has been read.

    Returns:
        `splits`: counts of documents, lines, tokens, tokens_kept, unknown_tokens, examples and
        padding positions per split; `problems`: the reader's counts; `files`: records and bytes
        of each file.

    Raises:
        InputError: unreadable text, or a file that cannot be written.
    """
    shard = _Shard(settings, tokenizer)
    problems: collections.Counter = collections.Counter()
    for dealt in units:
        shard.layout.begin_unit(dealt.number)
        for documents in batches(dealt.corpus.documents(dealt.unit, problems), _characters):
            shard.add(documents, dealt.side)
        unit_done(dealt.unit)

    files = {}
    for number, split in enumerate(settings.splits):
        name = shard_file(split, index, settings.num_shards)
        key = [settings.seed % 2**64, 2 * index + number]
        encoded = shard.encoded(split, key)
        count, size = records.write_record_file(os.path.join(folder, name), encoded)
        files[name] = {"records": count, "bytes": size}
    splits = {split: dict(sorted(counts.items())) for split, counts in shard.counts.items()}
    return {
        "splits": splits,
        "problems": dict(sorted(problems.items())),
        "files": files,
    }


def _characters(document: Document) -> int:
    return sum(map(len, document.lines))


def sample_training_lines(
    corpus: Corpus, settings: ShardSettings, max_characters: int
) -> Iterator[str]:
    """Lines to learn a vocabulary from: training documents only, evenly over the corpus.

    Args:
        corpus: to read from.
        settings: of the held-out split; the seed also decides in which order units are visited.
        max_characters: about how much to take; no unit gives much more than its share.
    """
    keys = np.random.Philox(key=[settings.seed % 2**64, 2**63]).random_raw(len(corpus.units))
    share = max(max_characters // len(corpus.units), 1 << 20)
    taken = 0
    for i in np.argsort(keys, kind="stable").tolist():
        unit_end = taken + share
        for document in corpus.documents(corpus.units[i], collections.Counter()):
            lines = divide(document, settings).get("train", Document("", [])).lines
            yield from lines
            taken += sum(map(len, lines))
            if taken >= unit_end:
                break
        if taken >= max_characters:
            return


def deal_units(
    corpus: Corpus, num_shards: int, heldout_corpus: Corpus | None = None
) -> list[list[DealtUnit]]:
    """Deals units to shards so that the shards get about the same number of bytes.

    The largest units are dealt first, each to the emptiest shard. Those of a corpus that is held
    out are dealt alike, by themselves.
    """
    dealt = _dealt(corpus, num_shards, None)
    if heldout_corpus is not None:
        heldout = _dealt(heldout_corpus, num_shards, "heldout")
        dealt = [own + more for own, more in zip(dealt, heldout)]
    return dealt


def _dealt(corpus: Corpus, num_shards: int, side: str | None) -> list[list[DealtUnit]]:
    units = sorted(enumerate(corpus.units), key=lambda item: (-unit_bytes(item[1]), item[0]))
    loads = [(0, shard) for shard in range(num_shards)]  # a heap
    dealt: list[list[DealtUnit]] = [[] for _ in range(num_shards)]
    for number, unit in units:
        load, shard = loads[0]
        dealt[shard].append(DealtUnit(number, corpus, unit, side))
        heapq.heapreplace(loads, (load + max(1, unit_bytes(unit)), shard))
    return [sorted(shard, key=lambda item: item.number) for shard in dealt]


def unit_bytes(unit: Unit) -> int:
    """About how many bytes a unit takes on disk; 0 where that cannot be told."""
    return sum(end - start for _, start, end in _byte_ranges(unit))


def unit_digest(unit: Unit) -> str:
    """SHA-256 of the first and the last `DIGEST_BYTES` of a unit, its files taken as one.

    Tells a changed corpus from the one a build began with, without reading it all. What it cannot
    see is a change in the middle of a large unit that leaves the size as it was.
    """
    ranges, digest = _byte_ranges(unit), hashlib.sha256()
    for backwards in (False, True):
        left = DIGEST_BYTES
        for path, start, end in reversed(ranges) if backwards else ranges:
            size = min(left, end - start)
            left -= size
            # A file that cannot be read is the reader's to reject or to pass over.
            with contextlib.suppress(OSError), storage.open(path, "rb") as file:
                file.seek(end - size if backwards else start)
                digest.update(file.read(size))
            if not left:
                break
    return digest.hexdigest()


def _byte_ranges(unit: Unit) -> list[tuple[str, int, int]]:
    """(path, first byte, one past the last) of each file of a unit; of a tfds data set, none."""
    paths = [path for _, path in member_paths(unit)] or [unit.path]
    return [
        (path, unit.start, storage.getsize(path) if unit.end < 0 else unit.end)
        for path in paths
        if storage.isfile(path)
    ]
