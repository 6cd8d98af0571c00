"""The signature that scores sentences, by a pre-trained model's scoring method."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from convbert.common.settings import present
from convbert.data.text.layout import take
from convbert.data.text.words import split_words
from convbert.serving.signatures.network import SCORE, SCORED, Function, Network
from convbert.serving.signatures.parts import TOKENS_PER_PART, InParts
from convbert.serving.signatures.signature import (
    FEATURES,
    TEXT,
    TRUNCATED,
    Signature,
    Tensor,
    Tensors,
)

_LOGITS_PER_PART = 2**25  # 128 MiB in float32
_MAX_PADDING = 0.1  # for sequences computed in one pass
_PASS = {name: tf.TensorSpec([None], tf.int32, name) for name in ("sequence", "position")}

# Maps features with `scored`, int32 [n, S], and the number of tokens that affect each sequence's
# answer, int32 [n], to sums of log scores, float32 [n].
Totals = Callable[[Tensors, tf.Tensor], tf.Tensor]


def score(network: Network) -> Signature:
    """Returns the signature of log scores of sentences, truncated to a sequence.

    A causal model of whole words also scores the `<eos>` after each sentence, as it has learned the
    ends of lines.
    """
    method, layout = present(network.model.scoring_method), network.layout
    log_scores, vocabulary = network.model.functions[SCORE], layout.vocabulary
    if method.masks_each:
        totals = _masking_each(log_scores, vocabulary.mask_id, network.model.config.vocab_size)
    else:
        totals = _in_one_pass(log_scores)
    room = layout.max_seq_length - layout.frame.size(1)
    # The end of a line also precedes the first line; only words have such a piece.
    ends = method.causal and layout.frame.begin == layout.frame.after_text

    def function(text):
        pieces = layout.tokenize(text)
        if ends:
            pieces = layout.closed(pieces)
        full = pieces.row_lengths()
        pieces = take(pieces, tf.minimum(full, room))
        features = network.features(*layout.joined(pieces))
        place = tf.range(tf.shape(features["input_ids"], tf.int64)[1]) - len(layout.frame.begin)
        scored = (place >= 0) & (place < pieces.row_lengths()[:, None])  # [B, S]
        features[SCORED] = tf.cast(scored, tf.int32)
        counts = {
            "num_pieces": pieces.row_lengths(),
            "num_words": split_words(text).row_lengths(),
            "num_unknown": tf.reduce_sum(tf.cast(pieces == vocabulary.unk_id, tf.int32), 1),
        }
        return {
            "score": totals(features, network.lengths(features)),
            **{name: tf.cast(count, tf.int32) for name, count in counts.items()},
            "truncated": full > room,
        }

    outputs = {
        "score": Tensor("float32", "B"),
        "num_pieces": Tensor("int32", "B"),
        "num_words": Tensor("int32", "B"),
        "num_unknown": Tensor("int32", "B"),
        "truncated": TRUNCATED,
    }
    about = f"how natural a sentence is, by {method.name}"
    return Signature(about, function, {"text": TEXT}, outputs)


def _in_one_pass(log_scores: Function) -> Totals:
    def totals_of(part):
        found = log_scores.compute(part)["log_scores"]
        return {"totals": tf.reduce_sum(tf.where(part[SCORED] > 0, found, 0.0), 1)}

    in_parts = InParts(totals_of, inputs=log_scores.specs(), max_padding=_MAX_PADDING)
    return lambda features, lengths: in_parts(features, lengths)["totals"]


def _masking_each(log_scores: Function, mask_id: int, vocab_size: int) -> Totals:
    """Returns a function with a pass per scored token, for all sequences sorted by length.

    This needs little padding even if lengths differ. Only the sequences of the current part are in
    memory.
    """
    # The logits of a pass count as that many tokens.
    least = -(-vocab_size * TOKENS_PER_PART // _LOGITS_PER_PART)

    def totals(features, lengths):
        def masked(part):
            sequence, position = part["sequence"], part["position"]
            width = tf.reduce_max(tf.concat([[1], tf.gather(lengths, sequence)], 0))
            found = {name: tf.gather(features[name], sequence)[:, :width] for name in FEATURES}
            ids = found["input_ids"]
            token = tf.gather(ids, position, batch_dims=1)
            is_masked = tf.range(tf.shape(ids)[1]) == position[:, None]
            found["input_ids"] = tf.where(is_masked, mask_id, ids)
            return log_scores.compute({**found, "position": position, "token": token})

        places = tf.cast(tf.where(features[SCORED] > 0), tf.int32)  # [passes, 2]
        passes = dict(zip(_PASS, tf.unstack(places, axis=1)))
        widths = tf.maximum(tf.gather(lengths, passes["sequence"]), least)
        found = InParts(masked, inputs=_PASS)(passes, widths)["log_scores"]
        return tf.math.unsorted_segment_sum(found, passes["sequence"], tf.size(lengths))

    return totals
