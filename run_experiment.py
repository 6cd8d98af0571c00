"""Runs a published comparison again: systems, seeds, budget and tasks to one report.

    python run_experiment.py --experiment convbert_table3 --scale hour --data_dir DATA \\
        --tasks_dir TASKS --output_dir OUT
    python run_experiment.py --experiment convbert_table3 --scale paper --dry_run

Run the same command again after an interruption: finished runs are kept, also those of other
experiments in the same output folder, and the others resume. Start it twice to use two devices or
cores: the processes share the runs. --report writes the report of what is there.
Exit status 0: done; 1: an error; 130: stopped by Ctrl-C; 129, 143 (SIGHUP, SIGTERM): run it again.
"""

from __future__ import annotations

try:
    import convbert.common.legacy_keras  # noqa: F401  before TensorFlow
except ModuleNotFoundError:
    raise SystemExit("error: first run: python -m pip install -r requirements.txt") from None

# isort: split
import shlex
import sys
from typing import TYPE_CHECKING

from absl import app, flags, logging

from convbert.common.errors import main_with_clear_errors, require_flags
from convbert.common.files import check_there
from convbert.experiments import declaration

if TYPE_CHECKING:
    from convbert.experiments.declaration import Experiment
    from convbert.experiments.runs import Run

FLAGS = flags.FLAGS
flags.DEFINE_string("experiment", None, f"File, or one of {', '.join(declaration.names())}.")
flags.DEFINE_enum("scale", "hour", declaration.SCALES, "The paper's size, or a reduced one.")
flags.DEFINE_list(
    "data_dir", [], "Data folder of pre-training; further ones are NAME=FOLDER, comma-separated."
)
flags.DEFINE_string("tasks_dir", None, "Folder of the tasks' folders.")
flags.DEFINE_string("output_dir", "runs/experiments", "Folder of runs and reports.")
flags.DEFINE_list("only", [], "Systems to run. Default: all of the scale.")
flags.DEFINE_bool("dry_run", False, "Runs, FLOPs, hours from a measured step, disk; no training.")
flags.DEFINE_bool("report", False, "Only the report, of what is finished.")


def main(_: list[str]) -> None:
    """Reads the experiment, makes its runs and writes the report."""
    logging.set_verbosity(logging.WARNING)
    require_flags(FLAGS, {"experiment": f"a file or one of {', '.join(declaration.names())}"})
    named = [entry.rpartition("=") for entry in FLAGS.data_dir]
    experiment = declaration.load(
        FLAGS.experiment,
        FLAGS.scale,
        FLAGS.only,
        output_dir=FLAGS.output_dir,
        data_dirs={name: folder for name, _, folder in named},
        tasks_dir=FLAGS.tasks_dir or "",
    )
    if not FLAGS.dry_run:
        require_flags(FLAGS, {"data_dir": f"data for this scale. {experiment.scale.data}"})
        if experiment.scale.tasks or experiment.scale.measures:
            require_flags(FLAGS, {"tasks_dir": "a folder with the tasks' folders"})
    for folder in filter(None, [*experiment.data_dirs.values(), FLAGS.tasks_dir]):
        check_there("--data_dir or --tasks_dir", folder)
    from convbert.experiments import report, runs  # imports TensorFlow, which takes seconds

    planned = runs.plan(experiment)
    if FLAGS.dry_run:
        print(forecast(experiment, planned))
        return
    command = shlex.join(["convbert", "experiment", *sys.argv[1:]])
    if not FLAGS.report:
        runs.run_all(experiment, planned)
    print(f"report: {report.write(experiment, planned, command)}")


def forecast(experiment: Experiment, planned: list[Run]) -> str:
    """Returns a table of the runs of pre-training, with FLOPs, hours on this machine, and disk."""
    from convbert.analysis.operations import EXECUTED, training_flops
    from convbert.analysis.parameters import count_parameters
    from convbert.analysis.tables import format_table
    from convbert.common.settings import present
    from convbert.experiments.runs import seconds_per_step

    first = planned[0].hparams
    # One system is measured; the others take the same time for an operation.
    executed = present(training_flops(first, EXECUTED)) / first.num_train_steps
    rate = executed / seconds_per_step(first)
    rows, total_hours, total_disk, seeds = [], 0.0, 0.0, experiment.scale.seeds
    for run in [run for run in planned if run.seed == 0]:
        hours = present(training_flops(run.hparams, EXECUTED)) / rate / 3600
        # Weights and two moments, 4 bytes each, once more while a new checkpoint is written.
        kept = len(run.steps) + 1
        disk = count_parameters(run.hparams).graph * 12 * kept / 2**30
        total_hours, total_disk = total_hours + seeds * hours, total_disk + seeds * disk
        cells = [run.system, str(seeds), f"{run.steps[-1]:,}", f"{run.flops():.2e}"]
        rows.append([*cells, f"{hours:.2g}", f"{disk:.2g}"])
    header = ["system", "runs", "steps", "FLOPs of a run", "hours of a run", "GiB of a run"]
    scale = experiment.scale
    tuned = len(planned) * len(planned[0].steps) * len(scale.tasks) * scale.num_trials
    lines = [
        f"{experiment.name}, scale {experiment.scale_name}: {experiment.about.get('source', '')}",
        f"data: {scale.data or 'see --data_dir'}",
        "",
        format_table(header, rows),
        "",
        f"{len(planned)} runs of pre-training: {total_hours:.3g} hours of this machine at the"
        f" measured {rate / 1e9:.3g} GFLOP/s, {total_disk:.3g} GiB. {tuned} runs of fine-tuning on"
        f" {', '.join(scale.tasks) or 'no task'}, whose time is not counted.",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    app.run(main_with_clear_errors(main))
