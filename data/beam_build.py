"""Builds shards with an Apache Beam pipeline, on one machine or a cluster.

An element of the pipeline is the index of a shard, which determines its bytes: they equal those of
the local builder, even if a runner builds a shard twice. The vocabulary and the manifest are made
where the command runs. Corpus and data folder must have the same paths on all workers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import apache_beam as beam
import grpc
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions

from convbert.common.errors import CommandError, InputError, reason
from convbert.data.shard_processes import Job


class BuildShard(beam.DoFn):
    """Builds the shards whose indices it receives; does not retry after bad input."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def process(self, index: int) -> Iterator[int]:
        """Builds shard `index`."""
        with contextlib.suppress(CommandError):
            self._job.build(index)
            yield index


def build_shards(job: Job, arguments: Sequence[str]) -> None:
    """Builds the shards that are not there yet; the counterpart of `shard_processes.build_shards`.

    `arguments` are Beam's pipeline options; the default runner is `FnApiRunner`, in this process.
    InputError for unreadable text, a pipeline that fails, or workers that write elsewhere.
    """
    if pending := job.pending():
        _run(job, pending, PipelineOptions(list(arguments)))
    if missing := job.pending():
        job.build(missing[0])  # bad text raises here
        raise InputError(
            f"{job.work} should be one folder for this process and all Beam workers: the"
            f" pipeline ended, but shard {missing[0]} was not there"
        )


def _run(job: Job, pending: list[int], options: PipelineOptions) -> None:
    standard = options.view_as(StandardOptions)
    # Beam's default may be Prism, which it would download.
    standard.runner = standard.runner or "FnApiRunner"
    pipeline = beam.Pipeline(options=options)
    # Reshuffled, so that the runner distributes the shards instead of giving all to one worker.
    indices = pipeline | "Shards" >> beam.Create(pending) | "Deal" >> beam.Reshuffle()
    _ = indices | "Build" >> beam.ParDo(BuildShard(job))
    try:
        pipeline.run().wait_until_finish()
    except (RuntimeError, grpc.RpcError, grpc.FutureTimeoutError) as error:
        # Errors of runners if a job cannot start, or fails; other exceptions are bugs.
        raise InputError(
            f"the Beam pipeline failed: {reason(error)}; shards that were finished are kept, and"
            " the same command resumes"
        ) from error
