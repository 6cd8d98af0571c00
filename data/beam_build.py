"""Builds shards by an Apache Beam pipeline: on one machine, or on those of a cluster.

A shard is the unit of work, as of the local builder: an element of the pipeline is its index, and
whoever receives it reads the units that are dealt to it and writes its record files and its counts.
Nothing else decides their bytes, so they are those of the local builder, and so they are when a
runner builds a shard twice. What comes before and after, the vocabulary and the manifest, happens
where the command runs. Corpus and data folder must be the same paths on all workers.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence

import apache_beam as beam
import grpc
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions

import files
import storage
from data import workers
from errors import CommandError, InputError, reason


class BuildShard(beam.DoFn):
    """Builds the shards whose indices it receives; yields each when its files have their names.

    A shard that bad input keeps from being built is not tried again: a file says why.

    Args:
        job: what all shards have in common.
    """

    def __init__(self, job: workers.Job) -> None:
        self._job = job
        self._bytes_read = beam.metrics.Metrics.counter("build_pretraining_data", "bytes_read")

    def setup(self) -> None:
        """Loads the vocabulary, once for many shards."""
        self._builder = workers.ShardBuilder(self._job, self._bytes_read.inc)

    def process(self, index: int) -> Iterator[int]:
        """Builds shard `index`."""
        try:
            self._builder.build(index)
            yield index
        except CommandError as error:
            files.write_json(_failure_file(self._job, index), {"error": str(error)})


def build_shards(job: workers.Job, arguments: Sequence[str]) -> None:
    """Builds the shards that are not there yet; the counterpart of `workers.build_shards`.

    Args:
        job: what to build.
        arguments: Beam's pipeline options, such as `--runner=FlinkRunner`. Without a runner:
            `FnApiRunner`, in this process.

    Raises:
        InputError: unreadable text or a file that cannot be written, on any worker; the pipeline
            fails; or the workers write into another folder than this process sees. Shards that
            were finished are kept.
    """
    pending = workers.pending_shards(job)
    for leftover in storage.matching(job.work, "failed-*.json"):
        storage.remove(leftover)
    if pending:
        _run(job, pending, PipelineOptions(list(arguments)))
    for index in pending:
        path = _failure_file(job, index)
        if storage.exists(path):
            raise InputError(files.read_json(path)["error"])
        if not job.is_done(index):
            raise InputError(
                f"{job.work} should be one folder for this process and all Beam workers: the"
                f" pipeline ended, but shard {index} is not there"
            )


def _run(job: workers.Job, pending: list[int], options: PipelineOptions) -> None:
    standard = options.view_as(StandardOptions)
    # Beam's own default may be Prism, which it would download.
    standard.runner = standard.runner or "FnApiRunner"
    pipeline = beam.Pipeline(options=options)
    # Reshuffled, so that the runner deals the shards to its workers instead of giving all to one.
    indices = pipeline | "Shards" >> beam.Create(pending) | "Deal" >> beam.Reshuffle()
    _ = indices | "Build" >> beam.ParDo(BuildShard(job))
    with _clear_errors():
        pipeline.run().wait_until_finish()


@contextlib.contextmanager
def _clear_errors() -> Iterator[None]:
    """What runners say where a job cannot be started, or fails; other exceptions are bugs."""
    try:
        yield
    except (RuntimeError, grpc.RpcError, grpc.FutureTimeoutError) as error:
        raise InputError(
            f"the Beam pipeline failed: {reason(error)}; shards that were finished are kept, and"
            " the same command resumes"
        ) from error


def _failure_file(job: workers.Job, index: int) -> str:
    """Where a worker says why a shard could not be built."""
    return os.path.join(job.work, f"failed-{index}.json")
