"""Pre-trains an encoder on the records that build_pretraining_data.py wrote.

    python run_pretraining.py --data_dir DATA --model_name mine --recipe configs/convbert_small.json

Run the same command again after an interruption: it resumes from the last checkpoint.
Exit status 0: done; 1: an error; 130: stopped by Ctrl-C; 129, 143 (SIGHUP, SIGTERM): run it again.
"""

from __future__ import annotations

import library_logs  # noqa: F401  TensorFlow reads the environment when it is imported

# isort: split
import os
import sys

from absl import app, flags, logging

import plugins
from errors import InputError, main_with_clear_errors, require_flags
from files import check_there
from pretrain.hparams import (
    CONTINUE_FLAGS,
    FLAG_NAMES,
    CommandLine,
    RunSettings,
    split_hparams,
    with_length_of_data,
)
from pretrain.original_names import translate
from settings import checked_bool, read_json_object, replace_checked
from training import device_flags, workers
from training.strategies import check_strategy

FLAGS = flags.FLAGS
flags.adopt_module_key_flags(device_flags)
flags.DEFINE_string(
    "data_dir", None, "Folder with pretrain_tfrecords/ and vocab.txt or spiece.model."
)
flags.DEFINE_string("model_name", None, "Name of the run.")
flags.DEFINE_string("model_dir", None, "Model directory. Default: DATA_DIR/models/MODEL_NAME.")
flags.DEFINE_string("recipe", "", "JSON file of hyper-parameters, such as those in configs/.")
flags.DEFINE_string("hparams", "", "JSON text or file; overrides the recipe.")
flags.DEFINE_list("plugins", [], "Python files or modules to import first, comma-separated.")
flags.DEFINE_integer("seed", None, "Seed of weights, data order, masking, dropout. Default: 0.")
flags.DEFINE_bool("xla", None, "Compilation of the training step.")
flags.DEFINE_bool("do_train", True, "Training.")
flags.DEFINE_bool(
    "do_eval",
    False,
    "Evaluation on held-out records at every checkpoint; with --nodo_train, of the last one, also"
    " on a --data_dir that the model was not trained on.",
)
flags.DEFINE_string("continue_from", None, "Model directory to take weights, optimizer, step from.")
flags.DEFINE_enum(
    "continue_optimizer",
    None,
    ["carried", "fresh"],
    "Optimizer moments: those of --continue_from (default, where it has them) or zero.",
)
flags.DEFINE_integer(
    "additional_steps",
    None,
    "Steps beyond --continue_from's; warm-up and decay of learning_rate run over these alone.",
    lower_bound=1,
)
flags.DEFINE_bool(
    "new_networks",
    False,
    "Random weights for what --continue_from lacks (generator, heads).",
)
NEEDED_FLAGS = {"data_dir": "the folder that build_pretraining_data.py wrote"}


def main(_: list[str]) -> None:
    """Reads the flags, and whether what they name is there; then see pretrain/run.py."""
    logging.set_verbosity(logging.WARNING)  # orbit logs a block of text per loop of steps
    plugins.load(FLAGS.plugins)
    hparam_values, run_values = read_settings()
    command = read_command()
    if command.do_train and command.continue_from is None:
        hparam_values = with_length_of_data(hparam_values, command.data_dir)
    strategy = replace_checked(RunSettings(), run_values).strategy
    with workers.at_work(strategy, command.model_dir, FLAGS.worker_timeout):
        from pretrain import run  # TensorFlow: it takes seconds

        if command.do_train:
            run.pretrain(command, hparam_values, run_values)
        else:
            run.without_training(command, hparam_values, run_values)


def read_command() -> CommandLine:
    """Where to train or evaluate, from what; all folders that must be there are."""
    require_flags(FLAGS, NEEDED_FLAGS)
    if not FLAGS.model_dir:
        require_flags(FLAGS, {"model_name": "a name for the run (or --model_dir, its folder)"})
    check_there("--data_dir", FLAGS.data_dir)
    return CommandLine(
        data_dir=FLAGS.data_dir,
        model_dir=FLAGS.model_dir or os.path.join(FLAGS.data_dir, "models", FLAGS.model_name),
        do_train=FLAGS.do_train,
        do_eval=FLAGS.do_eval,
        **{name: FLAGS[name].value for name in CONTINUE_FLAGS},
    )


def read_settings() -> tuple[dict, dict]:
    """Recipe, then --hparams, then flags; returns hyper-parameters and run settings."""
    values = translate(read_json_object(FLAGS.recipe, "--recipe"))
    values.update(translate(read_json_object(FLAGS.hparams)))
    values.pop("about", None)  # a recipe's source, cost and expected score
    check_continue_flags()
    hparams, run, ignored = split_hparams(values)
    for name in FLAG_NAMES:  # the original's JSON may hold them; the command line goes first
        if name in values and not FLAGS[name].present:
            FLAGS[name].value = checked_bool(name, values[name])
    if ignored:
        print(f"not used here, flags say this: {', '.join(ignored)}", file=sys.stderr)
    run_flags = ("strategy", "tpu", "xla", "micro_batch_size", "rematerialize")
    for target, names in ((hparams, ("seed", "precision")), (run, run_flags)):
        target.update({name: FLAGS[name].value for name in names if FLAGS[name].value is not None})
    checked = replace_checked(RunSettings(), run)
    check_strategy(checked.strategy, checked.tpu)
    return hparams, run


def check_continue_flags() -> None:
    """Rejects flags of --continue_from without it, and steps that are given twice."""
    given = [name for name in CONTINUE_FLAGS if FLAGS[name].value]
    if given and FLAGS.continue_from is None:
        raise InputError(f"--{given[0]} is for continuing from another model with --continue_from")
    twice = {"num_train_steps", "schedule_from_step"} & set(read_json_object(FLAGS.hparams))
    if twice and FLAGS.additional_steps is not None:
        raise InputError(f"--additional_steps sets `{min(twice)}`, so --hparams should not")


if __name__ == "__main__":
    app.run(main_with_clear_errors(main))
