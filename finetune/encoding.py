"""Encodes a task's examples as flat sequences of token ids of different lengths."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import tensorflow as tf

from convbert.common.settings import present
from convbert.data.text.choices import CHOICE_SETTINGS, lay_out_choices
from convbert.data.text.layout import Sequences, TextLayout
from convbert.data.text.words import lay_out_words
from convbert.data.tokenization import batches
from convbert.model.heads.linear_chain import ChainScores, viterbi

if TYPE_CHECKING:
    from convbert.finetune.declaration import Task
    from convbert.finetune.hparams import FinetuningHParams
    from convbert.finetune.kinds.embedding import EmbeddingExample
    from convbert.finetune.kinds.multiple_choice import ChoiceExample, MultipleChoiceHParams
    from convbert.finetune.kinds.reranking import RerankingExample
    from convbert.finetune.kinds.tagging import TaggedExample
    from convbert.finetune.kinds.texts import TextExample, TextKind

_SENTENCES = 128  # sentences to decode at once


@dataclasses.dataclass(frozen=True)
class Encoded:
    """The n sequences of a split; an example has one, or several if it is too long."""

    # int64 [n + 1]; sequence i has the tokens `row_splits[i]:row_splits[i + 1]`.
    row_splits: np.ndarray
    # Columns with one value per token, each [total]: `input_ids` and `segment_ids` int32, and the
    # kind's additions. All columns are padded with 0.
    tokens: dict[str, np.ndarray]
    # Columns with one value per sequence, each [n, ...]: `example` int32, the ascending index into
    # the list of examples, and the kind's additions. Unlabelled examples have no label columns.
    sequences: dict[str, np.ndarray]
    truncated: int  # number of examples that were truncated or split, as they exceed one sequence

    @property
    def lengths(self) -> np.ndarray:
        """Returns the number of tokens of each sequence: int64 [n]."""
        return np.diff(self.row_splits)

    def __len__(self) -> int:
        return len(self.row_splits) - 1


@dataclasses.dataclass(frozen=True)
class Split:
    """Examples, their sequences, and a SHA-256 of the examples' content."""

    examples: Sequence
    encoded: Encoded
    digest: str = ""


def encode_texts(
    task: Task, examples: Sequence[TextExample], layout: TextLayout, hparams: FinetuningHParams
) -> Encoded:
    """Encodes one sequence per example, see `data.text.layout.TextLayout.pair`, and `label`."""
    pairs = any(example.text_b for example in examples)

    def encode_chunk(chunk: Sequence[TextExample]) -> Encoded:
        text = tf.constant([example.text_a for example in chunk], tf.string)
        second = tf.constant([example.text_b or "" for example in chunk], tf.string)
        sequences = layout.pair(text, second) if pairs else layout.single(text)
        return _grouped(sequences, [1] * len(chunk))

    encoded = in_chunks(encode_chunk, examples, lambda x: len(x.text_a) + len(x.text_b or ""))
    if all(example.label is not None for example in examples):
        labels = [example.label for example in examples]
        kind = cast("TextKind", task.plugin)
        encoded.sequences["label"] = kind.label_column(task, labels)
    return encoded


def encode_embedding(
    task: Task, examples: Sequence[EmbeddingExample], layout: TextLayout, hparams: FinetuningHParams
) -> Encoded:
    """Encodes the texts of an example as a sequence each, and `text`, which numbers equal ids."""
    G = task.plugin.group_size(task)

    def texts(example: EmbeddingExample) -> list[str]:
        return [example.text_a, example.text_b, example.negative or ""][:G]

    def encode_chunk(chunk: Sequence[EmbeddingExample]) -> Encoded:
        strings = [text for example in chunk for text in texts(example)]
        return _grouped(layout.single(tf.constant(strings, tf.string)), [G] * len(chunk))

    encoded = in_chunks(encode_chunk, examples, lambda example: sum(map(len, texts(example))))
    ids, numbers = encoded.tokens["input_ids"], dict[bytes, int]()
    spans = itertools.pairwise(encoded.row_splits)
    found = [numbers.setdefault(ids[a:b].tobytes(), len(numbers)) for a, b in spans]
    encoded.sequences["text"] = np.array(found, np.int32)
    if all(example.label is not None for example in examples):
        labels = task.shares([present(example.label) for example in examples])
        encoded.sequences["label"] = np.repeat(labels, G)
    return encoded


def encode_choices(
    task: Task,
    examples: Sequence[ChoiceExample],
    layout: TextLayout,
    hparams: MultipleChoiceHParams,
) -> Encoded:
    """Encodes a sequence per option of an example, see `data.text.choices`, and `label`.

    `present` is 1 for sequences with an option, 0 for those that fill up an example's group.
    """
    settings = {name: getattr(hparams, name) for name in CHOICE_SETTINGS}
    G = task.plugin.group_size(task)

    def encode_chunk(chunk: Sequence[ChoiceExample]) -> Encoded:
        context = tf.constant([example.context for example in chunk], tf.string)
        question = tf.constant([example.question for example in chunk], tf.string)
        options = [[*item.options, *[""] * (G - len(item.options))] for item in chunk]
        options = tf.constant(options, tf.string, [len(chunk), G])
        sequences = lay_out_choices(layout, context, question, options, **settings)
        encoded = _grouped(sequences, [G] * len(chunk))
        present = tf.reshape(tf.cast(options != "", tf.float32), [-1])
        encoded.sequences["present"] = present.numpy()
        return encoded

    def characters(example: ChoiceExample) -> int:
        return G * (len(example.context) + len(example.question)) + sum(map(len, example.options))

    encoded = in_chunks(encode_chunk, examples, characters)
    if all(example.label is not None for example in examples):
        labels = np.array([example.label for example in examples], np.int32)
        encoded.sequences["label"] = np.repeat(labels, G)
    return encoded


def encode_candidates(
    task: Task, examples: Sequence[RerankingExample], layout: TextLayout, hparams: FinetuningHParams
) -> Encoded:
    """Encodes a query with each of its candidates as a sequence.

    `candidate` int32 numbers the sequences of a query; `relevance` is float32.
    """

    def encode_chunk(chunk: Sequence[RerankingExample]) -> Encoded:
        queries = [example.query for example in chunk for _ in example.candidates]
        texts = [text for example in chunk for text in example.candidates]
        sequences = layout.pair(tf.constant(queries, tf.string), tf.constant(texts, tf.string))
        return _grouped(sequences, [len(example.candidates) for example in chunk])

    def characters(example: RerankingExample) -> int:
        return len(example.query) * len(example.candidates) + sum(map(len, example.candidates))

    encoded = in_chunks(encode_chunk, examples, characters)
    encoded.sequences["candidate"] = _numbers(encoded.sequences["example"])
    if all(example.relevance is not None for example in examples):
        values = [value for example in examples for value in present(example.relevance)]
        encoded.sequences["relevance"] = np.array(values, np.float32)
    return encoded


def encode_tags(
    task: Task, examples: Sequence[TaggedExample], layout: TextLayout, hparams: FinetuningHParams
) -> Encoded:
    """Encodes sequences by `lay_out_words`, with `tags` int32 at each word's first piece.

    `tag_weight` float32 is 1 there and 0 elsewhere, where the ALE report (section IV-A) has the
    labels "##" and "PAD". `window` int32 numbers the sequences of an example.
    """

    def encode_chunk(chunk: Sequence[TaggedExample]) -> Encoded:
        words = tf.constant([word for example in chunk for word in example.words], tf.string)
        counts = tf.constant([len(example.words) for example in chunk], tf.int64)
        sequences = lay_out_words(layout, tf.RaggedTensor.from_row_lengths(words, counts))
        ids = sequences.ids
        places = tf.gather(ids.row_starts(), sequences.sequence) + sequences.position
        total = tf.shape(ids.values, tf.int64)
        weight = tf.scatter_nd(places[:, None], tf.ones_like(places, tf.float32), total)
        truncated = int(np.sum(sequences.truncated))
        weights = ids.with_values(weight)
        return from_ragged(sequences, sequences.sentence, truncated, tag_weight=weights)

    encoded = in_chunks(encode_chunk, examples, lambda example: sum(map(len, example.words)))
    encoded.sequences["window"] = _numbers(encoded.sequences["example"])
    if all(example.tags is not None for example in examples):
        # Sequences and their words are in the order of the examples.
        tags = np.zeros_like(encoded.tokens["input_ids"])
        gold = [tag for item in examples for tag in present(item.tags)]
        tags[encoded.tokens["tag_weight"] > 0] = gold
        encoded.tokens["tags"] = tags
    return encoded


def _numbers(example: np.ndarray) -> np.ndarray:
    """Returns the number of each sequence in its example, given ascending examples: int32 [n]."""
    return (np.arange(len(example)) - np.searchsorted(example, example)).astype(np.int32)


def best_paths(
    emissions: np.ndarray, counts: Sequence[int], constants: Mapping[str, np.ndarray]
) -> list[tuple[int, ...]]:
    """Returns the Viterbi path of each sentence, in order, across its windows.

    `emissions` float32 [words, L] are those of all sentences, `counts` the numbers of their words.
    `constants` has `start` [L], `transitions` [L, L] and `end` [L] of a `CrfHead`.
    """
    scores = ChainScores(*(tf.constant(constants[name]) for name in ChainScores._fields))
    paths: list[tuple[int, ...]] = []
    with tf.device("CPU:0"):
        sentences = tf.RaggedTensor.from_row_lengths(emissions, counts)
        for start in range(0, len(counts), _SENTENCES):
            own = sentences[start : start + _SENTENCES]
            padded = own.to_tensor(shape=[None, max(1, own.bounding_shape(1)), None])
            lengths = tf.cast(own.row_lengths(), tf.int32)
            paths += map(tuple, viterbi(padded, lengths, scores).to_list())
    return paths


def _grouped(sequences: Sequences, counts: list[int]) -> Encoded:
    """Converts the sequences of a chunk of examples, which have `counts` of them."""
    example = np.repeat(np.arange(len(counts)), np.array(counts, np.int64))
    return from_ragged(sequences, example, np.unique(example[sequences.truncated]).size)


def from_ragged(sequences: Any, example: np.ndarray, truncated: int, **more: Any) -> Encoded:
    """Converts `ids`, `segment_ids` [n, (tokens)] and `more` ragged columns of a chunk to NumPy.

    `example` are integers [n], the example of each sequence; `truncated` is the number of examples
    that were truncated or split.
    """
    ragged = {"input_ids": sequences.ids, "segment_ids": sequences.segment_ids, **more}
    tokens = {name: column.values.numpy() for name, column in ragged.items()}
    own = {"example": np.asarray(example, np.int32)}
    return Encoded(sequences.ids.row_splits.numpy(), tokens, own, truncated)


def in_chunks(
    encode_chunk: Callable[[Sequence], Encoded],
    examples: Sequence,
    characters: Callable[[Any], int],
) -> Encoded:
    """Encodes examples in chunks with a bounded number of `characters`, to bound memory."""
    parts, first = [], 0
    with tf.device("CPU:0"):  # or a GPU would copy each op's arguments
        for chunk in [*batches(examples, characters)] or [[]]:  # at least one
            parts.append(encode_chunk(chunk))
            parts[-1].sequences["example"] += np.int32(first)
            first += len(chunk)

    def joined(columns: Sequence[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
        return {name: np.concatenate([x[name] for x in columns]) for name in columns[0]}

    lengths = np.concatenate([part.lengths for part in parts])
    return Encoded(
        np.concatenate([[0], np.cumsum(lengths)]),
        joined([part.tokens for part in parts]),
        joined([part.sequences for part in parts]),
        sum(part.truncated for part in parts),
    )
