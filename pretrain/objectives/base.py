"""The interface that pre-training objectives offer to all other packages, and their registry."""

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
from convbert.model.flops import UNCOUNTED, Flops
from convbert.training.objective import Objective

_NUM_CANDIDATES = 10  # of MASKED_TOKENS


class Offer(NamedTuple):
    """A signature of exported models, see `ObjectiveSettings.signatures`."""

    name: str  # the project's are in serving/signatures/pretraining.py
    networks: tuple[str, ...] = ("encoder", "head")  # of the objective, an encoder first
    function: str | None = None  # the name by which `build` finds `compute`; None without one
    # Maps (features, encode, *the other networks) to tensors, as in `ScoringMethod`.
    compute: Callable | None = None
    more_inputs: tuple[str, ...] = ()  # features besides `input_ids`, `input_mask`, `segment_ids`
    # Maps a `serving.signatures.network.Network` and networks to a `Signature`; only for names that
    # are not the project's.
    build: Callable | None = None


def _replaced_logits(features, encode, head) -> dict[str, tf.Tensor]:
    """Returns `logits` [n, S] of "was replaced", from a discriminator or masked language model."""
    logits = getattr(head, "replaced_logits", head)
    return {"logits": logits(encode(features).sequence)}


def _candidates(features, encode, head) -> dict[str, tf.Tensor]:
    """Returns the most probable `candidates` int32 [n, M, K] at `positions`, and `shares`."""
    logits = head(encode(features).sequence, features["positions"])  # [n, M, V]
    shares, ids = tf.math.top_k(tf.nn.softmax(logits), min(_NUM_CANDIDATES, logits.shape[-1]))
    return {"shares": shares, "candidates": ids}


REPLACED_TOKENS = Offer("replaced_tokens", function="replaced", compute=_replaced_logits)
MASKED_TOKENS = Offer(
    "masked_tokens", function="masked", compute=_candidates, more_inputs=("positions",)
)


class ScoringMethod(NamedTuple):
    """A method of scoring sentences; serving/signatures/scoring.py prepares its inputs.

    `log_scores` maps (features, encode, *the other networks) to log scores of tokens. `encode` maps
    features to an `EncoderOutput`. The features are `input_ids`, `input_mask`, `segment_ids` and
    `scored`, int32 [n, S]; log scores float32 [n, S] are read where `scored` is 1. It is traced
    without AutoGraph.
    """

    name: str  # for users; ends in "_heuristic" unless the score is a log-probability
    networks: tuple[str, ...]  # of the objective, an encoder first
    log_scores: Callable | None  # None for a LiteRT file
    # Whether each token is masked in its own pass. The features then have `position` and `token`,
    # int32 [n], instead of `scored`, and log scores are [n].
    masks_each: bool = False
    # Whether a token's log score depends only on earlier tokens, so that the parts of a long
    # sentence need no context after them.
    causal: bool = False


def choose(methods: Sequence[ScoringMethod], name: str | None, where: str) -> ScoringMethod:
    """Returns the method called `name`, by default the first one.

    InputError, which begins with `where` and lists all methods, if there is none.
    """
    for method in methods:
        if name in (None, method.name):
            return method
    names = ", ".join(method.name for method in methods) or "none, as it lacks the networks"
    raise InputError(f"{where}: the scoring method should be one of {names}. Received: {name!r}")


@dataclasses.dataclass(frozen=True)
class ObjectiveSettings(abc.ABC):
    """The configuration of an objective, and everything known about it before it is built.

    A subclass is a frozen dataclass. Its fields are hyper-parameters: `--hparams`, recipes and
    `hparams.json` hold them beside `"objective": NAME`. All have defaults and may declare checks,
    see `settings.check_fields`. Their names must differ from those of `PretrainingHParams` and
    `RunSettings`; objectives may share names with each other.
    """

    name: ClassVar[str]  # in JSON
    # Attributes of the built objective; fine-tuning and serving use the first, `encoder`.
    networks: ClassVar[tuple[str, ...]] = ("encoder", "head")
    # Networks that the formats of other projects (checkpoints/) have names for.
    converted: ClassVar[tuple[str, ...]] = ("encoder",)
    # Of exported models, besides vectors; and methods of scoring sentences, the default first. A
    # model has those whose networks exist.
    signatures: ClassVar[tuple[Offer, ...]] = ()
    scoring_methods: ClassVar[tuple[ScoringMethod, ...]] = ()
    # Fields that define the networks. A run that continues from another objective's keeps the
    # values of those that both have.
    network_fields: ClassVar[tuple[str, ...]] = ()
    packs: ClassVar[bool] = False  # whether rows may hold several sequences, see `Backbone`
    bar: ClassVar[dict[str, str]] = {}  # metrics in the progress bar beside the loss: name -> label

    def __post_init__(self) -> None:
        check_fields(self)

    def resolve(self, model_size: str) -> ObjectiveSettings:
        """Returns a copy in which fields that depend on a named size are set."""
        return self

    def check(self, encoder: BackboneConfig | None = None) -> None:  # noqa: B027
        """Raises InputError for an invalid value; `encoder` may not be known yet."""

    @property
    def unread(self) -> tuple[str, ...]:
        """Fields that have no effect beside the values of others."""
        return ()

    def own_networks(self) -> tuple[str, ...]:
        """Returns those of `networks` that have their own variables, `encoder` first."""
        return self.networks

    def carried_networks(
        self, before: ObjectiveSettings, encoder: BackboneConfig, stored: Collection[str]
    ) -> tuple[str, ...]:
        """Returns the names of the networks to read from another run's checkpoint.

        `before` is its objective, `stored` has the names of its networks. InputError if one of the
        same name differs.
        """
        if before.name != self.name:
            return ("encoder",)  # the heads are of different kinds
        return tuple(name for name in self.own_networks() if name in stored)

    def operations(self, encoder: BackboneConfig, max_seq_length: int, dense_lookup: bool) -> Flops:
        """Returns the floating-point operations of a step's forward passes, per token.

        They are UNCOUNTED unless the objective and the backbone count them. `dense_lookup` counts
        embedding lookups as products with one-hot vectors.
        """
        return UNCOUNTED

    @abc.abstractmethod
    def build(self, hparams: Any, config: BackboneConfig, special_ids: dict[str, int]) -> Objective:
        """Builds the objective and its networks with random weights.

        `hparams` are the resolved PretrainingHParams, whose `objective` is this object; `config` is
        the encoder's. `special_ids` has the ids `cls`, `sep` and `mask`; that of commands is a
        `pretrain.load.SpecialIds`, which also knows word starts.
        """

    def require(self, condition: bool, name: str, expectation: str) -> None:
        """Raises InputError, "`name` should be EXPECTATION", unless `condition` holds."""
        check_setting(self, condition, name, expectation)


_REGISTRY: Registry[type[ObjectiveSettings]] = Registry("objective")
get, names = _REGISTRY.get, _REGISTRY.names


def register(settings: type[ObjectiveSettings]) -> type[ObjectiveSettings]:
    """Class decorator that registers an objective under its `name`.

    InputError if it is not as `ObjectiveSettings` requires, or the name is taken.
    """
    if "__dataclass_fields__" not in vars(settings):  # a base class's fields would be inherited
        raise InputError(f"{source(settings)}: should be a frozen dataclass")
    _REGISTRY.add(settings.name, settings, settings)
    return settings
