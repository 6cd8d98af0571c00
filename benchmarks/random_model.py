"""A pre-training model directory of random weights, for benchmarks of exported models.

python -m benchmarks.random_model SIZE FOLDER
"""

from __future__ import annotations

import sys

import tensorflow as tf
import tf_keras

from benchmarks.texts import made_up_vocabulary
from checkpoints.model_directory import Conversion, Networks, describe_pretraining, save
from model import build_encoder, named_size


def make_model(size: str, folder: str) -> None:
    """A pre-training model directory of random weights and a made-up vocabulary."""
    config = named_size(size)
    vocabulary = made_up_vocabulary(config.vocab_size)
    tf_keras.utils.set_random_seed(0)
    encoder = build_encoder(config)
    for variable in encoder.variables:  # so that no bias is zero, no scale one
        variable.assign_add(tf.random.normal(variable.shape, stddev=0.02))
    hparams = describe_pretraining(config, vocabulary)
    save(Conversion(config, hparams, vocabulary, Networks(encoder)), folder, {})


if __name__ == "__main__":
    make_model(*sys.argv[1:])
