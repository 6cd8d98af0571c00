"""Pre-trains an encoder on records of build_pretraining_data.py.

    python run_pretraining.py --data_dir DATA --model_name mine --recipe configs/convbert_small.json

Run the same command again after an interruption: it resumes from the last checkpoint.
"""

from __future__ import annotations

import convbert.common.startup  # before TensorFlow

# isort: split
from absl import app, flags

from convbert.common.errors import main_with_clear_errors, require_flags
from convbert.common.files import check_there
from convbert.training import device_flags, workers

FLAGS = flags.FLAGS
flags.adopt_module_key_flags(device_flags)
flags.DEFINE_string("data_dir", None, "Folder of build_pretraining_data.py, or of ELECTRA's.")
flags.DEFINE_string("model_name", None, "Name of the run.")
flags.DEFINE_string("model_dir", None, "Model directory. Default: DATA_DIR/models/MODEL_NAME.")
flags.DEFINE_string("recipe", "", "JSON file of hyper-parameters, such as those in configs/.")
flags.DEFINE_string("hparams", "", "JSON text or file; overrides the recipe.")
flags.DEFINE_list("plugins", [], "Python files or modules to import first, comma-separated.")
flags.DEFINE_integer("seed", None, "Seed of weights, data order, masking, dropout. Default: 0.")
flags.DEFINE_bool("xla", None, "Compilation of the training step.")
flags.DEFINE_bool("do_train", True, "Training.")
flags.DEFINE_bool("do_eval", False, "Evaluation at checkpoints; with --nodo_train of the last one.")
flags.DEFINE_string("continue_from", None, "Model directory to read weights, optimizer, step from.")
flags.DEFINE_integer("additional_steps", None, "Steps beyond --continue_from's.", lower_bound=1)


def main(_: list[str]) -> None:
    """Reads the flags, prepares the run (see pretrain/run.py), and trains."""
    convbert.common.startup.keep_memory()
    require_flags(FLAGS, {"data_dir": "the output folder of build_pretraining_data.py"})
    if not FLAGS.model_dir:
        require_flags(FLAGS, {"model_name": "a name for the run (or --model_dir, its folder)"})
    check_there("--data_dir", FLAGS.data_dir)
    from convbert.pretrain import run  # imports TensorFlow, which takes seconds

    command = run.read_flags(FLAGS)
    with workers.at_work(command.run_settings.strategy, command.model_dir, FLAGS.worker_timeout):
        if not command.do_train:
            run.report(*run.without_training(command))
            return
        with run.prepared(command) as prepared:
            prepared.train()
        run.report(prepared.model_dir, prepared.step)


if __name__ == "__main__":
    app.run(main_with_clear_errors(main))
