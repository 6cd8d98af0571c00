"""Sentences to their words and tags."""

from __future__ import annotations

import tensorflow as tf

from model.heads.linear_chain import ChainScores, viterbi
from signatures.network import Network, token_ids
from signatures.signature import TEXT, TRUNCATED, Signature, Tensor, Tensors
from text.words import lay_out_words, split_words

_WORDS = Tensor("string", "BW")
_TAGGED = {
    "words": _WORDS,
    "tags": _WORDS,
    "num_words": Tensor("int32", "B"),
    "truncated": TRUNCATED,
}
_TAGS, _EMISSIONS = Tensor("string", "BS"), Tensor("float32", "BSL")  # of tokens


def signatures(network: Network) -> dict[str, Signature]:
    """`serving_default`, `words` and `token_ids` of a tagging task.

    With a CRF head, tags are the best path of a whole sentence, and `score` its log probability.
    Which tokens begin a word is not known of token ids, so `token_ids` has no path.
    """
    names = tf.constant(network.model.task.labels)
    chained = network.model.hparams.head == "crf"
    of_tokens = "emissions" if chained else "tags"

    def tags_of(words: tf.RaggedTensor, width: tf.Tensor | None = None) -> Tensors:
        sequences = lay_out_words(network.layout, words)
        features = network.features(sequences.ids, sequences.segment_ids)
        predicted = predict(features, network.lengths(features))  # [n, S]
        places = tf.stack([sequences.sequence, sequences.position], -1)
        of_words = words.with_values(tf.gather_nd(predicted, places))
        own = {}
        if chained:
            of_words, own["score"] = _best_paths(network, of_words)
        tags = words.with_values(tf.gather(names, of_words.values))
        shape = None if width is None else tf.stack([words.nrows(), width])
        return {
            "words": words.to_tensor("", shape=shape),
            "tags": tags.to_tensor("", shape=shape),
            "num_words": tf.cast(words.row_lengths(), tf.int32),
            "truncated": sequences.truncated,
            **own,
        }

    def predict(features, lengths=None):
        S = tf.shape(features["input_ids"])[1]
        return network.predict(features, lengths, {of_tokens: S})[of_tokens]

    def of_text(text):
        return tags_of(split_words(text))

    def of_words(words):
        """[B, W]: an empty string before the last word is a word of no pieces."""
        return tags_of(_without_padding(words), tf.shape(words, out_type=tf.int64)[1])

    def of_ids(features):
        found = predict(features)
        return {of_tokens: found if chained else tf.gather(names, found)}

    outputs = {**_TAGGED, **({"score": Tensor("float32", "B")} if chained else {})}
    about = "a sentence to its words and their tags"
    return {
        "serving_default": Signature(about, of_text, {"text": TEXT}, outputs),
        "words": Signature("a list of words to their tags", of_words, {"words": _WORDS}, outputs),
        "token_ids": token_ids(network, of_ids, {of_tokens: _EMISSIONS if chained else _TAGS}),
    }


def _without_padding(words: tf.Tensor) -> tf.RaggedTensor:
    """String [B, W] -> [B, (words)], without the empty strings behind the last word."""
    last = tf.where(words != "", tf.range(1, tf.shape(words, out_type=tf.int64)[1] + 1), 0)
    lengths = tf.reduce_max(tf.pad(last, [[0, 0], [1, 0]]), 1)
    return tf.RaggedTensor.from_tensor(words, lengths)


def _best_paths(network: Network, emissions: tf.RaggedTensor) -> tuple[tf.RaggedTensor, tf.Tensor]:
    """[B, (words), L] -> the indices of tags, int32 [B, (words)], their log probability [B]."""
    L = len(network.model.task.labels)
    lengths = tf.cast(emissions.row_lengths(), tf.int32)
    W = tf.maximum(emissions.bounding_shape(1), 1)
    padded = emissions.to_tensor(0.0, shape=tf.stack([emissions.nrows(), W, L]))
    padded = tf.ensure_shape(padded, [None, None, L])
    chain = ChainScores(**{n: tf.constant(x) for n, x in network.model.constants.items()})
    tags, score = viterbi(padded, lengths, chain)
    tags = tf.RaggedTensor.from_tensor(tags, tf.cast(lengths, tf.int64))
    return tags, tf.where(lengths > 0, score, 0.0)
