"""Questions to rows of token ids: a window of the context for each row."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

import numpy as np

from data.tokenization import Tokenizer
from data.vocabulary import Vocabulary
from errors import InputError
from finetune.encoded import Encoded
from finetune.squad.alignment import AlignedTokens, align
from finetune.squad.examples import QuestionExample

SPECIAL_TOKENS_PER_ROW = 3  # [CLS] question [SEP] context [SEP]


def encode_questions(
    examples: Sequence[QuestionExample],
    vocabulary: Vocabulary,
    *,
    max_seq_length: int,
    max_query_length: int,
    doc_stride: int,
) -> Encoded:
    """Lays out [CLS] question [SEP] window [SEP], one row for each window of a question's context.

    A context that does not fit has windows that begin `doc_stride` tokens apart. A question has all
    windows, with or without the answer: as in the original code (whose comment says otherwise),
    one without it has [CLS] as its span, and `is_impossible` of the question.

    Source: `featurize` in finetune/qa/qa_tasks.py of ELECTRA; where a piece stands in the context
    is known here (see `align`), and guessed there. An answer that is only a part of a piece is
    labelled by the whole piece.

    Args:
        examples: from `read_squad`.
        vocabulary: of the model.
        max_seq_length: of a row, in tokens.
        max_query_length: longer questions are cut to this many tokens.
        doc_stride: tokens.

    Returns:
        Encoded with more columns of tokens, all int32: `char_start`, `char_end` (the piece's
        characters in the context, the end exclusive; 0, 0 outside of the context), `max_context`
        (1 where no other window shows more on both sides of the piece). Columns of rows: `example`
        and, where every example is labelled, `start_position`, `end_position` (first and last
        token of the answer, inclusive, in the row) and `is_impossible`, int32. `truncated` counts
        questions that were cut and contexts that were divided.

    Raises:
        InputError: lengths that leave no room for a context.
    """
    _check_lengths(max_seq_length, max_query_length, doc_stride)
    tokenizer = Tokenizer(vocabulary)
    contexts = list(dict.fromkeys(example.context for example in examples))
    aligned = dict(zip(contexts, align(contexts, tokenizer)))
    ids, splits = tokenizer.tokenize([example.question for example in examples])
    rows = _Rows(vocabulary)
    for index, example in enumerate(examples):
        question = ids[splits[index] : splits[index + 1]]
        query, context = question[:max_query_length], aligned[example.context]
        before = len(rows.splits)
        room = max_seq_length - len(query) - SPECIAL_TOKENS_PER_ROW
        answer = _answer_span(example, context)
        for start, end, best in _windows(len(context.ids), room, doc_stride):
            rows.add(index, query, context, slice(start, end), best, answer)
        divided = len(rows.splits) > before + 1
        rows.truncated += divided or len(query) < len(question)
        rows.cut_questions += len(query) < len(question)
    if rows.cut_questions:
        print(
            f"{rows.cut_questions:,} of {len(examples):,} questions were cut to"
            f" {max_query_length} tokens",
            file=sys.stderr,
        )
    return rows.encoded(examples)


def _check_lengths(max_seq_length: int, max_query_length: int, doc_stride: int) -> None:
    room = max_seq_length - max_query_length - SPECIAL_TOKENS_PER_ROW
    if room < 1 or doc_stride < 1:
        raise InputError(
            "`max_seq_length` should leave room for a question, three special tokens and some"
            f" context, and `doc_stride` be at least 1. Received: max_seq_length={max_seq_length},"
            f" max_query_length={max_query_length}, doc_stride={doc_stride}"
        )


def _answer_span(example: QuestionExample, context: AlignedTokens) -> tuple[int, int] | None:
    """First and last token that cover the answer where it is marked; None: not known, or no token.

    Some answers begin or end inside of a piece ("one" of "iPhone"), and the tokens say more than
    they do. The same words elsewhere in the context would not: but there they answer nothing.
    (The original, too, stays at the place, and takes all of the word between blanks.)
    """
    if example.answer_start is None:
        return None
    start = example.answer_start
    return context.cover(start, start + len(example.answers[0]))


def _windows(total: int, room: int, stride: int) -> Iterator[tuple[int, int, np.ndarray]]:
    """The windows of a context of `total` tokens; one, though empty, for a context of none.

    Yields:
        (start, end, best bool [end - start]): the tokens start..end, and which of them this window
        shows best: with the most context on the side that has less (the first window of equals).
    """
    stride = min(stride, room)
    starts = np.arange(0, max(total - room, 0) + stride, stride)
    ends = np.minimum(starts + room, total)  # [W]
    if len(starts) == 1:
        yield 0, total, np.ones(total, bool)
        return
    position = np.arange(total)
    left, right = position - starts[:, None], ends[:, None] - 1 - position  # [W, T]
    # The original's rule: among equals, the longer window is better.
    score = np.minimum(left, right) + 0.01 * (ends - starts)[:, None]
    best = np.argmax(np.where((left < 0) | (right < 0), -np.inf, score), axis=0)  # [T]
    for window, (start, end) in enumerate(zip(starts.tolist(), ends.tolist())):
        yield start, end, best[start:end] == window


class _Rows:
    """Collects the rows of a split."""

    def __init__(self, vocabulary: Vocabulary):
        self.cls = np.array([vocabulary.cls_id], np.int32)
        self.sep = np.array([vocabulary.sep_id], np.int32)
        self.splits = [0]
        names = ("input_ids", "segment_ids", "char_start", "char_end", "max_context")
        self.tokens: dict[str, list[np.ndarray]] = {name: [] for name in names}
        self.rows: dict[str, list[int]] = {"example": [], "start_position": [], "end_position": []}
        self.truncated = self.cut_questions = 0

    def add(self, example: int, query, context: AlignedTokens, window: slice, best, answer) -> None:
        """Adds one window; `answer` holds tokens of the context, or is None."""
        ids = context.ids[window]
        first = len(query) + 2  # position of the window's first token
        length = first + len(ids) + 1
        self.tokens["input_ids"] += [self.cls, query, self.sep, ids, self.sep]
        columns = {
            "segment_ids": np.ones(len(ids) + 1, np.int32),
            "char_start": context.char_start[window],
            "char_end": context.char_end[window],
            "max_context": best,
        }
        for name, values in columns.items():
            column = np.zeros(length, np.int32)
            column[first : first + len(values)] = values
            self.tokens[name].append(column)
        self.splits.append(self.splits[-1] + length)
        inside = answer and window.start <= answer[0] and answer[1] < window.stop
        start, end = (index - window.start + first for index in answer) if inside else (0, 0)
        for name, value in zip(self.rows, (example, start, end)):
            self.rows[name].append(value)

    def encoded(self, examples: Sequence[QuestionExample]) -> Encoded:
        """The rows so far."""
        none = np.zeros(0, np.int32)
        tokens = {name: np.concatenate([none, *parts]) for name, parts in self.tokens.items()}
        rows = {name: np.array(values, np.int32) for name, values in self.rows.items()}
        if all(item.is_impossible or item.answer_start is not None for item in examples):
            impossible = np.array([item.is_impossible for item in examples], np.int32)
            rows["is_impossible"] = impossible[rows["example"]]
        else:
            rows = {"example": rows["example"]}
        return Encoded(np.array(self.splits, np.int64), tokens, rows, self.truncated)
