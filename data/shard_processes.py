"""Who builds which shard: this process one after the other, or several processes side by side."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import functools
import multiprocessing
import os
import signal
import threading

import tensorflow as tf
from tqdm import tqdm

from convbert.common import files, storage
from convbert.common.errors import InputError
from convbert.common.machine import num_cores
from convbert.data import shards
from convbert.data.build_options import BuildSettings
from convbert.data.readers.base import Corpus
from convbert.data.tokenizers import create_tokenizer
from convbert.data.vocabulary import Vocabulary

# Starting a process costs seconds (it imports TensorFlow), as much as building this much text.
BYTES_PER_PROCESS = 64 << 20

_tokenizer = functools.lru_cache(maxsize=1)(create_tokenizer)  # once in a process


@dataclasses.dataclass(frozen=True)
class Job:
    """The input of every process of a build."""

    corpus: Corpus
    vocabulary: Vocabulary
    settings: BuildSettings
    work: str  # the folder of the unfinished build, in which the split folders exist
    heldout_corpus: Corpus | None = None

    @functools.cached_property
    def dealt_units(self) -> list[list[shards.DealtUnit]]:
        """The units of each shard."""
        return shards.deal_units(self.corpus, self.settings.num_shards, self.heldout_corpus)

    def counts_file(self, index: int) -> str:
        """Where the counts of a finished shard lie."""
        return os.path.join(self.work, f"shard-{index:05d}.json")

    def pending(self) -> list[int]:
        """The shards that are not there yet, or whose files are not as their counts say."""
        return [n for n in range(self.settings.num_shards) if not self._is_done(n)]

    def _is_done(self, index: int) -> bool:
        path = self.counts_file(index)
        if not storage.exists(path):
            return False
        # In the unfinished build or already in their places. A power cut can leave empty files.
        folders = (self.work, os.path.dirname(self.work))
        for name, entry in files.read_json(path)["files"].items():
            places = [os.path.join(folder, name) for folder in folders]
            sizes = [storage.getsize(place) for place in places if storage.exists(place)]
            if sizes != [entry["bytes"]]:
                return False
        return True

    def build(self, index: int) -> None:
        """Builds a shard, and then writes its counts."""
        tokenizer, units = _tokenizer(self.vocabulary), self.dealt_units[index]
        counts = shards.build_shard(index, units, tokenizer, self.settings, self.work)
        # Written after the files have their names: where it exists, they are whole.
        files.write_json(self.counts_file(index), counts)


def build_shards(job: Job, num_processes: int | None = None) -> None:
    """Builds the shards that are not there yet, with a progress bar over the bytes of text.

    InputError for unreadable text, a file that cannot be written or a process that was killed.
    """
    sizes = [sum(shards.unit_bytes(dealt.unit) for dealt in units) for units in job.dealt_units]
    pending = job.pending()
    left = sum(sizes[index] for index in pending)
    wanted = num_processes or min(num_cores(), -(-left // BYTES_PER_PROCESS))
    processes = min(wanted, len(pending))
    with contextlib.ExitStack() as stack:
        # No bar where the output is no terminal.
        options = {"unit": "B", "unit_scale": True, "desc": "building", "disable": None}
        total = sum(sizes)
        bar = stack.enter_context(tqdm(total=total, initial=total - left, **options))
        if processes <= 1:
            for index in pending:
                job.build(index)
                bar.update(sizes[index])
            return
        context = multiprocessing.get_context("spawn")  # TensorFlow's threads survive no fork
        executor = concurrent.futures.ProcessPoolExecutor(
            processes, context, initializer=_start_worker, initargs=(job,)
        )
        stack.callback(executor.shutdown, cancel_futures=True)  # what has not begun is given up
        stack.callback(_end_workers)
        futures = {executor.submit(_build, index): index for index in pending}
        try:
            for future in concurrent.futures.as_completed(futures):
                future.result()
                bar.update(sizes[futures[future]])
        except concurrent.futures.process.BrokenProcessPool as error:
            raise InputError(
                "a worker process was killed, most likely for want of memory: "
                "try fewer --num_processes; finished shards are kept"
            ) from error


_job: Job | None = None  # of this process, where it is a worker


def _start_worker(job: Job) -> None:
    global _job
    _job = job
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent's to handle
    threading.Thread(target=_end_with_parent, daemon=True).start()
    # As many workers as cores: threads of their own would only get in each other's way.
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)


def _build(index: int) -> None:
    assert _job is not None
    _job.build(index)


def _end_with_parent() -> None:
    """Ends this worker when its parent was killed; it would wait for work for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _end_workers() -> None:
    """Before locks go: what a worker has begun is built again."""
    for worker in multiprocessing.active_children():
        worker.kill()
    for worker in multiprocessing.active_children():
        worker.join(1)
