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
    from signatures.signature import Signature

Tensors = dict[str, tf.Tensor]

FEATURES = ("input_ids", "input_mask", "segment_ids")
ENCODE, PREDICT, SCORE = "encode", "predict", "score"  # the names of functions
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


class Offer(NamedTuple):
    """A signature that an objective of pre-training offers, see `ObjectiveSettings.signatures`.

    Attributes:
        name: of the signature.
        networks: names of the objective's networks that it needs, an encoder first.
        build: from (network, *the networks) to the `Signature`; of a LiteRT file, which has only
            the function below, from `network` alone.
        function: the name under which `Network.compute` finds `compute`; None without one.
        compute: from (features, encode, *the other networks) to tensors, as `ScoringMethod` has it.
        inputs: names of the features.
    """

    name: str
    networks: tuple[str, ...]
    build: Callable[..., Signature]
    function: str | None = None
    compute: Callable[..., Tensors] | None = None
    inputs: tuple[str, ...] = FEATURES


def functions_of(model: ServedModel) -> dict[str, Function]:
    """The functions that a model has the networks for, by name.

    - ENCODE: `sequence` [n, S, D] and `pooled` [n, D].
    - PREDICT: what the task's head predicts; see `model.heads.task`.
    - those of the signatures that the model's objective lists, see `Offer`.
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

    def function_of(compute, networks, inputs):
        encoder, *others = networks
        own = encode if encoder is model.encoder else encoder_in_graph(encoder)
        return Function(lambda part: compute(part, own, *others), inputs)

    for offer, networks in model.offers.items():
        if offer.function is not None:
            found[offer.function] = function_of(offer.compute, networks, offer.inputs)
    if model.scoring is not None:
        method, networks = model.scoring
        inputs = FEATURES + (_ONE_TOKEN if method.masks_each else (SCORED,))

        def log_scores(*arguments):
            return {"log_scores": method.log_scores(*arguments)}

        found[SCORE] = function_of(log_scores, networks, inputs)
    return found


def encoder_in_graph(encoder: Backbone) -> Callable[[Tensors], EncoderOutput]:
    """A function from `FEATURES` to what heads read, traced once for all its callers."""
    specs = {name: tf.TensorSpec([None, None], tf.int32, name) for name in FEATURES}

    def encode(features):
        output = encoder(features)
        return EncoderOutput(output.sequence, output.pooled)

    traced = plain_function(encode, input_signature=[specs])
    return lambda features: traced({name: features[name] for name in FEATURES})
