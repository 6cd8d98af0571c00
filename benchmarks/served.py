"""Our side of export_latency: the SavedModel that benchmarks/random_model.py was exported to."""

from __future__ import annotations

import tensorflow as tf

from benchmarks.texts import texts


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
