"""Runs a published comparison again: systems, seeds, budget and tasks to one report.

    python run_experiment.py --experiment convbert_table3 --scale hour --data_dir DATA \\
        --tasks_dir TASKS --output_dir OUT
    python run_experiment.py --experiment convbert_table3 --scale paper --dry_run

Run the same command again after an interruption: finished runs are kept, also those of other
experiments in the same output folder, and the others resume. Start it twice to use two devices or
cores: the processes share the runs. --report writes the report of what is there.
"""

from __future__ import annotations

import convbert.common.startup  # before TensorFlow

# isort: split
import re
import shlex
import sys

from absl import app, flags

from convbert.common import plugins
from convbert.common.errors import InputError, main_with_clear_errors, require_flags
from convbert.common.files import check_there
from convbert.common.settings import reject_unknown
from convbert.experiments import declaration

FLAGS = flags.FLAGS
flags.DEFINE_string("experiment", None, f"File, or one of {', '.join(declaration.names())}.")
flags.DEFINE_enum("scale", "hour", declaration.SCALES, "The paper's size, or a reduced one.")
flags.DEFINE_list("data_dir", [], "Data folder; further ones are NAME=FOLDER, comma-separated.")
flags.DEFINE_string("tasks_dir", None, "Folder of the tasks' folders.")
flags.DEFINE_string("output_dir", "runs/experiments", "Folder of runs and reports.")
flags.DEFINE_multi_string("only", [], "A system to train; the report has all. Default: all.")
flags.DEFINE_list("plugins", [], "Python files or modules to import first, comma-separated.")
flags.DEFINE_integer("micro_batch_size", None, "Sequences at a time.", lower_bound=1)
flags.DEFINE_bool("rematerialize", None, "Recomputation of layers in pre-training.")
flags.DEFINE_bool("dry_run", False, "Runs, FLOPs, hours from a measured step, disk; no training.")
flags.DEFINE_bool("report", False, "Only the report, of what is finished.")


def main(_: list[str]) -> None:
    """Reads the experiment, makes its runs and writes the report."""
    convbert.common.startup.keep_memory()
    require_flags(FLAGS, {"experiment": f"a file or one of {', '.join(declaration.names())}"})
    plugins.load(FLAGS.plugins)
    # A folder's own name may have "=", too.
    split = (("", *re.split(r"^(\w*)=", of)) for of in FLAGS.data_dir)
    data_dirs = {name: folder for *_, name, folder in split}
    if len(data_dirs) < len(FLAGS.data_dir):
        raise InputError(f"--data_dir should be FOLDER,NAME=FOLDER. Received: {FLAGS.data_dir}")
    memory = {name: FLAGS[name].value for name in ("micro_batch_size", "rematerialize")}
    experiment = declaration.load(
        FLAGS.experiment,
        FLAGS.scale,
        output_dir=FLAGS.output_dir,
        data_dirs=data_dirs,
        tasks_dir=FLAGS.tasks_dir or "",
        run_values={name: value for name, value in memory.items() if value is not None},
    )
    if not FLAGS.dry_run:
        require_flags(FLAGS, {"data_dir": f"data for this scale. {experiment.scale.data}"})
        if experiment.scale.tasks or experiment.scale.measures:
            require_flags(FLAGS, {"tasks_dir": "a folder with the tasks' folders"})
    for folder in filter(None, [*experiment.data_dirs.values(), FLAGS.tasks_dir]):
        check_there("--data_dir or --tasks_dir", folder)
    if FLAGS.report:
        check_there("--output_dir", FLAGS.output_dir)
    # Imports TensorFlow, which takes seconds.
    from convbert.experiments import forecast, parts, report

    planned = parts.plan(experiment)
    reject_unknown(FLAGS.only, [*experiment.chosen])
    wanted = {*(FLAGS.only or experiment.chosen)}
    wanted |= {run.start.system for run in planned if run.start and run.system in wanted}
    chosen = [run for run in planned if run.system in wanted]
    if FLAGS.dry_run:
        print(forecast.table(experiment, parts.left(experiment, chosen)))
        return
    command = shlex.join(["convbert", "experiment", *sys.argv[1:]])
    if not FLAGS.report:
        parts.make_all(experiment, chosen)
    print(f"report: {report.write(experiment, planned, command)}")


if __name__ == "__main__":
    app.run(main_with_clear_errors(main))
