"""Fine-tunes a pre-trained encoder on tasks and reports scores by the papers' protocol.

    python run_finetuning.py --model_dir MODEL --task cola --data_dir GLUE --num_trials 9

Run the same command again after an interruption: finished runs are kept, the others resume.
Exit status 0: done; 1: an error; 130: stopped by Ctrl-C; 129, 143 (SIGHUP, SIGTERM): run it again.
"""

from __future__ import annotations

import library_logs  # noqa: F401  TensorFlow reads the environment when it is imported

# isort: split
import os
import sys
from typing import Any

from absl import app, flags, logging

import plugins
from errors import main_with_clear_errors, require_flags
from finetune import kinds
from finetune.declaration import load_task, load_tasks
from finetune.glue import GLUE_TASKS
from finetune.grid import NOT_SWEPT, PAPER_GRID
from finetune.hparams import RunSettings
from finetune.settings import FLAG_NAMES, TASK_NAMES, Settings, split_hparams
from finetune.submission import write_glue_archive
from settings import checked_bool, read_json_object, reject_unknown, replace_checked, typed
from training import device_flags, workers

FLAGS = flags.FLAGS
flags.adopt_module_key_flags(device_flags)
flags.DEFINE_string(
    "model_dir", None, "Model directory of run_pretraining.py, or of a fine-tuning."
)
flags.DEFINE_list("task", None, "Names of tasks, `glue` for the eight, or a JSON declaration.")
flags.DEFINE_string("data_dir", None, "Folder of the tasks' files; tfds[:FOLDER] to download.")
flags.DEFINE_string("output_dir", None, "Folder of the runs. Default: MODEL_DIR/finetuning.")
flags.DEFINE_string("recipe", "", "JSON file of hyper-parameters, such as those in configs/.")
flags.DEFINE_string("hparams", "", "JSON text or file; overrides the recipe.")
flags.DEFINE_list("plugins", [], "Python files or modules to import first, comma-separated.")
flags.DEFINE_integer(
    "num_trials", None, "Runs of each setting, each with its own seed. Default: 1."
)
flags.DEFINE_string("sweep", "", "JSON of lists of values, or `paper` for the papers' grid.")
flags.DEFINE_integer(
    "seed", None, "Seed of the first trial: new weights, order, dropout. Default: 0."
)
flags.DEFINE_bool("xla", None, "Compilation of the training step, for each length of batch.")
flags.DEFINE_list("init", None, "Initial weights: pretrained (default), random, or both.")
flags.DEFINE_bool("do_train", True, "Training; --nodo_train measures finished runs again.")
flags.DEFINE_bool(
    "dry_run", False, "Number of runs and steps and their estimated time, from a few steps."
)
flags.DEFINE_integer(
    "show_errors",
    0,
    "Number of largest errors to write per run and dev split; of finished runs with --nodo_train.",
    lower_bound=0,
)
flags.DEFINE_enum(
    "glue_submission",
    None,
    ["available", "filled"],
    "Kind of submission.zip for the GLUE server; `filled`: the most frequent label where not run.",
)


def main(_: list[str]) -> None:
    """Reads what the flags say; then see finetune/run.py."""
    require_flags(FLAGS, {"model_dir": "a model directory, such as run_pretraining.py writes"})
    logging.set_verbosity(logging.WARNING)
    plugins.load(FLAGS.plugins)
    settings = read_settings()
    from finetune.run import fine_tuned  # TensorFlow: it takes seconds

    dry_run, timeout = FLAGS.dry_run, FLAGS.worker_timeout
    with fine_tuned(settings, timeout, dry_run=dry_run):
        if dry_run:
            return
        if FLAGS.glue_submission and workers.is_chief():
            fill = FLAGS.glue_submission == "filled"
            print(f"submission: {write_glue_archive(settings.output_dir, fill_missing=fill)}")


def read_settings() -> Settings:
    """Recipe, then --hparams, then flags."""
    recipe = read_json_object(FLAGS.recipe, "--recipe")
    recipe.pop("about", None)  # source, cost and expected score
    per_task = read_task_settings(recipe.pop("tasks", {}))
    given = read_json_object(FLAGS.hparams)
    names = FLAGS.task or given.get(TASK_NAMES) or recipe.get(TASK_NAMES)
    names = typed(TASK_NAMES, names, tuple[str, ...])
    names = [part for name in names for part in (GLUE_TASKS if name == "glue" else [name])]
    recipe_hparams, recipe_run, _ = split_hparams(recipe)
    hparams, run, ignored = split_hparams(given)
    if ignored:
        print(f"not used, as flags or the model say it: {', '.join(ignored)}", file=sys.stderr)
    for name in FLAG_NAMES:  # the original's JSON may hold them; the command line goes first
        if name in given and not FLAGS[name].present:
            FLAGS[name].value = checked_bool(name, given[name])
    for target, flag_names in (
        (hparams, ("seed", "precision")),
        (run, ("strategy", "tpu", "xla", "micro_batch_size", "rematerialize", "num_trials")),
    ):
        target |= {n: FLAGS[n].value for n in flag_names if FLAGS[n].value is not None}
    return Settings(
        model_dir=FLAGS.model_dir,
        data_dir=FLAGS.data_dir or "",
        output_dir=FLAGS.output_dir or os.path.join(FLAGS.model_dir, "finetuning"),
        tasks=load_tasks(names),
        run=replace_checked(RunSettings(), {**recipe_run, **run}),
        recipe=recipe_hparams,
        per_task=per_task,
        given=hparams,
        grid=PAPER_GRID if FLAGS.sweep == "paper" else read_json_object(FLAGS.sweep, "--sweep"),
        inits=tuple(FLAGS.init or ()),
        train=FLAGS.do_train,
        show_errors=FLAGS.show_errors,
    )


def read_task_settings(tasks: Any) -> dict[str, dict[str, Any]]:
    """A recipe's hyper-parameters of single tasks, by the task's name."""
    tasks = typed("tasks", tasks, dict[str, dict[str, Any]])
    known = [name for name in kinds.hparam_names() if name not in NOT_SWEPT]
    for values in tasks.values():
        reject_unknown(values, known)
    return {load_task(name).name: values for name, values in tasks.items()}


if __name__ == "__main__":
    app.run(main_with_clear_errors(main))
