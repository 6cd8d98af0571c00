"""Our side of export_latency: a model directory of random weights, and its SavedModel.

    python -m benchmarks.served SIZE FOLDER

makes the model directory.
"""

from __future__ import annotations

import sys

import tensorflow as tf

from benchmarks.texts import made_up_words, texts


def vectors(folder: str, batch: int, length: int):
    """The SavedModel's `embeddings`: strings to the vectors of [CLS]."""
    import tensorflow_text  # noqa: F401  the graph's tokenizer

    model = tf.saved_model.load(folder)
    embed, strings = model.signatures["embeddings"], tf.constant(texts(batch, length))

    def answer():
        return embed(text=strings)["pooled"].numpy()

    answer.facts = {"vector": answer()[0].tolist()}
    answer.model = model  # signatures do not keep it alive
    return answer


def make_model(size: str, folder: str) -> None:
    """A pre-training model directory of random weights and a made-up vocabulary."""
    import tf_keras

    from checkpoints.model_directory import Conversion, Networks, describe_pretraining, save
    from data.vocabulary import SPECIAL_TOKENS, Vocabulary
    from model import build_encoder, named_size

    config = named_size(size)
    words = made_up_words(config.vocab_size - len(SPECIAL_TOKENS))
    vocabulary = Vocabulary((*SPECIAL_TOKENS, *words))
    tf_keras.utils.set_random_seed(0)
    encoder = build_encoder(config)
    for variable in encoder.variables:  # so that no bias is zero, no scale one
        variable.assign_add(tf.random.normal(variable.shape, stddev=0.02))
    hparams = describe_pretraining(config, vocabulary)
    save(Conversion(config, hparams, vocabulary, Networks(encoder)), folder, {})


if __name__ == "__main__":
    make_model(*sys.argv[1:])
