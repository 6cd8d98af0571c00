"""The networks of a served model inside the graph."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

import tensorflow as tf

from data.tokenizers import create_tokenizer
from model import EncoderOutput
from signatures.functions import ENCODE, FEATURES, PREDICT, Function, functions_of
from signatures.parts import InParts
from signatures.signature import Signature, Tensors
from signatures.tensors import Tensor
from text.layout import Sequences, TextLayout, padded

if TYPE_CHECKING:
    from serving.load import ServedModel


class Network:
    """What a served model computes of token ids, and its layout: how texts become sequences.

    `functions` are by default those of the model's networks; see signatures/functions.py.
    """

    def __init__(self, model: ServedModel, functions: dict[str, Function] | None = None):
        self.model = model
        self.layout = TextLayout(create_tokenizer(model.vocabulary), model.max_seq_length)
        self._pieces = tf.constant(model.vocabulary.tokens)  # [V]
        self.functions = functions_of(model) if functions is None else functions

    def compute(self, name: str, features: Tensors) -> Tensors:
        """What the function of this name returns; it is given no more than its inputs."""
        function = self.functions[name]
        return function.compute({name: features[name] for name in function.inputs})

    def encode(self, features: Tensors) -> EncoderOutput:
        """`sequence` [B, S, D] and `pooled` [B, D], in the dtype of the arithmetic."""
        return EncoderOutput(**self.compute(ENCODE, features))

    def features(self, ids: tf.RaggedTensor, segment_ids: tf.RaggedTensor) -> Tensors:
        """`FEATURES` of sequences int32 [B, (tokens)], padded to int32 [B, S].

        S is the longest sequence and what padding shows in outputs; at least 1 even where there
        are no sequences.
        """
        longest = tf.maximum(ids.bounding_shape(axis=1), 1)
        S = tf.minimum(longest + self.model.visible_padding, self.model.max_seq_length)
        return padded(ids, segment_ids, S)

    def pieces(self, sequences: Sequences, features: Tensors) -> Tensors:
        """The outputs `pieces`, `num_pieces` and `truncated` of sequences and their features."""
        names = self.piece_names(features["input_ids"])
        return {
            "pieces": tf.where(features["input_mask"] > 0, names, ""),
            "num_pieces": tf.cast(sequences.ids.row_lengths(), tf.int32),
            "truncated": sequences.truncated,
        }

    def piece_names(self, ids: tf.Tensor) -> tf.Tensor:
        """The word pieces of ids of any shape."""
        return tf.gather(self._pieces, ids)

    def lengths(self, features: Tensors) -> tf.Tensor:
        """How many tokens of each sequence of `self.features` its answer depends on, int32 [B]."""
        S = tf.shape(features["input_ids"])[1]
        return tf.minimum(tf.reduce_sum(features["input_mask"], 1) + self.model.visible_padding, S)

    @functools.cached_property
    def predict(self) -> InParts:
        """What the task's head predicts for sequences; see `model.heads.task`."""
        return InParts(lambda part: self.compute(PREDICT, part))


def token_ids(
    network: Network, about: str, answer: Callable[[Tensors], Tensors], outputs: dict[str, Tensor]
) -> Signature:
    """The signature for those who tokenize themselves.

    `answer` leads from `FEATURES`, int32 [B, S] each, to the `outputs`.
    """
    config, limit = network.model.config, network.model.max_seq_length
    bounds = (network.layout.vocabulary.size, 2, config.type_vocab_size)
    padding = network.model.visible_padding
    # Where padding shows, sequences beyond the limit would have answers that depend on theirs.
    longest = limit if padding else config.max_position_embeddings

    def function(input_ids, input_mask, segment_ids):
        S = tf.shape(input_ids)[1]
        features = dict(zip(FEATURES, (input_ids, input_mask, segment_ids)))
        features = _checked(features, bounds, longest)
        missing = tf.maximum(tf.minimum(S + padding, longest), 1) - S
        features = {name: tf.pad(value, [[0, 0], [0, missing]]) for name, value in features.items()}
        answers = answer(features)
        return {
            name: value[:, :S] if outputs[name].axes[1:2] == ("S",) else value
            for name, value in answers.items()
        }

    meanings = (
        "word pieces by their lines in vocab.txt from 0",
        "1 for tokens, 0 for padding",
        "0, and 1 for the second text and its [SEP]",
    )
    if network.layout.vocabulary.cls_is_last:
        segments = "0, 1 for the second text and its <sep>, and 2 for <cls>"
        meanings = ("pieces by their ids in spiece.model", meanings[1], segments)
    inputs = {name: Tensor("int32", ("B", "S"), about) for name, about in zip(FEATURES, meanings)}
    return Signature(about, function, inputs, outputs)


def _checked(features: Tensors, bounds: tuple[int, int, int], longest: int) -> Tensors:
    """Features whose use fails with a clear message where they are no features of a model."""
    ids = features["input_ids"]
    expected = f"`input_ids`: sequences should be at most {longest} tokens long."
    checks = [tf.debugging.assert_less_equal(tf.shape(ids)[1], longest, expected)]
    for name, bound in zip(FEATURES, bounds):
        value = features[name]
        expected = f"`{name}` should have the shape of `input_ids`."
        checks.append(tf.debugging.assert_equal(tf.shape(value), tf.shape(ids), expected))
        inside = tf.reduce_all((value >= 0) & (value < bound))
        checks.append(tf.debugging.Assert(inside, [f"`{name}` should be in [0, {bound})."]))
    with tf.control_dependencies(checks):
        return {name: tf.identity(value) for name, value in features.items()}
