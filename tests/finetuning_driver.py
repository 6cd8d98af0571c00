"""Runs command lines of run_finetuning.py one after another in one process. Importing TensorFlow
takes seconds, and two commands' flags do not go into one process, so tests give a list of command
lines (JSON, standard input) and get a list of outcomes (JSON, the file that the argument names):
null, or what the error said."""

import json
import pathlib
import sys

import tensorflow as tf
from absl import flags
from absl.testing import flagsaver

from convbert import run_finetuning
from convbert.common.errors import CommandError


def outcome(arguments: list[str]) -> str | None:
    """Runs one command line."""
    with flagsaver.flagsaver():
        flags.FLAGS.unparse_flags()
        flags.FLAGS(["run_finetuning.py", *arguments])
        try:
            run_finetuning.main(["run_finetuning.py"])
        except CommandError as error:
            return str(error)
    return None


if __name__ == "__main__":
    cpu = tf.config.list_physical_devices("CPU")[0]  # divided before TensorFlow first uses it
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    found = [outcome(arguments) for arguments in json.load(sys.stdin)]
    pathlib.Path(sys.argv[1]).write_text(json.dumps(found))
