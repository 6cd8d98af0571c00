"""Builds shards in this process one after the other, or in several processes."""

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

# Starting a process takes seconds (it imports TensorFlow), as long as building this much text.
BYTES_PER_PROCESS = 64 << 20

_tokenizer = functools.lru_cache(maxsize=1)(create_tokenizer)  # once per process


@dataclasses.dataclass(frozen=True)
class Job:
    """The input of each process of a build."""

    corpus: Corpus
    vocabulary: Vocabulary
    settings: BuildSettings
    work: str  # the folder of the unfinished build, with its split folders
    heldout_corpus: Corpus | None = None

    @functools.cached_property
    def dealt_units(self) -> list[list[shards.DealtUnit]]:
        """Returns the units of each shard."""
        return shards.deal_units(self.corpus, self.settings.num_shards, self.heldout_corpus)

    def counts_file(self, index: int) -> str:
        """Returns the path of a finished shard's counts."""
        return os.path.join(self.work, f"shard-{index:05d}.json")

    def pending(self) -> list[int]:
        """Returns the shards that are missing or whose files do not match their counts."""
        return [n for n in range(self.settings.num_shards) if not self._is_done(n)]

    def _is_done(self, index: int) -> bool:
        path = self.counts_file(index)
        if not storage.exists(path):
            return False
        # In the unfinished build or already in place. A power cut can leave empty files.
        folders = (self.work, os.path.dirname(self.work))
        try:
            listed = files.read_json(path)["files"].items()
        except (InputError, KeyError):
            return False
        for name, entry in listed:
            places = [os.path.join(folder, name) for folder in folders]
            sizes = [storage.getsize(place) for place in places if storage.exists(place)]
            if sizes != [entry["bytes"]]:
                return False
        return True

    def build(self, index: int) -> None:
        """Builds a shard, then writes its counts."""
        tokenizer, units = _tokenizer(self.vocabulary), self.dealt_units[index]
        counts = shards.build_shard(index, units, tokenizer, self.settings, self.work)
        # Written after the record files are renamed: if it exists, they are complete.
        files.write_json(self.counts_file(index), counts)


def build_shards(job: Job, num_processes: int | None = None) -> None:
    """Builds the missing shards, with a progress bar over the bytes of text.

    InputError for unreadable text, a file that cannot be written or a process that was killed.
    """
    sizes = [sum(shards.unit_bytes(dealt.unit) for dealt in units) for units in job.dealt_units]
    pending = job.pending()
    left = sum(sizes[index] for index in pending)
    wanted = num_processes or min(num_cores(), -(-left // BYTES_PER_PROCESS))
    processes = min(wanted, len(pending))
    with contextlib.ExitStack() as stack:
        # No bar unless the output is a terminal.
        options = {"unit": "B", "unit_scale": True, "desc": "building", "disable": None}
        total = sum(sizes)
        bar = stack.enter_context(tqdm(total=total, initial=total - left, **options))
        if processes <= 1:
            for index in pending:
                job.build(index)
                bar.update(sizes[index])
            return
        context = multiprocessing.get_context("spawn")  # TensorFlow's threads do not survive a fork
        executor = concurrent.futures.ProcessPoolExecutor(
            processes, context, initializer=_start_worker, initargs=(job,)
        )
        stack.callback(executor.shutdown, cancel_futures=True)  # cancels pending shards
        stack.callback(_end_workers)
        futures = {executor.submit(_build, index): index for index in pending}
        try:
            for future in concurrent.futures.as_completed(futures):
                future.result()
                bar.update(sizes[futures[future]])
        except concurrent.futures.process.BrokenProcessPool as error:
            raise InputError(
                "a worker process was killed, probably because memory ran out: "
                "try fewer --num_processes; finished shards are kept"
            ) from error


_job: Job | None = None  # set in worker processes


def _start_worker(job: Job) -> None:
    global _job
    _job = job
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles it
    threading.Thread(target=_end_with_parent, daemon=True).start()
    # There are as many workers as cores: more threads would only compete.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)


def _build(index: int) -> None:
    assert _job is not None
    _job.build(index)


def _end_with_parent() -> None:
    """Ends this worker when its parent is killed; otherwise it would wait for work forever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _end_workers() -> None:
    """Ends the workers before the lock is released; their unfinished shards are built again."""
    for worker in multiprocessing.active_children():
        worker.kill()
    for worker in multiprocessing.active_children():
        worker.join(1)
