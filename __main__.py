"""The project's commands under one name.

convbert pretrain --data_dir DATA --model_name mine --recipe configs/convbert_small.json
convbert COMMAND --help
"""

from __future__ import annotations

import runpy
import sys

from convbert import __version__

# Name -> description, module, and flags to prepend.
COMMANDS = {
    "build-data": ("text to a vocabulary and TFRecords", "build_pretraining_data"),
    "pretrain": ("TFRecords to an encoder", "run_pretraining"),
    "finetune": ("labelled rows to a model of a task, and its scores", "run_finetuning"),
    "experiment": ("a published comparison, from pre-training to its report", "run_experiment"),
    "evaluate": ("scores of a fine-tuned or exported model on labelled rows", "serving.evaluate"),
    "retrieval": ("a search data set to scores of a model's vectors", "serving.retrieval"),
    "export": ("a model directory to a SavedModel or a LiteRT file", "export_savedmodel"),
    "predict": ("rows to the answers of an exported model", "serving.predict"),
    "score": ("sentences to log-likelihoods", "serving.predict", "--signature=score"),
    "rescore": ("n-best lists to a language model's choice", "serving.scoring.rescore"),
    "perplexity": ("a text to its perplexity", "serving.scoring.perplexity"),
    "convert": ("checkpoints from and to TensorFlow 1 and Hugging Face", "checkpoints.convert"),
    "average": ("the last checkpoints of a model to their mean", "checkpoints.average"),
    "enlarge": ("a model to a larger one that starts from its weights", "checkpoints.enlarge"),
    "flops": ("parameters and operations of pre-training", "analysis.flops"),
    "attention": ("where attention and kernels look, on a task's texts", "analysis.attention"),
    "view": ("a page to look inside a model, for one text", "analysis.view"),
}
_USAGE = "usage: convbert COMMAND [FLAGS]\n\n" + "\n".join(
    f"  {name:<11} {about}" for name, (about, *_) in COMMANDS.items()
)
_USAGE += "\n\nexit status 0: done; 1, 2: an error; 75: a worker was lost, start all again;\n"
_USAGE += "129, 130, 143: stopped by a signal, run it again"


def main() -> None:
    """Runs the command's module as the main program."""
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if name in COMMANDS:
        _, module, *flags = COMMANDS[name]
        sys.argv[:2] = [name, *flags]
        try:
            runpy.run_module(f"convbert.{module}", run_name="__main__", alter_sys=True)
        except SystemExit:
            if "--help" not in sys.argv:
                raise  # absl ends with status 1 after --help, too
    elif name in ("-h", "--help", "help"):
        print(_USAGE)
    elif name == "--version":
        print(__version__)
    else:
        sys.exit(f"error: there is no command {name!r}\n\n{_USAGE}")


if __name__ == "__main__":
    main()
