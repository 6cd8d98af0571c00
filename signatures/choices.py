"""Contexts, questions and options to the option that is chosen."""

from __future__ import annotations

import tensorflow as tf

from model.heads.task import NO_OPTION
from signatures.network import Network, token_ids
from signatures.signature import TEXT, TRUNCATED, Signature, Tensor
from text.choices import lay_out_choices

_ANSWER = {
    "choice": Tensor("int32", "B"),
    "option": Tensor("string", "B"),
    "scores": Tensor("float32", "BC"),
    "probabilities": Tensor("float32", "BC"),
    "num_options": Tensor("int32", "B"),
    "truncated": TRUNCATED,
}


def signatures(network: Network) -> dict[str, Signature]:
    """`choose`, also as `serving_default`, and `token_ids` of a multiple-choice task."""
    task, hparams = network.model.task, network.model.hparams
    settings = {name: getattr(hparams, name) for name in task.plugin.shaping}
    del settings["max_seq_length"]  # which the layout has
    has_question = "question" in task.columns or task.format == "race"

    def choose(context, *texts):
        options = texts[-1]
        question = texts[0] if has_question else tf.zeros_like(context)
        B, C = tf.unstack(tf.shape(options))
        sequences = lay_out_choices(network.layout, context, question, options, **settings)
        features = network.features(sequences.ids, sequences.segment_ids)
        scores = network.predict(features, network.lengths(features))["score"]
        present = options != ""
        any_option = tf.reduce_any(present, axis=1)
        scores = tf.where(present, tf.reshape(scores, [B, C]), NO_OPTION)
        # One more, which is chosen where there is no option.
        padded = tf.pad(scores, [[0, 0], [0, 1]], constant_values=2 * NO_OPTION)
        best = tf.argmax(padded, axis=1, output_type=tf.int32)
        text = tf.gather(tf.pad(options, [[0, 0], [0, 1]]), best, batch_dims=1)
        probabilities = tf.where(present, tf.nn.softmax(scores), 0.0)
        last = tf.where(present, tf.range(1, C + 1), 0)
        return {
            "choice": tf.where(any_option, best, -1),
            "option": text,
            "scores": scores,
            "probabilities": probabilities,
            "num_options": tf.reduce_max(tf.pad(last, [[0, 0], [0, 1]]), axis=1),
            "truncated": tf.reduce_any(tf.reshape(sequences.truncated, [B, C]), axis=1),
        }

    inputs = {
        "context": TEXT,
        **({"question": TEXT} if has_question else {}),
        "options": Tensor("string", "BC"),
    }
    about = "a context, " + "a question " * has_question + "and options to the best option"
    chosen = Signature(about, choose, inputs, _ANSWER)
    raw = token_ids(network, network.predict, {"score": Tensor("float32", "B")})
    return {"serving_default": chosen, "choose": chosen, "token_ids": raw}
