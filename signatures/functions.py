"""What the networks of a model compute of token ids: all of a signature but its texts.

Everything else of a signature leads from texts to these functions and from their outputs to
answers. So another runtime that computes these answers as the SavedModel does; see
serving/litert.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import tensorflow as tf

from model import Backbone, EncoderOutput
from training.tracing import plain_function

if TYPE_CHECKING:
    from serving.load import ServedModel

Tensors = dict[str, tf.Tensor]

FEATURES = ("input_ids", "input_mask", "segment_ids")
NUM_CANDIDATES = 10
# The names of functions.
ENCODE, PREDICT, REPLACED, MASKED, SCORE = "encode", "predict", "replaced", "masked", "score"
SCORED = "scored"  # of SCORE, beside FEATURES: int32 [n, S], 1 for the tokens that count
_ONE_TOKEN = ("position", "token")  # or these, where each token has a pass of its own: int32 [n]
_RANKS = dict.fromkeys(_ONE_TOKEN, 1)  # all other inputs have two axes


class Function(NamedTuple):
    """A function of token ids.

    Attributes:
        compute: from the inputs by name, int32 [n, S] but for `position` and `token` [n] and
            `positions` [n, M], to outputs [n, ...]. It becomes part of a graph.
        inputs: their names.
    """

    compute: Callable[[Tensors], Tensors]
    inputs: tuple[str, ...] = FEATURES

    def specs(self) -> dict[str, tf.TensorSpec]:
        """The inputs, of any batch size and length."""
        ranks = {name: _RANKS.get(name, 2) for name in self.inputs}
        return {n: tf.TensorSpec([None] * rank, tf.int32, n) for n, rank in ranks.items()}


def functions_of(model: ServedModel) -> dict[str, Function]:
    """The functions that a model has the networks for, by name.

    - ENCODE: `sequence` [n, S, D] and `pooled` [n, D].
    - PREDICT: what the task's head predicts; see `model.heads.task`.
    - REPLACED: `logits` [n, S] of "was replaced".
    - MASKED: of the masks at `positions`, the most probable `candidates` int32 [n, M, K] and their
      `shares`.
    - SCORE: `log_scores` of the model's scoring method, [n, S] or, where each token has a pass of
      its own, [n].
    """
    encode = encoder_in_graph(model.encoder)

    def vectors(features):
        output = encode(features)
        return {"sequence": output.sequence, "pooled": output.pooled}

    found = {ENCODE: Function(vectors)}
    if model.objective is not None:
        head = model.objective.head
        found[PREDICT] = Function(lambda part: head.predict(encode(part), part))
    if (replaced := model.replaced_logits) is not None:
        found[REPLACED] = Function(lambda part: {"logits": replaced(encode(part).sequence)})
    if model.masked_lm is not None:
        found[MASKED] = _masked(model)
    if model.scoring is not None:
        method, (encoder, *others) = model.scoring
        own = encode if encoder is model.encoder else encoder_in_graph(encoder)
        inputs = FEATURES + (_ONE_TOKEN if method.masks_each else (SCORED,))

        def log_scores(features):
            return {"log_scores": method.log_scores(features, own, *others)}

        found[SCORE] = Function(log_scores, inputs)
    return found


def encoder_in_graph(encoder: Backbone) -> Callable[[Tensors], EncoderOutput]:
    """A function from `FEATURES` to what heads read, traced once for all its callers."""
    specs = {name: tf.TensorSpec([None, None], tf.int32, name) for name in FEATURES}

    def encode(features):
        output = encoder(features)
        return EncoderOutput(output.sequence, output.pooled)

    traced = plain_function(encode, input_signature=[specs])
    return lambda features: traced({name: features[name] for name in FEATURES})


def _masked(model: ServedModel) -> Function:
    encoder, head = model.masked_lm
    encode = encoder_in_graph(encoder)
    K = min(NUM_CANDIDATES, model.vocabulary.size)

    def candidates(features):
        logits = head(encode(features).sequence, features["positions"])  # [n, M, V]
        shares, ids = tf.math.top_k(tf.nn.softmax(logits), K)
        return {"shares": shares, "candidates": ids}

    return Function(candidates, (*FEATURES, "positions"))
