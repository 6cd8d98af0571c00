"""Sequences of multiple choice: [CLS] context [SEP] question [SEP] option [SEP]."""

from __future__ import annotations

import tensorflow as tf

from convbert.data.text.layout import Sequences, TextLayout, last, row_ids, take

BLANK = "_"
CHOICE_SETTINGS = ("max_qa_length", "question_apart", "fill_blank")  # of `lay_out_choices`


def lay_out_choices(
    layout: TextLayout,
    context: tf.Tensor,
    question: tf.Tensor,
    options: tf.Tensor,
    *,
    max_qa_length: int,
    question_apart: bool,
    fill_blank: bool,
) -> Sequences:
    """Lays out B contexts, each with its question and one of its C options: B * C sequences.

    Keeps the last `max_qa_length` pieces of question and option, or as many as fit into a sequence,
    then truncates the context at its end. An option "" means no option: its sequence has only
    special pieces.

    With `question_apart`, question and option each end with [SEP], and both are in segment 1.
    Otherwise they are one text, joined by a space. A question without pieces has no [SEP].

    Sources: section IV-A of the ALE report; `featurize` in run_race.py of XLNet, without its bug
    that contexts include earlier options (issue 204).

    Args:
        context: string [B], valid UTF-8; equal ones are tokenized once.
        question: string [B], "" for no question.
        options: string [B, C].
        fill_blank: whether the option replaces each run of "_" in the question. Without
            `question_apart`, the option is then not appended to such a question.

    Returns `ids`, `segment_ids` [B * C, (tokens)] and `truncated` bool [B * C].
    """
    B, C = tf.unstack(tf.shape(options, tf.int64))
    example = tf.repeat(tf.range(B), C)  # [B * C]
    option = tf.reshape(options, [-1])
    asked, option = _asked(question, example, option, question_apart, fill_blank)
    first, second = layout.tokenize(asked), layout.tokenize(option)
    present = tf.cast(tf.reshape(options, [-1]) != "", tf.int64)

    frame = layout.frame
    room = layout.max_seq_length - frame.size(3 if question_apart else 2)
    pair = first.row_lengths() + second.row_lengths()
    dropped = tf.maximum(pair - min(max_qa_length, room), 0)
    first = last(first, present * tf.maximum(first.row_lengths() - dropped, 0))
    second = last(second, tf.minimum(second.row_lengths(), min(max_qa_length, room)))
    if question_apart:
        has_question = tf.cast(first.row_lengths() > 0, tf.int64)
        tail = tf.concat([layout.closed(first, has_question), layout.closed(second)], 1)
    else:
        tail = layout.closed(tf.concat([first, second], 1))

    left = present * (layout.max_seq_length - frame.size(1) - tail.row_lengths())
    distinct, which = tf.unique(context, tf.int64)
    pieces = tf.gather(layout.tokenize(distinct), tf.gather(which, example))
    shown = take(pieces, tf.minimum(pieces.row_lengths(), left))
    cut = (shown.row_lengths() < pieces.row_lengths()) | (dropped > 0)
    return Sequences(*layout.joined(shown, tail), (present > 0) & cut)


def _asked(
    question: tf.Tensor,
    example: tf.Tensor,
    option: tf.Tensor,
    question_apart: bool,
    fill_blank: bool,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns question and option of each sequence before tokenization, string [n] each.

    As one text, both are in the first.
    """
    if fill_blank:
        single = tf.strings.regex_replace(question, f"{BLANK}+", BLANK)
        parts = tf.gather(tf.strings.split(single, BLANK), example)  # [n, (parts)]
        place = tf.range(tf.size(parts.values, tf.int64))
        is_last = place == tf.gather(parts.row_splits[1:], row_ids(parts)) - 1
        filling = tf.where(is_last, "", tf.gather(option, row_ids(parts)))
        asked = tf.strings.reduce_join(parts.with_values(parts.values + filling), axis=1)
        has_blank = parts.row_lengths() > 1
    else:
        asked = tf.gather(question, example)
        has_blank = tf.zeros_like(example, tf.bool)
    if question_apart:
        return asked, option
    behind = tf.where(has_blank, "", tf.where(asked == "", option, " " + option))
    return asked + behind, tf.zeros_like(option)
