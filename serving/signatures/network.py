"""A served model as functions of token ids, and the layout of texts as token ids.

A signature converts texts to inputs of the model's functions of token ids, and their outputs to
answers. So another runtime with the same functions gives the same answers: see serving/litert.py.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from convbert.common.settings import present
from convbert.data.text.layout import Sequences, TextLayout, padded
from convbert.data.tokenizers import create_tokenizer
from convbert.data.vocabulary import Vocabulary
from convbert.finetune.declaration import Task
from convbert.finetune.hparams import FinetuningHParams
from convbert.model import BackboneConfig
from convbert.pretrain.hparams import PretrainingHParams
from convbert.pretrain.objectives.base import Offer, ScoringMethod
from convbert.serving.signatures.parts import InParts
from convbert.serving.signatures.signature import FEATURES, Signature, Tensor, Tensors

ENCODE, PREDICT, SCORE = "encode", "predict", "score"  # the names of functions
SCORED = "scored"  # of SCORE, beside FEATURES: int32 [n, S], 1 for the tokens that count
ONE_TOKEN = ("position", "token")  # or these, for a pass per token: int32 [n]


class Function(NamedTuple):
    """A function of token ids.

    Attributes:
        compute: maps inputs by name, int32 [n, S] except `position` and `token` [n] and `positions`
            [n, M], to outputs [n, ...]. It is traced into a graph.
        inputs: the inputs' names.
    """

    compute: Callable[[Tensors], Tensors]
    inputs: tuple[str, ...] = FEATURES

    def specs(self) -> dict[str, tf.TensorSpec]:
        """Returns the inputs' specs, for any batch size and length."""
        ranks = {name: 1 if name in ONE_TOKEN else 2 for name in self.inputs}
        return {n: tf.TensorSpec([None] * rank, tf.int32, n) for n, rank in ranks.items()}


@dataclasses.dataclass(frozen=True)
class Served:
    """The interface of a model to its signatures.

    Attributes:
        kind: the kind of task (see `finetune.kinds`), or "pretraining".
        visible_padding: maximum of the networks' `BackboneConfig.visible_padding`.
        functions: ENCODE returns `sequence` [n, S, D] and `pooled` [n, D]; PREDICT the predictions
            of the task's head, see `model.heads.task`; SCORE `log_scores` [n, S] or, with a pass
            per token, [n]; for those of `offers` see `pretrain.objectives.base.Offer`.
        constants: the constants of the task's head.
        scoring_method: None if the model lacks the networks for it.
        offers: signatures of pre-training, with their networks.
    """

    kind: str
    config: BackboneConfig
    vocabulary: Vocabulary
    max_seq_length: int
    visible_padding: int
    functions: Mapping[str, Function]
    hparams: FinetuningHParams | PretrainingHParams | None  # of the class of the task's kind
    task: Task | None
    constants: Mapping[str, np.ndarray]
    scoring_method: ScoringMethod | None
    offers: Mapping[Offer, tuple[tf.Module, ...]]


class Network:
    """A served model inside the graph, and its layout of texts as sequences."""

    def __init__(self, model: Served):
        self.model = model
        self.layout = TextLayout(create_tokenizer(model.vocabulary), model.max_seq_length)
        self._pieces = tf.constant(model.vocabulary.tokens)  # [V]

    @property
    def task(self) -> Task:
        """Returns the task of a fine-tuned model."""
        return present(self.model.task)

    def compute(self, name: str, features: Tensors) -> Tensors:
        """Calls a function by name with its inputs, a subset of the features."""
        function = self.model.functions[name]
        return function.compute({name: features[name] for name in function.inputs})

    def features(self, ids: tf.RaggedTensor, segment_ids: tf.RaggedTensor) -> Tensors:
        """Returns `FEATURES` of sequences int32 [B, (tokens)], padded to int32 [B, S].

        S is the longest sequence plus the visible padding; at least 1 even without sequences.
        """
        longest = tf.maximum(ids.bounding_shape(axis=1), 1)
        S = tf.minimum(longest + self.model.visible_padding, self.model.max_seq_length)
        return padded(ids, segment_ids, S)

    def pieces(self, sequences: Sequences, features: Tensors) -> Tensors:
        """Returns `pieces`, `num_pieces` and `truncated` of sequences and their features."""
        names = self.piece_names(features["input_ids"])
        return {
            "pieces": tf.where(features["input_mask"] > 0, names, ""),
            "num_pieces": tf.cast(sequences.ids.row_lengths(), tf.int32),
            "truncated": sequences.truncated,
        }

    def piece_names(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns the word pieces of ids of any shape."""
        return tf.gather(self._pieces, ids)

    def lengths(self, features: Tensors) -> tf.Tensor:
        """Returns the number of tokens that affect each sequence's answer, int32 [B]."""
        S = tf.shape(features["input_ids"])[1]
        return tf.minimum(tf.reduce_sum(features["input_mask"], 1) + self.model.visible_padding, S)

    @functools.cached_property
    def predict(self) -> InParts:
        """Returns the task head's prediction function, run in parts; see `model.heads.task`."""
        return InParts(lambda part: self.compute(PREDICT, part))


def token_ids(
    network: Network, answer: Callable[[Tensors], Tensors], outputs: dict[str, Tensor]
) -> Signature:
    """Returns the signature for clients that tokenize themselves.

    `answer` maps `FEATURES`, int32 [B, S] each, to the `outputs`.
    """
    config, limit = network.model.config, network.model.max_seq_length
    bounds = (network.layout.vocabulary.size, 2, config.type_vocab_size)
    padding = network.model.visible_padding
    # With visible padding, answers of sequences near the limit would depend on their padding.
    longest = limit if padding else config.max_position_embeddings

    def function(input_ids, input_mask, segment_ids):
        S = tf.shape(input_ids)[1]
        features = dict(zip(FEATURES, (input_ids, input_mask, segment_ids)))
        features = _checked(features, bounds, longest)
        missing = tf.maximum(tf.minimum(S + padding, longest), 1) - S
        features = {name: tf.pad(value, [[0, 0], [0, missing]]) for name, value in features.items()}
        answers = answer(features)
        return {
            name: value[:, :S] if outputs[name].axes[1:2] == "S" else value
            for name, value in answers.items()
        }

    about = f"token ids to {', '.join(outputs)}"
    return Signature(about, function, dict.fromkeys(FEATURES, Tensor("int32", "BS")), outputs)


def _checked(features: Tensors, bounds: tuple[int, int, int], longest: int) -> Tensors:
    """Returns features that fail with a clear message if they are invalid."""
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
