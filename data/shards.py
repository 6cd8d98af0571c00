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
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

import storage
from data import records
from data.corpus import Corpus, Document, Unit
from data.examples import ExamplePlanner, assemble
from data.input_pipeline import SPLITS
from data.readers.base import member_paths
from data.tokenization import Tokenizer, batches
from data.vocabulary import Vocabulary

_ENCODE_EXAMPLES = 2048
DIGEST_BYTES = 64 << 10
JUDGED_BYTES = 64_000  # from this size on, a file may be rejected by itself


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
    """

    max_seq_length: int
    heldout_fraction: float
    seed: int
    num_shards: int
    longest_whole: int | None = None

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that have files."""
        return ("train", "heldout") if self.heldout_fraction else ("train",)


def is_heldout(document: Document, heldout_fraction: float, seed: int) -> bool:
    """Whether a document is held out: a function of its text and the seed alone.

    Copies of a document fall on the same side wherever they lie in the corpus.
    """
    text = "\n".join(document.lines).encode("utf-8", "surrogatepass")
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
    """Tokens and planned examples of one shard, both splits over the same tokens."""

    def __init__(self, settings: ShardSettings) -> None:
        self.settings = settings
        self.tokens: list[np.ndarray] = []
        self.num_tokens = 0
        self.plans: dict[str, list[tuple[int, int, int]]] = {s: [] for s in settings.splits}
        self.counts = {split: collections.Counter() for split in settings.splits}

    def add(self, documents: list[Document], tokenizer: Tokenizer, planner: ExamplePlanner) -> None:
        """Tokenises documents in one call and plans their examples."""
        sides = [divide(document, self.settings).items() for document in documents]
        splits = [split for side in sides for split, _ in side]
        documents = [part for side in sides for _, part in side]
        lines = [line for document in documents for line in document.lines]
        ids, row_splits = tokenizer.tokenize(lines)
        unknown = np.concatenate([[0], np.cumsum(ids == tokenizer.vocabulary.unk_id)])
        row = 0
        for split, document in zip(splits, documents):
            bounds = row_splits[row : row + len(document.lines) + 1]
            row += len(document.lines)
            begin, end = int(bounds[0]), int(bounds[-1])
            offset = self.num_tokens + begin
            self.plans[split].extend(
                (offset + start, first, second)
                for start, first, second in planner.plan((bounds[1:] - begin).tolist())
            )
            self.counts[split].update(
                documents=1,
                lines=len(document.lines),
                characters=_characters(document),
                tokens=end - begin,
                unknown_tokens=int(unknown[end] - unknown[begin]),
            )
        self.tokens.append(ids)
        self.num_tokens += len(ids)

    def encoded(self, split: str, order_key: list[int], vocabulary: Vocabulary) -> Iterator[list]:
        """Yields the examples of a split, serialised, in an order drawn from `order_key`."""
        tokens = np.concatenate(self.tokens) if self.tokens else np.zeros([0], np.int32)
        plans = np.array(self.plans[split], np.int64).reshape(-1, 3)  # [N, 3]
        # Raw Philox numbers are the same in all versions of NumPy; Generator's methods need not be.
        keys = np.random.Philox(key=order_key).random_raw(len(plans))
        plans = plans[np.argsort(keys, kind="stable")]
        for i in range(0, len(plans), _ENCODE_EXAMPLES):
            chunk = plans[i : i + _ENCODE_EXAMPLES]
            ids = {name: getattr(vocabulary, name) for name in ("cls_id", "sep_id", "pad_id")}
            arrays = assemble(tokens, chunk, self.settings.max_seq_length, **ids)
            filled = int(arrays[1].sum(dtype=np.int64))
            specials = 2 * len(chunk) + int((chunk[:, 2] > 0).sum())
            self.counts[split].update(
                examples=len(chunk),
                tokens_kept=filled - specials,
                padding=arrays[1].size - filled,
            )
            yield records.encode_examples(*arrays)


def build_shard(
    index: int,
    corpus: Corpus,
    units: list[tuple[int, Unit]],
    tokenizer: Tokenizer,
    settings: ShardSettings,
    folder: str,
    unit_done: Callable[[Unit], None],
) -> dict[str, Any]:
    """Builds the record files of one shard.

    Args:
        index: of the shard.
        corpus: where the units come from.
        units: (index in the corpus, unit), in order.
        tokenizer: with the vocabulary of the build.
        settings: of the build.
        folder: where the split folders lie; they exist.
        unit_done: called after each unit has been read.

    Returns:
        `splits`: counts of documents, lines, tokens, tokens_kept, unknown_tokens, examples and
        padding positions per split; `problems`: the reader's counts; `files`: records and bytes
        of each file; `worst_unit`: see `worst_file`.

    Raises:
        InputError: unreadable text, or a file that cannot be written.
    """
    shard = _Shard(settings)
    problems: collections.Counter = collections.Counter()
    undecodable: list[dict[str, Any]] = []
    for unit_index, unit in units:
        generator = random.Random(f"examples {settings.seed} {unit_index}")
        planner = ExamplePlanner(settings.max_seq_length, generator)
        for documents in batches(_counted(corpus, unit, problems, undecodable), _characters):
            shard.add(documents, tokenizer, planner)
        unit_done(unit)

    files = {}
    for number, split in enumerate(settings.splits):
        name = shard_file(split, index, settings.num_shards)
        key = [settings.seed % 2**64, 2 * index + number]
        encoded = shard.encoded(split, key, tokenizer.vocabulary)
        count, size = records.write_record_file(os.path.join(folder, name), encoded)
        files[name] = {"records": count, "bytes": size}
    splits = {split: dict(sorted(counts.items())) for split, counts in shard.counts.items()}
    return {
        "splits": splits,
        "problems": dict(sorted(problems.items())),
        "files": files,
        "worst_unit": worst_file(undecodable),
    }


def _counted(
    corpus: Corpus, unit: Unit, problems: collections.Counter, undecodable: list[dict[str, Any]]
) -> Iterator[Document]:
    """Yields the documents of a unit; appends each file that has undecodable bytes.

    A large file is cut into units, and each counts as one file here.
    """
    paths = dict(member_paths(unit))  # whose documents have the names of their files
    found: dict[str, collections.Counter] = collections.defaultdict(collections.Counter)
    before = problems["undecodable_bytes"]
    for document in corpus.documents(unit, problems):
        replaced = problems["undecodable_bytes"] - before
        before += replaced
        found[paths.get(document.name, unit.path)].update(
            undecodable_bytes=replaced, characters=_characters(document)
        )
        yield document
    for path, counts in found.items():
        if counts["undecodable_bytes"]:
            size = storage.getsize(path) if path in paths.values() else unit_bytes(unit)
            undecodable.append({"path": path, "bytes": size, **counts})


def worst_file(files: Iterable[dict[str, Any]]) -> dict[str, Any] | None:
    """The file with most undecodable bytes for each character; None of no files.

    Each is `path`, `bytes`, `undecodable_bytes` and `characters`. Files of `JUDGED_BYTES` come
    before smaller ones, which may be odd by chance.
    """

    def badness(file: dict[str, Any]) -> tuple[bool, float]:
        share = file["undecodable_bytes"] / max(1, file["characters"])
        return file["bytes"] >= JUDGED_BYTES, share

    return max(files, key=badness, default=None)


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


def deal_units(corpus: Corpus, num_shards: int) -> list[list[tuple[int, Unit]]]:
    """Deals units to shards so that the shards get about the same number of bytes.

    The largest units are dealt first, each to the emptiest shard. Returns (index, unit) per shard.
    """
    units = sorted(enumerate(corpus.units), key=lambda item: (-unit_bytes(item[1]), item[0]))
    loads = [(0, shard) for shard in range(num_shards)]  # a heap
    dealt: list[list[tuple[int, Unit]]] = [[] for _ in range(num_shards)]
    for item in units:
        load, shard = loads[0]
        dealt[shard].append(item)
        heapq.heapreplace(loads, (load + max(1, unit_bytes(item[1])), shard))
    return [sorted(shard, key=lambda item: item[0]) for shard in dealt]


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
