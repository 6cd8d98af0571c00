"""Who builds which shard: this process one after the other, or several processes side by side."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from typing import Any

from tqdm import tqdm

import files
import storage
from data import shards
from data.corpus import Corpus
from data.tokenizers import create_tokenizer
from data.vocabulary import Vocabulary
from errors import InputError
from machine import num_cores

# Starting a process costs seconds (it imports TensorFlow), as much as building this much text.
BYTES_PER_PROCESS = 64 << 20


@dataclasses.dataclass(frozen=True)
class Job:
    """What every process gets.

    Attributes:
        corpus: where the text comes from.
        vocabulary: to tokenize with.
        settings: of the shards.
        work: folder of the unfinished build; its split folders exist.
        heldout_corpus: where the held-out text comes from, if not from `corpus`.
    """

    corpus: Corpus
    vocabulary: Vocabulary
    settings: shards.ShardSettings
    work: str
    heldout_corpus: Corpus | None = None

    def dealt_units(self) -> list[list[shards.DealtUnit]]:
        """The units of each shard."""
        return shards.deal_units(self.corpus, self.settings.num_shards, self.heldout_corpus)

    def shard_counts_file(self, index: int) -> str:
        """Where the counts of a finished shard lie."""
        return os.path.join(self.work, f"shard-{index:05d}.json")

    def is_done(self, index: int) -> bool:
        """Whether a shard's counts are there and its files are as the counts say."""
        path = self.shard_counts_file(index)
        return storage.exists(path) and all(
            _file_size(self.work, name) == entry["bytes"]
            for name, entry in files.read_json(path)["files"].items()
        )


def _file_size(work: str, name: str) -> int | None:
    """Size of a record file, in the unfinished build or already in its final place."""
    for folder in (work, os.path.dirname(work)):
        path = os.path.join(folder, name)
        if storage.exists(path):
            return storage.getsize(path)
    return None


class ShardBuilder:
    """Builds shards of one job; the tokenizer is made once.

    Args:
        job: what to build.
        count_bytes: receives the size of each unit that has been read.
    """

    def __init__(self, job: Job, count_bytes: Callable[[int], None]) -> None:
        self._job = job
        self._tokenizer = create_tokenizer(job.vocabulary)
        self._count_bytes = count_bytes
        self._dealt = job.dealt_units()

    def build(self, index: int) -> None:
        """Builds a shard, and then writes its counts."""
        job = self._job
        counts = shards.build_shard(
            index,
            self._dealt[index],
            self._tokenizer,
            job.settings,
            job.work,
            lambda unit: self._count_bytes(shards.unit_bytes(unit)),
        )
        # Written after the files have their names: where it exists, they are whole.
        files.write_json(job.shard_counts_file(index), counts)


def build_shards(job: Job, num_processes: int | None = None) -> None:
    """Builds the shards that are not there yet, with a progress bar over the bytes read.

    By default with a process per core, fewer where there is little text.

    Raises:
        InputError: unreadable text, a file that cannot be written, a process that was killed.
            Shards that were finished are kept.
    """
    dealt = job.dealt_units()
    sizes = [sum(shards.unit_bytes(item.unit) for item in units) for units in dealt]
    pending = pending_shards(job)
    pending_bytes = sum(sizes[index] for index in pending)
    wanted = num_processes or min(num_cores(), -(-pending_bytes // BYTES_PER_PROCESS))
    processes = min(wanted, len(pending))
    with tqdm(
        total=sum(sizes),
        initial=sum(sizes) - pending_bytes,
        unit="B",
        unit_scale=True,
        desc="building",
        disable=None,  # where the output is no terminal
    ) as bar:
        if processes > 1:
            _build_in_processes(processes, job, pending, bar)
        elif pending:
            builder = ShardBuilder(job, bar.update)
            for index in pending:
                builder.build(index)


def pending_shards(job: Job) -> list[int]:
    """The shards that an earlier build has not finished; says how many it has."""
    total = job.settings.num_shards
    pending = [index for index in range(total) if not job.is_done(index)]
    if len(pending) < total:
        print(f"resuming: {total - len(pending)} of {total} shards are there already")
    return pending


_worker: ShardBuilder | None = None  # of this process, where it is a worker


def _start_worker(job: Job, bytes_read: Any) -> None:
    import tensorflow as tf

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent's to handle
    threading.Thread(target=_end_with_parent, daemon=True).start()
    # As many workers as cores: threads of their own would only get in each other's way.
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)

    def count_bytes(size: int) -> None:
        with bytes_read.get_lock():
            bytes_read.value += size

    global _worker
    _worker = ShardBuilder(job, count_bytes)


def _end_with_parent() -> None:
    """Ends this worker when its parent was killed; it would wait for work for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work(index: int) -> None:
    assert _worker is not None
    _worker.build(index)


def _build_in_processes(processes: int, job: Job, pending: list[int], bar: tqdm) -> None:
    done_before = bar.n
    context = multiprocessing.get_context("spawn")  # TensorFlow's threads do not survive a fork
    bytes_read = context.Value("q", 0)
    executor = concurrent.futures.ProcessPoolExecutor(
        processes, mp_context=context, initializer=_start_worker, initargs=(job, bytes_read)
    )
    with contextlib.ExitStack() as stack:
        stack.callback(executor.shutdown, cancel_futures=True)  # what has not begun is given up
        stack.callback(_end_workers)
        waiting = {executor.submit(_work, index) for index in pending}
        while waiting:
            done, waiting = concurrent.futures.wait(
                waiting, timeout=0.2, return_when=concurrent.futures.FIRST_EXCEPTION
            )
            bar.update(done_before + bytes_read.value - bar.n)
            try:
                for future in done:
                    future.result()
            except concurrent.futures.process.BrokenProcessPool as error:
                raise InputError(
                    "a worker process was killed, most likely for want of memory: "
                    "try fewer --num_processes; finished shards are kept"
                ) from error


def _end_workers() -> None:
    """Before locks go: what a worker has begun is built again."""
    for worker in multiprocessing.active_children():
        worker.kill()
    for worker in multiprocessing.active_children():
        worker.join(1)
