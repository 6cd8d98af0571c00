"""Sentences to their words and tags, divided into rows as `finetune.encoding.encode_tags` does."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from serving.network import Network, token_ids
from serving.signature import TEXT, Signature, Tensors
from serving.text import TextLayout, take, valid_utf8

# What Python's str.split() parts at.
_WHITE_SPACE = r"[\x09-\x0d\x1c-\x1f\x{85}\p{Z}]+"
_TAGS = {
    "tags": 'string [B, W], one for each word; "" after the last',
    "num_words": "int32 [B], the number of words",
    "truncated": "bool [B], whether the sentence was divided into several rows between words, or"
    " a word was cut that is longer than a row",
}
_WORDS = 'string [B, W], the words; "" after the last'


class _Rows(NamedTuple):
    """The rows of a batch of sentences.

    Attributes:
        features: int32 [n, S] each; a sentence has none, one or several rows.
        row: int32 [words], the row of each word.
        position: int32 [words], where its first piece stands in that row.
        truncated: bool [B].
    """

    features: Tensors
    row: tf.Tensor
    position: tf.Tensor
    truncated: tf.Tensor


def tagging(network: Network) -> dict[str, Signature]:
    """`serving_default`, `words` and `token_ids` of a tagging task."""
    names = tf.constant(network.model.task.labels)

    def tags_of(words: tf.RaggedTensor, width: tf.Tensor | None = None) -> Tensors:
        rows = _rows(words, network.layout)
        predicted = predict(rows.features, network.lengths(rows.features))  # [n, S]
        places = tf.stack([rows.row, rows.position], -1)
        tags = words.with_values(tf.gather(names, tf.gather_nd(predicted, places)))
        shape = None if width is None else tf.stack([words.nrows(), width])
        return {
            "words": words.to_tensor("", shape=shape),
            "tags": tags.to_tensor("", shape=shape),
            "num_words": tf.cast(words.row_lengths(), tf.int32),
            "truncated": rows.truncated,
        }

    def predict(features, lengths=None):
        S = tf.shape(features["input_ids"])[1]
        return network.predict(features, lengths, {"tags": S})["tags"]

    def of_text(text):
        return tags_of(split_words(text))

    def of_words(words):
        """[B, W]: an empty string before the last word is a word of no pieces."""
        W = tf.shape(words, out_type=tf.int64)[1]
        last = tf.where(words != "", tf.range(1, W + 1), 0)
        lengths = tf.reduce_max(tf.pad(last, [[0, 0], [1, 0]]), 1)
        return tags_of(tf.RaggedTensor.from_tensor(valid_utf8(words), lengths), W)

    def of_ids(features):
        return {"tags": tf.gather(names, predict(features))}

    outputs = {"words": _WORDS, **_TAGS}
    text = TEXT + "; words stand between white space"
    word_list = _WORDS.replace("the words", "words of a sentence, UTF-8")
    raw = {"tags": "string [B, S], a tag for every token; those of words stand on the first piece"}
    return {
        "serving_default": Signature(
            "a sentence to its words and their tags", of_text, {"text": text}, outputs
        ),
        "words": Signature(
            "a list of words to their tags", of_words, {"words": word_list}, outputs
        ),
        "token_ids": token_ids(network, "a row of token ids to tags", of_ids, raw),
    }


def split_words(text: tf.Tensor) -> tf.RaggedTensor:
    """The words between white space: string [B], any bytes -> [B, (W)]."""
    return tf.strings.split(tf.strings.regex_replace(valid_utf8(text), _WHITE_SPACE, " "))


def _rows(words: tf.RaggedTensor, layout: TextLayout) -> _Rows:
    """[CLS] pieces [SEP]; too many pieces are divided between words into several rows."""
    budget = layout.max_seq_length - 2
    ids = layout.tokenizer.tokenize_ragged(words.values)  # [words, (pieces)]
    full = ids.row_lengths()
    unknown = tf.cast(full == 0, tf.int64)  # a control character, for instance
    unk = tf.fill([tf.reduce_sum(unknown)], layout.vocabulary.unk_id)
    kept = take(ids, tf.minimum(full, budget))
    pieces = tf.concat([kept, tf.RaggedTensor.from_row_lengths(unk, unknown)], 1)
    bounds = pieces.row_splits  # [words + 1]
    first = _row_starts(bounds, words, budget)  # [n]
    row_splits = tf.concat([tf.gather(bounds, first), bounds[-1:]], 0)
    body = tf.RaggedTensor.from_row_splits(pieces.values, row_splits)
    ones = tf.ones([body.nrows(), 1], tf.int32)
    rows = tf.concat([ones * layout.vocabulary.cls_id, body, ones * layout.vocabulary.sep_id], 1)

    number = tf.range(tf.size(words.values, tf.int64))
    row = tf.searchsorted(first, number, side="right") - 1
    position = bounds[:-1] - tf.gather(row_splits, row) + 1
    sentence = words.value_rowids()
    sentences = words.nrows()
    divided = tf.math.bincount(tf.gather(sentence, first), minlength=sentences) > 1
    cut = tf.math.unsorted_segment_sum(tf.cast(full > budget, tf.int32), sentence, sentences) > 0
    batch = layout.batch(rows, tf.zeros_like(rows), divided)
    return _Rows(batch.features, row, tf.cast(position, tf.int32), divided | cut)


def _row_starts(bounds: tf.Tensor, words: tf.RaggedTensor, budget: int) -> tf.Tensor:
    """The first word of each row, by a walk from the left through all sentences at once.

    Args:
        bounds: int64 [words + 1], where each word's pieces begin among all pieces; no word has
            more than `budget`.
        words: the sentences.
        budget: most pieces of a row.

    Returns:
        int64 [n], rising.
    """
    nonempty = words.row_lengths() > 0
    start = tf.boolean_mask(words.row_starts(), nonempty)
    stop = tf.boolean_mask(words.row_limits(), nonempty)

    def too_long(start, stop):
        return tf.gather(bounds, stop) - tf.gather(bounds, start) > budget

    def step(found, start, stop):
        going_on = too_long(start, stop)
        start, stop = tf.boolean_mask(start, going_on), tf.boolean_mask(stop, going_on)
        # The last word that begins where the row may end.
        start = tf.searchsorted(bounds, tf.gather(bounds, start) + budget, side="right") - 1
        start = tf.cast(start, tf.int64)
        return tf.concat([found, start], 0), start, stop

    found, _, _ = tf.while_loop(
        lambda found, start, stop: tf.reduce_any(too_long(start, stop)),
        step,
        (start, start, stop),
        shape_invariants=(tf.TensorShape([None]),) * 3,
    )
    return tf.sort(found)
