"""Examples of a task to rows of token ids, flat and of different length."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from data.tokenization import Tokenizer
from errors import InputError
from finetune.encoded import Encoded, bounds_of, ranges

if TYPE_CHECKING:
    from finetune.kinds.tagging import TaggedExample
    from finetune.kinds.texts import TextExample
    from finetune.task import Task


# ---------------------------------------------------------------- texts and pairs of texts


def encode_texts(
    examples: Sequence[TextExample], task: Task, tokenizer: Tokenizer, max_seq_length: int
) -> Encoded:
    """One row per example: [CLS] a [SEP], and b [SEP] as segment 1 where there is a second text.

    What is too long loses tokens at its end; of a pair always the longer text, and the second
    where they are of equal length. A second text of no pieces counts as none. All as in
    google-research/electra, finetune/classification/classification_tasks.py.

    Raises:
        InputError: some examples have a label and some have none.
    """
    n = len(examples)
    ids_a, splits_a = tokenizer.tokenize([example.text_a for example in examples])
    ids_b, splits_b = tokenizer.tokenize([example.text_b or "" for example in examples])
    full_a, full_b = np.diff(splits_a), np.diff(splits_b)
    has_b = full_b > 0
    length_a, length_b = _cut_longest_first(full_a, full_b, max_seq_length - 2 - has_b)

    row_splits = bounds_of(length_a + 2 + np.where(has_b, length_b + 1, 0))
    input_ids = np.zeros(row_splits[-1], np.int32)
    segment_ids = np.zeros_like(input_ids)
    start_a = row_splits[:-1] + 1
    start_b = start_a + length_a + 1
    input_ids[row_splits[:-1]] = tokenizer.vocabulary.cls_id
    input_ids[ranges(start_a, length_a)] = ids_a[ranges(splits_a[:-1], length_a)]
    input_ids[start_b - 1] = tokenizer.vocabulary.sep_id
    input_ids[ranges(start_b, length_b)] = ids_b[ranges(splits_b[:-1], length_b)]
    input_ids[row_splits[1:] - 1] = tokenizer.vocabulary.sep_id
    segment_ids[ranges(start_b, np.where(has_b, length_b + 1, 0))] = 1

    rows = {"example": np.arange(n, dtype=np.int32)}
    if _labelled(examples, "label"):
        rows["label"] = task.plugin.label_column(task, [example.label for example in examples])
    truncated = int(np.sum((length_a < full_a) | (length_b < full_b)))
    tokens = {"input_ids": input_ids, "segment_ids": segment_ids}
    return Encoded(row_splits, tokens, rows, truncated)


def _cut_longest_first(
    a: np.ndarray, b: np.ndarray, budget: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Lengths after taking tokens one by one from the longer text, from b where they are equal.

    Taking turns ends at halves of the budget, unless one text is shorter than its half.

    Args:
        a, b: integers [n].
        budget: integers [n], what a + b may be at most.
    """
    # A single text has b = 0, and so the whole budget.
    return (
        np.minimum(a, np.maximum(budget - b, (budget + 1) // 2)),
        np.minimum(b, np.maximum(budget - a, budget // 2)),
    )


# ---------------------------------------------------------------- words with tags


def encode_tags(
    examples: Sequence[TaggedExample], task: Task, tokenizer: Tokenizer, max_seq_length: int
) -> Encoded:
    """Rows of [CLS] pieces [SEP]; each word's tag stands on its first piece (seed 004, IV-C).

    The other pieces, [CLS], [SEP] and padding have `tag_weight` 0, and so no part in loss or
    score: the labels "##" and "PAD" of seed 004. A word of no pieces, such as a control
    character, is an [UNK]. A sentence of too many pieces is divided between words into rows, so
    that every word has exactly one first piece; only a word longer than a row is cut.

    Raises:
        InputError: some examples have tags and some have none.
    """
    vocabulary = tokenizer.vocabulary
    budget = max_seq_length - 2
    words = [word for example in examples for word in example.words]
    ids, splits = tokenizer.tokenize(words)
    full = np.diff(splits)
    pieces = np.clip(full, 1, budget)  # [words]
    word_counts = np.array([len(example.words) for example in examples], np.int64)
    word_splits = bounds_of(word_counts)
    first_words, row_examples = _divide(pieces, word_splits, budget)  # [n], [n]

    words_per_row = np.diff(np.append(first_words, len(words)))
    row_of_word = np.repeat(np.arange(len(first_words)), words_per_row)
    row_lengths = 2 + np.bincount(row_of_word, pieces, len(first_words)).astype(np.int64)
    row_splits = bounds_of(row_lengths)
    # The pieces of all words stand end to end but for the [CLS] and [SEP] of the rows so far.
    word_starts = bounds_of(pieces)[:-1] + 2 * row_of_word + 1
    input_ids = np.zeros(row_splits[-1], np.int32)
    input_ids[row_splits[:-1]] = vocabulary.cls_id
    input_ids[row_splits[1:] - 1] = vocabulary.sep_id
    input_ids[word_starts] = vocabulary.unk_id  # stays where there are no pieces
    copied = np.minimum(full, pieces)
    input_ids[ranges(word_starts, copied)] = ids[ranges(splits[:-1], copied)]

    tag_weight = np.zeros(row_splits[-1], np.float32)
    tag_weight[word_starts] = 1.0
    tokens = {
        "input_ids": input_ids,
        "segment_ids": np.zeros_like(input_ids),
        "tag_weight": tag_weight,
    }
    if _labelled(examples, "tags"):
        tokens["tags"] = np.zeros_like(input_ids)
        tokens["tags"][word_starts] = [tag for example in examples for tag in example.tags]
    cut = np.bincount(row_examples, minlength=len(examples)) > 1
    cut[np.repeat(np.arange(len(examples)), word_counts)[full > budget]] = True
    return Encoded(row_splits, tokens, {"example": row_examples}, int(np.sum(cut)))


def _divide(
    pieces: np.ndarray, word_splits: np.ndarray, budget: int
) -> tuple[np.ndarray, np.ndarray]:
    """Divides sentences between words into as few rows as a walk from the left gives.

    Args:
        pieces: int64 [words], the number of pieces of each word, at most `budget`.
        word_splits: int64 [sentences + 1], the bounds of the sentences in `pieces`.
        budget: most pieces a row can have.

    Returns:
        (first word of each row int64 [n], sentence of each row int32 [n]).
    """
    ends = bounds_of(pieces)
    first_words, sentences = [], []
    for sentence, (start, stop) in enumerate(itertools.pairwise(word_splits)):
        first_words.append(start)
        sentences.append(sentence)
        while ends[stop] - ends[start] > budget:
            start = np.searchsorted(ends, ends[start] + budget, side="right") - 1
            first_words.append(start)
            sentences.append(sentence)
    return np.array(first_words, np.int64), np.array(sentences, np.int32)


# ---------------------------------------------------------------- helpers


def _labelled(examples: Sequence, field: str) -> bool:
    """Whether the examples have labels.

    Raises:
        InputError: some have one and some have none.
    """
    missing = [example.id for example in examples if getattr(example, field) is None]
    if missing and len(missing) < len(examples):
        raise InputError(
            f"either all examples of a split should have a label or none. Received: "
            f"{len(missing):,} of {len(examples):,} without one, the first of them {missing[0]!r}"
        )
    return not missing
