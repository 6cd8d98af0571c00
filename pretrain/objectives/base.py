"""The interface of pre-training objectives for all other packages, and their registry."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Collection, Sequence
from typing import Any, ClassVar, NamedTuple

import tensorflow as tf

from convbert.common.errors import InputError
from convbert.common.plugins import Registry, source
from convbert.common.settings import check_fields, check_setting
from convbert.model.config import BackboneConfig
from convbert.model.flops import Flops
from convbert.training.objective import Objective

_NUM_CANDIDATES = 10  # of MASKED_TOKENS


class Offer(NamedTuple):
    """A signature of exported models, see `ObjectiveSettings.signatures`.

    Attributes:
        name: of the signature; the project's are in serving/signatures/pretraining.py.
        networks: names of the objective's networks that it needs, an encoder first.
        function: the name under which its `build` finds `compute`; None without one.
        compute: from (features, encode, *the other networks) to tensors, as `ScoringMethod` has it.
        more_inputs: names of features besides `input_ids`, `input_mask` and `segment_ids`.
        build: from a `serving.signatures.network.Network` and networks to a `Signature`; only where
            the name is not the project's.
    """

    name: str
    networks: tuple[str, ...] = ("encoder", "head")
    function: str | None = None
    compute: Callable | None = None
    more_inputs: tuple[str, ...] = ()
    build: Callable | None = None


def _replaced_logits(features, encode, head) -> dict[str, tf.Tensor]:
    """`logits` [n, S] of "was replaced", by a discriminator or by a masked language model."""
    logits = getattr(head, "replaced_logits", head)
    return {"logits": logits(encode(features).sequence)}


def _candidates(features, encode, head) -> dict[str, tf.Tensor]:
    """Of the masks at `positions`, the most probable `candidates` int32 [n, M, K]; `shares`."""
    logits = head(encode(features).sequence, features["positions"])  # [n, M, V]
    shares, ids = tf.math.top_k(tf.nn.softmax(logits), min(_NUM_CANDIDATES, logits.shape[-1]))
    return {"shares": shares, "candidates": ids}


REPLACED_TOKENS = Offer("replaced_tokens", function="replaced", compute=_replaced_logits)
MASKED_TOKENS = Offer(
    "masked_tokens", function="masked", compute=_candidates, more_inputs=("positions",)
)


class ScoringMethod(NamedTuple):
    """A way to score sentences; serving/signatures/scoring.py lays them out.

    Attributes:
        name: that users choose it by. One that only stands in for a log-probability ends in
            "_heuristic".
        about: what the score is, in one line.
        networks: names of the objective's networks that it needs, an encoder first.
        log_scores: from (features, encode, *the other networks) to log scores of tokens. `encode`
            leads from features to an `EncoderOutput`. The features are `input_ids`, `input_mask`,
            `segment_ids` and `scored`, int32 [n, S]; log scores float32 [n, S] are read where
            `scored` is 1. It becomes part of a graph, without AutoGraph. None of a LiteRT file.
        masks_each: whether each token has a pass of its own, in which it is [MASK]. The features
            have `position` and `token`, int32 [n], instead of `scored`, and log scores are [n].
        causal: whether a token's log score depends on those before it alone, so that parts of
            sentences that do not fit need no context after them.
    """

    name: str
    about: str
    networks: tuple[str, ...]
    log_scores: Callable | None
    masks_each: bool = False
    causal: bool = False


def choose(methods: Sequence[ScoringMethod], name: str | None, where: str) -> ScoringMethod:
    """Returns the method of this name, by default the first.

    Raises:
        InputError: there is none; names what there is, and `where` it was looked for.
    """
    for method in methods:
        if name in (None, method.name):
            return method
    names = ", ".join(method.name for method in methods) or "none, as it has no such networks"
    raise InputError(f"{where}: the scoring method should be one of {names}. Received: {name!r}")


@dataclasses.dataclass(frozen=True)
class ObjectiveSettings(abc.ABC):
    """The configuration of an objective, and all that is known of it before it is built.

    A subclass is a frozen dataclass. Its fields are hyper-parameters: `--hparams`, recipes and
    `hparams.json` hold them beside `"objective": NAME`. All have defaults, and may say what values
    they take, see `settings.check_fields`. Their names are not those of `PretrainingHParams` or
    `RunSettings`; objectives may share names with each other.

    Attributes:
        name: of the objective, in JSON.
        networks: attributes of what `build` returns. The first is `encoder`, which fine-tuning and
            serving take.
        converted: those that the formats of other projects (checkpoints/) have names for.
        signatures: what an exported model can be asked besides vectors.
        scoring_methods: how sentences can be scored, the default first. Of these and of
            `signatures`, a model has those whose networks are there.
        network_fields: names of the fields that say what its networks are. A run that continues
            from another objective's takes over those that both have.
        bar: metrics that the progress bar shows beside the loss, as {name: label}.
    """

    name: ClassVar[str]
    networks: ClassVar[tuple[str, ...]] = ("encoder", "head")
    converted: ClassVar[tuple[str, ...]] = ("encoder",)
    signatures: ClassVar[tuple[Offer, ...]] = ()
    scoring_methods: ClassVar[tuple[ScoringMethod, ...]] = ()
    network_fields: ClassVar[tuple[str, ...]] = ()
    bar: ClassVar[dict[str, str]] = {}

    def __post_init__(self) -> None:
        check_fields(self)

    def resolve(self, model_size: str) -> ObjectiveSettings:
        """Returns itself with every field set that depends on a named size."""
        return self

    def check(self, encoder: BackboneConfig | None = None) -> None:  # noqa: B027
        """Raises InputError for a value that cannot be right; `encoder` may not be known yet."""

    def own_networks(self) -> tuple[str, ...]:
        """Returns those of `networks` that have variables of their own, `encoder` first."""
        return self.networks

    def carried_networks(
        self, before: ObjectiveSettings, encoder: BackboneConfig, stored: Collection[str]
    ) -> tuple[str, ...]:
        """Returns the names of the networks that a run takes from the checkpoint of another run.

        Args:
            before: the objective of the other run.
            stored: names of the networks that are in the checkpoint.

        Raises:
            InputError: a network of the same name is another one there.
        """
        if before.name != self.name:
            return ("encoder",)  # the heads are of different kinds
        return tuple(name for name in self.own_networks() if name in stored)

    def operations(
        self, encoder: BackboneConfig, max_seq_length: int, dense_lookup: bool
    ) -> Flops | None:
        """Returns floating-point operations of the forward passes of a step, per token.

        None means that they are not counted, for an objective or a backbone that does not say them.
        `dense_lookup` counts embedding lookups as products with one-hot vectors.
        """
        return None

    @abc.abstractmethod
    def build(self, hparams: Any, config: BackboneConfig, special_ids: dict[str, int]) -> Objective:
        """Returns the objective with its networks, at random weights.

        Args:
            hparams: the resolved PretrainingHParams; `hparams.objective` is this.
            config: the encoder that is pre-trained.
            special_ids: the ids `cls`, `sep`, `mask`. The commands give
                `pretrain.load.SpecialIds`, which knows of words, too.
        """

    def require(self, condition: bool, name: str, expectation: str) -> None:
        """Raises InputError, "`name` should be EXPECTATION", unless `condition` holds."""
        check_setting(self, condition, name, expectation)


_REGISTRY: Registry[type[ObjectiveSettings]] = Registry("objective")
get, names = _REGISTRY.get, _REGISTRY.names


def register(settings: type[ObjectiveSettings]) -> type[ObjectiveSettings]:
    """Decorates settings: makes the objective known under its `name`.

    Raises:
        InputError: it is not what `ObjectiveSettings` describes, or the name is another's.
    """
    if "__dataclass_fields__" not in vars(settings):  # those of a base would be taken for its own
        raise InputError(f"{source(settings)}: should be a frozen dataclass")
    _REGISTRY.add(settings.name, settings, settings)
    return settings
