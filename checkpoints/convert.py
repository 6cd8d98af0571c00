"""Converts original TensorFlow 1 or Hugging Face files to a model directory, and back.

    convbert convert --source tf1 --input ELECTRA_FOLDER --output MODEL
    convbert convert --source huggingface --input FOLDER --output MODEL
    convbert convert --target tf1 --input MODEL --output FOLDER
    convbert convert --target huggingface --input MODEL --output FOLDER

With --source the output is a model directory: run_finetuning.py takes it as --model_dir,
run_pretraining.py as --continue_from; with --task it keeps the task's head, for
export_savedmodel.py. With --target the input is a model directory. Prints everything that was
inferred or left out. The output is written atomically.
"""

from __future__ import annotations

import convbert.common.startup  # noqa: F401  TensorFlow reads the environment when it is imported

# isort: split

from absl import app, flags

from convbert.checkpoints import FORMATS
from convbert.common import plugins, storage
from convbert.common.errors import InputError, main_with_clear_errors
from convbert.common.files import check_new_folder
from convbert.common.locks import locked

FLAGS = flags.FLAGS
flags.DEFINE_enum("source", None, FORMATS, "Format of the input, to convert to a model directory.")
flags.DEFINE_enum("target", None, FORMATS, "Format of the output, to convert a model directory to.")
flags.DEFINE_string("input", None, "Folder, or for tf1 a checkpoint's path without .index.")
flags.DEFINE_string("output", None, "Folder to create; it must be empty or not exist.")
flags.DEFINE_list("plugins", [], "Python files or modules to import first, comma-separated.")
flags.DEFINE_string("vocab", None, "vocab.txt, spiece.model or a folder. Default: beside --input.")
flags.DEFINE_bool("do_lower_case", None, "Casing. Default: as recorded, or on for word pieces.")
flags.DEFINE_bool("strip_accents", None, "Removal of accents. Default: as recorded, or the casing.")
flags.DEFINE_string("model_size", None, "tf1: named size, for what no config.json says.")
flags.DEFINE_string("generator", None, "huggingface: generator's folder. Default: INPUT/generator.")
flags.DEFINE_string("task", None, "huggingface: task of the head, its name or declaration.")
_OPTIONS = ("vocab", "do_lower_case", "strip_accents", "model_size", "generator", "task")


def main(_: list[str]) -> None:
    """Converts as the flags say."""
    plugins.load(FLAGS.plugins)
    if (FLAGS.source is None) == (FLAGS.target is None):
        raise InputError("either --source or --target should be given; see --help")
    options = {name: FLAGS[name].value for name in _OPTIONS}
    given = [name for name, value in options.items() if value is not None]
    if FLAGS.target and given:
        raise InputError(f"--{given[0]} is for --source; a model directory records it")
    if not storage.exists(FLAGS.input) and not storage.exists(f"{FLAGS.input}.index"):
        raise InputError(f"--input {FLAGS.input}: there is no such folder or checkpoint")
    check_new_folder(FLAGS.output)
    # Imports TensorFlow, which takes seconds.
    from convbert.checkpoints.formats import from_elsewhere, to_elsewhere
    from convbert.checkpoints.model_directory import Options

    with locked(FLAGS.output, beside=True):
        if FLAGS.target:
            notes = to_elsewhere(FLAGS.target, FLAGS.input, FLAGS.output)
        else:
            notes = from_elsewhere(FLAGS.source, FLAGS.input, FLAGS.output, Options(**options))
    print(*notes, f"written: {FLAGS.output}", sep="\n")


if __name__ == "__main__":
    flags.mark_flags_as_required(["input", "output"])
    app.run(main_with_clear_errors(main))
