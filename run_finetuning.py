"""Fine-tunes a pre-trained encoder on tasks and reports scores by the papers' protocol.

    python run_finetuning.py --model_dir MODEL --task cola --data_dir GLUE --num_trials 9

Run the same command again after an interruption: finished runs are kept, the others resume.
"""

from __future__ import annotations

import convbert.common.startup  # before TensorFlow

# isort: split
import os

from absl import app, flags

from convbert.common import plugins
from convbert.common.errors import main_with_clear_errors, require_flags
from convbert.common.settings import read_json_object, typed
from convbert.finetune.declaration import GLUE_TASKS, load_task
from convbert.finetune.plan import DO_TRAIN, PAPER_GRID, TASK_NAMES, Plan, make_plan
from convbert.training import device_flags

FLAGS = flags.FLAGS
flags.adopt_module_key_flags(device_flags)
flags.DEFINE_string("model_dir", None, "Model directory of pre-training or of a fine-tuning run.")
flags.DEFINE_list("task", None, "Names of tasks, `glue` for all eight, or a JSON declaration.")
flags.DEFINE_string("data_dir", None, "Folder of the tasks' files; tfds[:FOLDER] to download.")
flags.DEFINE_integer("checkpoint_step", None, "Pre-trained checkpoint's step. Default: the last.")
flags.DEFINE_string("output_dir", None, "Folder of runs. Default: MODEL_DIR/finetuning[_step_N].")
flags.DEFINE_string("recipe", "", "JSON file of hyper-parameters, such as those in configs/.")
flags.DEFINE_string("hparams", "", "JSON text or file; overrides the recipe.")
flags.DEFINE_list("plugins", [], "Python files or modules to import first, comma-separated.")
flags.DEFINE_integer("num_trials", None, "Runs of each setting, of as many seeds. Default: 1.")
flags.DEFINE_string("sweep", "", "JSON of lists of values, or `paper` for the papers' grid.")
flags.DEFINE_integer("seed", None, "Seed of the first trial: weights, order, dropout. Default: 0.")
flags.DEFINE_bool("xla", None, "Compilation of the training step, once per batch length.")
flags.DEFINE_list("init", None, "Initial weights: pretrained (default), random, or both.")
flags.DEFINE_bool("do_train", True, "Training; --nodo_train evaluates finished runs again.")


def main(_: list[str]) -> None:
    """Reads the flags and runs the plan; see finetune/run.py."""
    convbert.common.startup.keep_memory()
    require_flags(FLAGS, {"model_dir": "a model directory, such as one of run_pretraining.py"})
    plugins.load(FLAGS.plugins)
    plan = read_plan()
    from convbert.finetune.run import fine_tune_all  # imports TensorFlow: takes seconds

    fine_tune_all(plan, FLAGS.worker_timeout)


def read_plan() -> Plan:
    """Merges recipe, --hparams and flags; later ones take precedence."""
    recipe, given = read_json_object(FLAGS.recipe, "--recipe"), read_json_object(FLAGS.hparams)
    names = FLAGS.task or given.get(TASK_NAMES) or recipe.get(TASK_NAMES)
    if names is None:
        require_flags(FLAGS, {"task": "a task's name, or its JSON file"})
    names = typed(TASK_NAMES, names, tuple[str, ...])
    names = [part for name in names for part in (GLUE_TASKS if name == "glue" else [name])]
    train = FLAGS.do_train
    if not FLAGS[DO_TRAIN].present:  # may be in the original's JSON; the command line wins
        train = typed(DO_TRAIN, {**recipe, **given}.get(DO_TRAIN, train), bool)
    step = FLAGS.checkpoint_step
    folder = "finetuning" if step is None else f"finetuning_step_{step}"
    flag_names: tuple[str, ...] = ("seed", "precision", "strategy", "tpu", "xla")
    flag_names += ("micro_batch_size", "rematerialize", "num_trials")
    return make_plan(
        [load_task(name) for name in names],
        recipe,
        given,
        {name: FLAGS[name].value for name in flag_names},
        model_dir=FLAGS.model_dir,
        data_dir=FLAGS.data_dir or "",
        output_dir=FLAGS.output_dir or os.path.join(FLAGS.model_dir, folder),
        grid=PAPER_GRID if FLAGS.sweep == "paper" else read_json_object(FLAGS.sweep, "--sweep"),
        inits=tuple(FLAGS.init or ()),
        train=train,
        checkpoint_step=step,
    )


if __name__ == "__main__":
    app.run(main_with_clear_errors(main))
