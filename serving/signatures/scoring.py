"""Sentences to their scores, by the scoring method of a pre-trained model."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from common.settings import present
from data.text.layout import row_ids
from data.text.words import split_words
from serving.signatures.network import SCORE, SCORED, Function, Network
from serving.signatures.parts import TOKENS_PER_PART, InParts
from serving.signatures.signature import FEATURES, TEXT, Signature, Tensor, Tensors

_LOGITS_PER_PART = 2**25  # 128 MiB in float32
_MAX_PADDING = 0.1  # of sequences that are computed in one pass
_PASS = {name: tf.TensorSpec([None], tf.int32, name) for name in ("sequence", "position")}

# From features with `scored`, int32 [n, S], and how many tokens of each sequence its answer depends
# on, int32 [n], to sums of log scores, float32 [n].
Totals = Callable[[Tensors, tf.Tensor], tf.Tensor]


def score(network: Network) -> Signature:
    """Log scores of sentences of any length; what does not fit is divided with overlap.

    Two bidirectional parts share half of their pieces, of which each scores the half that is
    nearer to its middle; so does a causal part the half that has more before it. A causal model of
    whole words scores the `<eos>` behind each sentence, too, as it has learned where lines end.
    """
    method, layout = present(network.model.scoring_method), network.layout
    log_scores, vocabulary = network.model.functions[SCORE], layout.vocabulary
    if method.masks_each:
        totals = _masking_each(log_scores, vocabulary.mask_id, network.model.config.vocab_size)
    else:
        totals = _in_one_pass(log_scores)
    room = layout.max_seq_length - layout.frame.size(1)
    context = (room // 2, 0) if method.causal else (room // 4, room // 4)
    # What ends a line comes before the first one, too: only words have such a piece.
    ends = method.causal and layout.frame.begin == layout.frame.after_text

    def function(text):
        pieces = layout.tokenize(text)
        unknown = tf.cast(pieces == layout.vocabulary.unk_id, tf.int32)
        if ends:
            pieces = layout.closed(pieces)
        parts = overlapping_parts(pieces, room, *context)
        features = network.features(*layout.joined(parts.pieces))
        place = tf.range(tf.shape(features["input_ids"], tf.int64)[1]) - len(layout.frame.begin)
        scored = (place >= parts.start[:, None]) & (place < parts.end[:, None])  # [n, S]
        features[SCORED] = tf.cast(scored, tf.int32)
        found = totals(features, network.lengths(features))
        counts = {
            "num_pieces": pieces.row_lengths(),
            "num_words": split_words(text).row_lengths(),
            "num_unknown": tf.reduce_sum(unknown, 1),
        }
        total = tf.math.unsorted_segment_sum(found, parts.text, tf.size(text))
        return {"score": total, **{name: tf.cast(n, tf.int32) for name, n in counts.items()}}

    outputs = {
        "score": Tensor("float32", "B"),
        "num_pieces": Tensor("int32", "B"),
        "num_words": Tensor("int32", "B"),
        "num_unknown": Tensor("int32", "B"),
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
    """A pass for each scored token, of all sequences together in the order of their lengths.

    So hardly anything is padded, however the lengths of a request differ. Only the sequences of the
    part that is computed exist.
    """
    # A pass has logits, which count as so many tokens.
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


class Parts(NamedTuple):
    """The n parts of B texts; each text has one or several.

    Attributes:
        pieces: int32 [n, (pieces)], what each part shows.
        text: int64 [n], the text of each part; never falls.
        start: int64 [n], the first piece that counts in the part, from the part's first.
        end: int64 [n], one past the last.
    """

    pieces: tf.RaggedTensor
    text: tf.Tensor
    start: tf.Tensor
    end: tf.Tensor


def overlapping_parts(pieces: tf.RaggedTensor, room: int, before: int, after: int) -> Parts:
    """Divides texts that do not fit; each piece counts in exactly one part.

    Where it counts, at least `before` pieces in front of it and `after` behind it are shown, unless
    the text begins or ends earlier. The last part is as full as the others. A text of no pieces has
    one part, of none.

    Args:
        pieces: int32 [B, (pieces)].
        room: the maximum of a part, greater than before + after.
        before, after: how many pieces.
    """
    total = pieces.row_lengths()  # [B]
    step = room - before - after
    count = 1 - tf.maximum(total - room, 0) // -step  # 1 + the ceiling
    numbers = tf.ragged.range(count)  # [B, (parts)]
    text, number = row_ids(numbers), numbers.values  # [n]
    size = tf.gather(total, text)
    shown = tf.minimum(number * step, tf.maximum(size - room, 0))
    first = tf.where(number > 0, number * step + before, 0)
    is_last = number + 1 == tf.gather(count, text)
    end = tf.where(is_last, size, (number + 1) * step + before)
    base = tf.gather(pieces.row_starts(), text) + shown
    tokens = tf.ragged.range(base, base + tf.minimum(size - shown, room))
    return Parts(tf.gather(pieces.values, tokens), text, first - shown, end - shown)
