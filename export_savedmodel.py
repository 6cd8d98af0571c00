"""Exports a model directory as a SavedModel that takes text, or as a LiteRT file.

    python export_savedmodel.py --model_dir RUN --output_dir OUT
    python export_savedmodel.py --model_dir RUN --output_dir OUT --format litert

Loading a SavedModel requires only tensorflow and tensorflow_text, and none of this code.
A LiteRT file takes token ids; serving/predict.py passes text to it.
"""

from __future__ import annotations

import convbert.common.startup  # noqa: F401  before TensorFlow

# isort: split
import json
import shlex

from absl import app, flags

from convbert.common import plugins
from convbert.common.errors import InputError, main_with_clear_errors
from convbert.common.files import check_new_folder, check_there
from convbert.common.locks import locked

FLAGS = flags.FLAGS
flags.DEFINE_string("model_dir", None, "Fine-tuned run, folder of runs, or pre-trained model.")
flags.DEFINE_string("output_dir", None, "Folder to create.")
flags.DEFINE_list("plugins", [], "Python files or modules to import first, comma-separated.")
flags.DEFINE_enum("format", "savedmodel", ["savedmodel", "litert"], "Format of the model.")
flags.DEFINE_enum("weights", "float32", ["float32", "float16", "int8"], "LiteRT: type of matrices.")
flags.DEFINE_integer("max_seq_length", None, "Maximum sequence length. Default: as in training.")
flags.DEFINE_string("scoring_method", None, "Method of the signature score. Default: the first.")


def main(_: list[str]) -> None:
    """Checks the flags, exports the model, and prints its signatures and an example."""
    check_there("--model_dir", FLAGS.model_dir)
    if FLAGS.weights != "float32" and FLAGS.format != "litert":
        raise InputError("--weights is for --format litert")
    plugins.load(FLAGS.plugins)
    check_new_folder(FLAGS.output_dir)  # before slow steps
    import tensorflow as tf  # takes seconds

    from convbert.serving.export import export, export_litert
    from convbert.serving.load import load_model_directory

    tf.get_logger().setLevel("ERROR")
    where = FLAGS.output_dir, FLAGS.model_dir
    options = {"max_seq_length": FLAGS.max_seq_length, "scoring_method": FLAGS.scoring_method}
    with locked(FLAGS.output_dir, beside=True):
        model = load_model_directory(FLAGS.model_dir, **options)
        if FLAGS.format == "litert":
            description = export_litert(model, *where, FLAGS.weights)
        else:
            description = export(model, *where)
    print(f"{FLAGS.output_dir}: {FLAGS.format}, {FLAGS.weights}, {model.kind}")
    print(f"  at most {model.max_seq_length} tokens a sequence")
    for name, signature in description["signatures"].items():
        print(f"  {name}: {signature['about']}")
        print(f"    {', '.join(signature['inputs'])} -> {', '.join(signature['outputs'])}")
    if "serving_default" not in description["signatures"]:
        return  # it takes token ids alone
    inputs = description["signatures"]["serving_default"]["inputs"]
    row = {name: ["..."] if len(own["axes"]) > 1 else "..." for name, own in inputs.items()}
    command = f"convbert predict --model {shlex.quote(FLAGS.output_dir)}"
    print(f"ask it:\n  echo {shlex.quote(json.dumps(row))} | {command}")


if __name__ == "__main__":
    flags.mark_flags_as_required(["model_dir", "output_dir"])
    app.run(main_with_clear_errors(main))
