"""How sentences are scored by what an objective has trained. Needs no TensorFlow.

sentence_scores.py computes it, and signatures/scoring.py lays out the sentences.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from errors import InputError
from plugins import lazily


class ScoringMethod(NamedTuple):
    """A way to score sentences; an objective lists its own, see `ObjectiveSettings`.

    Attributes:
        name: that users choose it by. One that only stands in for a log-probability ends in
            "_heuristic".
        about: what the score is, in one line.
        networks: names of the objective's networks that it needs, an encoder first.
        log_scores: from (features, encode, *the other networks) to log scores of tokens. `encode`
            leads from features to an `EncoderOutput`. The features are `input_ids`, `input_mask`,
            `segment_ids` and `scored`, int32 [n, S]; log scores float32 [n, S] are read where
            `scored` is 1. It becomes part of a graph, without AutoGraph.
        masks_each: whether each token has a pass of its own, in which it is [MASK]. The features
            have `position` and `token`, int32 [n], instead of `scored`, and log scores are [n].
        causal: whether a token's log score depends on those before it alone, so that parts of
            sentences that do not fit need no context after them.
    """

    name: str
    about: str
    networks: tuple[str, ...]
    log_scores: Callable
    masks_each: bool = False
    causal: bool = False


SELF_CRITIC = ScoringMethod(
    "self_critic",
    "the sum of log p(piece is original), of all pieces in one pass (SCRIPT, Equation 7)",
    (),
    lazily("pretrain.sentence_scores:self_critic"),
)
CAUSAL = ScoringMethod(
    "causal",
    "the sum of log p(piece | the pieces before it), in one pass",
    (),
    lazily("pretrain.sentence_scores:causal_lm"),
    causal=True,
)
DISCRIMINATOR = ScoringMethod(
    "discriminator_heuristic",
    "minus the sum of the logits of `was replaced`, in one pass; as in Electric, though a"
    " discriminator of ELECTRA's or ConvBERT's kind is not trained to give log-probabilities",
    (),
    lazily("pretrain.sentence_scores:discriminator"),
)
PSEUDO_LOG_LIKELIHOOD = ScoringMethod(
    "pseudo_log_likelihood",
    "the sum of log p(piece | all other pieces), in one pass per piece (Salazar et al. 2020)",
    (),
    lazily("pretrain.sentence_scores:masked_lm"),
    masks_each=True,
)


def methods_of(
    critic: tuple[str, str] | None,
    causal_lm: tuple[str, str] | None,
    detector: tuple[str, str] | None,
    masked_lm: tuple[str, str] | None,
) -> tuple[ScoringMethod, ...]:
    """The methods for the networks that there are, those of one pass first."""
    found = {SELF_CRITIC: critic, CAUSAL: causal_lm, DISCRIMINATOR: detector}
    found[PSEUDO_LOG_LIKELIHOOD] = masked_lm
    return tuple(method._replace(networks=names) for method, names in found.items() if names)


def choose(methods: Sequence[ScoringMethod], name: str | None, where: str) -> ScoringMethod:
    """The method of this name, by default the first.

    Raises:
        InputError: there is none; names what there is, and `where` it was looked for.
    """
    for method in methods:
        if name in (None, method.name):
            return method
    names = ", ".join(method.name for method in methods) or "none, as it has no such networks"
    raise InputError(f"{where}: the scoring method should be one of {names}. Received: {name!r}")
