"""The cost of an experiment before it runs: FLOPs, hours on this machine, disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pandas as pd

from convbert.analysis.operations import EXECUTED, count_parameters, training_flops
from convbert.benchmarks.ours import seconds_per_step
from convbert.common.errors import InputError
from convbert.experiments.declaration import Experiment
from convbert.experiments.parts import Part
from convbert.experiments.runs import Run, flops_per_step


def table(experiment: Experiment, left: Sequence[Part]) -> str:
    """Returns a table of the pre-training that parts need, and how many other runs are left."""
    needed = (of for part in left for of in (part.run.start, part.run) if of)
    runs = [of for of in needed if not (of.trained or of.failed)]
    trials = (({*part.trials}, {row[2] for row in part.rows()}) for part in left)
    tuned = sum(len(wanted - there) for wanted, there in trials if wanted != {""})
    scale = experiment.scale
    lines = [
        f"{experiment.name}, scale {experiment.scale_name}: {experiment.about.get('source', '')}",
        f"data: {scale.data or 'see --data_dir'}",
        *(_pretraining(experiment, {run.folder: run for run in runs}) if runs else ()),
        f"{tuned} runs of fine-tuning on {', '.join(scale.tasks) or 'no task'} are left, whose time"
        " is not counted.",
    ]
    return "\n\n".join(lines)


def _pretraining(experiment: Experiment, runs: dict[str, Run]) -> list[str]:
    """Returns a table of runs, with FLOPs, hours on this machine, and disk, and their sum."""
    # One system is measured, the smallest; the others take the same time for an operation.
    counted = [run.hparams for run in runs.values() if flops_per_step(run.hparams) > 0]  # not NaN
    if not counted:
        raise InputError("a forecast needs a system whose operations are counted")
    measured = min(counted, key=flops_per_step)
    executed = training_flops(measured, EXECUTED) / measured.num_train_steps
    rate = executed / seconds_per_step(measured)
    rows, counts = [], Counter(run.system for run in runs.values())
    for run in {run.system: run for run in runs.values()}.values():
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
    frame = pd.DataFrame(rows, columns=columns)
    total = frame[columns[4:]].mul(frame["runs"], axis=0).sum(skipna=False)
    summed = (
        f"{len(runs)} runs of pre-training: {total.iloc[0]:.3g} hours of this machine at the"
        f" measured {rate / 1e9:.3g} GFLOP/s, {total.iloc[1]:.3g} GiB."
    )
    return [frame.to_markdown(index=False, floatfmt=".3g"), summed]
