"""The cost of an experiment before it runs: FLOPs, hours on this machine, disk."""

from __future__ import annotations

from collections import Counter

import pandas as pd

from convbert.analysis.operations import EXECUTED, count_parameters, training_flops
from convbert.benchmarks.ours import seconds_per_step
from convbert.common.errors import InputError
from convbert.experiments.declaration import Experiment, grid
from convbert.experiments.runs import Run, flops_per_step


def table(experiment: Experiment, planned: list[Run]) -> str:
    """Returns a table of planned runs of pre-training: FLOPs, hours on this machine, and disk."""
    # One system is measured, the smallest; the others take the same time for an operation.
    counted = [run.hparams for run in planned if flops_per_step(run.hparams) > 0]  # not NaN
    if not counted:
        raise InputError("a forecast needs a system whose operations are counted")
    measured = min(counted, key=flops_per_step)
    executed = training_flops(measured, EXECUTED) / measured.num_train_steps
    rate = executed / seconds_per_step(measured)
    rows, counts = [], Counter(run.system for run in planned)
    for run in {run.system: run for run in planned}.values():
        own = 1 - run.first / run.steps[-1]  # the share of its steps that are its own
        flops = training_flops(run.hparams, EXECUTED) * own
        budget = experiment.scale.hours or 0.0
        hours = budget * experiment.systems[run.system].steps_factor or flops / rate / 3600
        # Weights and two moments, 4 bytes each, once more while a new checkpoint is written.
        kept = 2 if len(run.steps) == 1 else experiment.scale.evaluations
        disk = count_parameters(run.hparams).graph * 12 * kept / 2**30
        about = [run.system, counts[run.system], f"{run.steps[-1]:,}"]
        rows.append([*about, run.flops(), hours, disk])
    columns = ["system", "runs", "steps", "FLOPs of a run", "hours of a run", "GiB of a run"]
    frame, scale = pd.DataFrame(rows, columns=columns), experiment.scale
    total = frame[columns[4:]].mul(frame["runs"], axis=0).sum(skipna=False)
    tried = sum(len(grid(task)) for task in scale.tasks.values())
    tuned = sum(len(run.steps) for run in planned) * tried * scale.num_trials
    lines = [
        f"{experiment.name}, scale {experiment.scale_name}: {experiment.about.get('source', '')}",
        f"data: {scale.data or 'see --data_dir'}",
        "",
        frame.to_markdown(index=False, floatfmt=".3g"),
        "",
        f"{len(planned)} runs of pre-training: {total.iloc[0]:.3g} hours of this machine at the"
        f" measured {rate / 1e9:.3g} GFLOP/s, {total.iloc[1]:.3g} GiB. {tuned} runs of fine-tuning"
        f" on {', '.join(scale.tasks) or 'no task'}, whose time is not counted.",
    ]
    return "\n".join(lines)
