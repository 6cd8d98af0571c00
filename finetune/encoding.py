"""Examples of a task to rows of token ids, flat and of different length."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from data.tokenization import Tokenizer, batches
from data.vocabulary import Vocabulary
from errors import InputError
from text.layout import TextLayout
from text.words import lay_out_words

if TYPE_CHECKING:
    from finetune.hparams import FinetuningHParams
    from finetune.task import TaggedExample, Task, TextExample


@dataclasses.dataclass(frozen=True)
class Encoded:
    """The rows of a split, of different length, one after another.

    An example has one row, or several where it is longer than a row can be.

    Attributes:
        row_splits: int64 [n + 1]; row i has the tokens `row_splits[i]:row_splits[i + 1]`.
        tokens: columns of one value per token, each [total]: `input_ids` and `segment_ids` int32;
            for tagging also `tags` int32 (where labelled) and `tag_weight` float32, 1 on the
            first piece of each word and 0 elsewhere. Padding of every column is 0.
        rows: columns of one value per row, each [n, ...]: `example` int32, the index into the
            list of examples, never falling; `label`, int32 (classification) or float32
            (regression, scaled to [0, 1] by the task's `label_range`); what a span task needs.
            Columns of labels are absent where the examples are unlabelled.
        truncated: how many examples were too long for one row, and so were cut or divided.
    """

    row_splits: np.ndarray
    tokens: dict[str, np.ndarray]
    rows: dict[str, np.ndarray]
    truncated: int

    @property
    def lengths(self) -> np.ndarray:
        """Number of tokens of each row: int64 [n]."""
        return np.diff(self.row_splits)

    def __len__(self) -> int:
        return len(self.row_splits) - 1


def encode(
    task: Task, examples: Sequence, vocabulary: Vocabulary, hparams: FinetuningHParams
) -> Encoded:
    """Encodes examples of any kind of task.

    Args:
        task: what the examples are of.
        examples: what `finetune.task.read_split` gives; for training on both orders of a pair,
            `both_orders` of it.
        vocabulary: of the pre-trained encoder.
        hparams: `max_seq_length`, at least 8; for span tasks also `max_query_length` and
            `doc_stride`.

    Raises:
        InputError: some examples have a label and some have none.
    """
    S = hparams.max_seq_length
    if task.kind == "span":
        from finetune.squad.features import encode_questions

        return encode_questions(
            examples,
            vocabulary,
            max_seq_length=S,
            max_query_length=hparams.max_query_length,
            doc_stride=hparams.doc_stride,
        )
    encode_kind = encode_tags if task.kind == "tagging" else encode_texts
    return encode_kind(examples, task, Tokenizer(vocabulary), S)


def both_orders(examples: Sequence[TextExample]) -> list[TextExample]:
    """The examples, and after them the same with `text_a` and `text_b` exchanged.

    The original's `double_unordered`: tasks such as MRPC and STS-B ask about unordered pairs, so
    training sees both orders (google-research/electra, finetune/classification).
    """
    swapped = [dataclasses.replace(x, text_a=x.text_b, text_b=x.text_a) for x in examples]
    return [*examples, *swapped]


# ---------------------------------------------------------------- texts and pairs of texts


def encode_texts(
    examples: Sequence[TextExample], task: Task, tokenizer: Tokenizer, max_seq_length: int
) -> Encoded:
    """One sequence per example, see `text.layout.TextLayout.pair`.

    Raises:
        InputError: some examples have a label and some have none.
    """
    layout = TextLayout(tokenizer, max_seq_length)
    pairs = any(example.text_b for example in examples)

    def encode_chunk(chunk: Sequence[TextExample]) -> Encoded:
        text = tf.constant([example.text_a for example in chunk], tf.string)
        second = tf.constant([example.text_b or "" for example in chunk], tf.string)
        sequences = layout.pair(text, second) if pairs else layout.single(text)
        tokens = {"input_ids": sequences.ids, "segment_ids": sequences.segment_ids}
        return from_ragged(tokens, tf.range(len(chunk)), sequences.truncated)

    encoded = in_chunks(
        encode_chunk, examples, lambda example: len(example.text_a) + len(example.text_b or "")
    )
    if _labelled(examples, "label"):
        encoded.rows["label"] = _label_column(examples, task)
    return encoded


def _label_column(examples: Sequence[TextExample], task: Task) -> np.ndarray:
    labels = [example.label for example in examples]
    if task.kind == "classification":
        return np.array(labels, np.int32)
    low, high = task.label_range
    return ((np.array(labels, np.float64) - low) / (high - low)).astype(np.float32)


# ---------------------------------------------------------------- words with tags


def encode_tags(
    examples: Sequence[TaggedExample], task: Task, tokenizer: Tokenizer, max_seq_length: int
) -> Encoded:
    """Sequences as `text.words.lay_out_words` has them; tags stand on each word's first piece.

    The other pieces, [CLS], [SEP] and padding have `tag_weight` 0, and so no part in loss or
    score: the labels "##" and "PAD" of seed 004 (IV-C).

    Raises:
        InputError: some examples have tags and some have none.
    """
    layout = TextLayout(tokenizer, max_seq_length)

    def encode_chunk(chunk: Sequence[TaggedExample]) -> Encoded:
        words = tf.constant([word for example in chunk for word in example.words], tf.string)
        counts = tf.constant([len(example.words) for example in chunk], tf.int64)
        sequences = lay_out_words(layout, tf.RaggedTensor.from_row_lengths(words, counts))
        ids = sequences.ids
        places = tf.gather(ids.row_starts(), sequences.sequence) + sequences.position
        total = tf.shape(ids.values, tf.int64)
        weight = tf.scatter_nd(places[:, None], tf.ones_like(places, tf.float32), total)
        tokens = {
            "input_ids": ids,
            "segment_ids": tf.zeros_like(ids),
            "tag_weight": ids.with_values(weight),
        }
        return from_ragged(tokens, sequences.sentence, sequences.truncated)

    encoded = in_chunks(encode_chunk, examples, lambda example: sum(map(len, example.words)))
    if _labelled(examples, "tags"):
        # Sequences and the words in them are in the order of the examples.
        tags = np.zeros_like(encoded.tokens["input_ids"])
        tags[encoded.tokens["tag_weight"] > 0] = [tag for item in examples for tag in item.tags]
        encoded.tokens["tags"] = tags
    return encoded


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


def from_ragged(
    tokens: dict[str, tf.RaggedTensor], example: tf.Tensor, truncated: tf.Tensor
) -> Encoded:
    """What is encoded of a chunk of examples.

    Args:
        tokens: columns [n, (tokens)] of the same lengths.
        example: [n], the example of each sequence.
        truncated: bool, of each example.
    """
    row_splits = next(iter(tokens.values())).row_splits.numpy()
    columns = {name: column.values.numpy() for name, column in tokens.items()}
    rows = {"example": example.numpy().astype(np.int32)}
    return Encoded(row_splits, columns, rows, int(np.sum(truncated)))


def in_chunks(
    encode_chunk: Callable[[Sequence], Encoded],
    examples: Sequence,
    characters: Callable[[Any], int],
) -> Encoded:
    """Encodes examples in chunks whose size bounds the memory of the ops.

    Args:
        encode_chunk: encodes some of them.
        examples: the examples.
        characters: how many an example has.
    """
    sizes, parts = [0], []
    with tf.device("CPU:0"):  # or a GPU would copy each op's arguments
        for chunk in batches(examples, characters):
            sizes.append(len(chunk))
            parts.append(encode_chunk(chunk))
        if not parts:
            return encode_chunk(examples)
    for part, first in zip(parts, np.cumsum(sizes)):
        part.rows["example"] += np.int32(first)

    def joined(columns: Sequence[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
        return {name: np.concatenate([x[name] for x in columns]) for name in columns[0]}

    lengths = np.concatenate([part.lengths for part in parts])
    return Encoded(
        np.concatenate([[0], np.cumsum(lengths)]),
        joined([part.tokens for part in parts]),
        joined([part.rows for part in parts]),
        sum(part.truncated for part in parts),
    )
