"""Fine-tuning as `run_finetuning.py` and `convbert.fine_tune` begin it: checks, then the runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from finetune.settings import Settings, load_model
from finetune.task_files import check_files
from plugins import lazily
from training import workers
from training.strategies import check_strategy

_finetune = lazily("finetune.run:finetune")  # TensorFlow: it takes seconds


@contextlib.contextmanager
def fine_tuned(
    settings: Settings,
    worker_timeout: float = workers.TIMEOUT,
    *,
    dry_run: bool = False,
) -> Iterator[dict[str, dict[str, Any]]]:
    """Checks in about a second what was asked for, runs it, and keeps the folder for the block.

    Yields the results of the runs by folder.

    Args:
        settings: what to run.
        worker_timeout: seconds to wait for the other workers.
        dry_run: print the number of runs and steps and the time they take, and yield no results.

    Raises:
        InputError: what was asked for cannot be run, or another process uses the folder.
        LossNotFinite: some runs diverged; the others are in the report.
    """
    check_strategy(settings.run.strategy, settings.run.tpu)
    config, vocabulary = load_model(settings)
    for task in settings.tasks:
        for _ in settings.points(task, config):  # which raises where a value is wrong
            pass
        check_files(
            task, settings.data_dir, train=settings.train, test=settings.run.write_test_outputs
        )
    with workers.at_work(
        settings.run.strategy,
        settings.output_dir,
        worker_timeout,
    ):
        yield _finetune(settings, config, vocabulary, dry_run=dry_run)
