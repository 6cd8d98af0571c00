"""What everything else asks of an objective of pre-training. Needs no TensorFlow."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Collection
from typing import Any, ClassVar

from model.config import BackboneConfig
from model.operations import Flops
from pretrain.scoring_methods import ScoringMethod, methods_of
from settings import check_setting


@dataclasses.dataclass(frozen=True)
class ObjectiveSettings(abc.ABC):
    """The configuration of an objective, and all that is known of it before anything is built.

    A subclass is a frozen dataclass. Its fields are hyper-parameters: `--hparams`, recipes and
    `hparams.json` hold them beside `"objective": NAME`. All have defaults. Their names are not
    those of `PretrainingHParams` or `RunSettings`; objectives may share names with each other.

    One network of every objective is called `encoder`: fine-tuning and serving take it, and need
    nothing of the objective for that.

    Attributes:
        name: of the objective, in JSON.
        networks: its networks: attributes of what `build` returns, `encoder` first.
        network_fields: names of the fields that say what its networks are. A run that continues
            from another objective's takes over those that both have.
        bar: metrics that the progress bar shows beside the loss, as {name: label}.
        curves: metrics that the picture of curves shows beside loss and learning rate.
        convertible: whether the formats of other projects (checkpoints/) have names for its heads;
            of other objectives the encoder alone is converted.
    """

    name: ClassVar[str]
    networks: ClassVar[tuple[str, ...]] = ("encoder", "head")
    network_fields: ClassVar[tuple[str, ...]] = ()
    bar: ClassVar[dict[str, str]] = {}
    curves: ClassVar[tuple[str, ...]] = ()
    convertible: ClassVar[bool] = False

    def resolve(self, model_size: str) -> ObjectiveSettings:
        """The same with every field that depends on a named size (`model.sizes`) filled in."""
        return self

    def check(self, encoder: BackboneConfig | None = None) -> None:  # noqa: B027
        """Raises InputError for a value that cannot be right.

        Args:
            encoder: the encoder that is pre-trained; None where it is not known yet.
        """

    def own_networks(self) -> tuple[str, ...]:
        """Those of `networks` that have variables of their own, `encoder` first."""
        return self.networks

    def masked_lm(self) -> tuple[str, str] | None:
        """The names of the encoder and of the `MaskedLMHead` that predict masked tokens, if any."""
        return None

    def detector(self) -> tuple[str, str] | None:
        """The names of the encoder and of the `DiscriminatorHead` that say which tokens were
        replaced, if any.
        """
        return None

    def critic(self) -> tuple[str, str] | None:
        """The names of the encoder and of the `MaskedLMHead` whose scores say which tokens were
        replaced (`replaced_logits`), if any.
        """
        return None

    def causal_lm(self) -> tuple[str, str] | None:
        """The names of the encoder and of the `CausalLMHead` that predict next tokens, if any."""
        return None

    def scoring_methods(self) -> tuple[ScoringMethod, ...]:
        """How sentences can be scored, the default first: by default whatever the four above allow.

        An objective may list methods of its own, too.
        """
        return methods_of(self.critic(), self.causal_lm(), self.detector(), self.masked_lm())

    def in_order(self) -> bool:
        """Whether each sequence of a batch goes on where that of the batch before ended."""
        return False

    def record_length(self, max_seq_length: int) -> int:
        """Tokens of a record, of which training makes sequences; usually each is one.

        Raises:
            InputError: sequences of this length cannot be made of records.
        """
        return max_seq_length

    def derived_metrics(self, values: dict[str, float], counts: dict[str, int]) -> dict[str, float]:
        """Metrics of an evaluation that follow from its others.

        Args:
            values: those.
            counts: of the held-out text, as the data folder's manifest has them; {} without one.
        """
        return {}

    def carried_networks(
        self, before: ObjectiveSettings, encoder: BackboneConfig, stored: Collection[str]
    ) -> tuple[str, ...]:
        """The names of the networks that a run takes from the checkpoint of another run.

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
        """Floating-point operations of the forward passes of a training step, per token.

        None means that they are not counted, for an objective or a backbone that does not say them.

        Args:
            encoder: the encoder that is pre-trained.
            max_seq_length: S.
            dense_lookup: whether embedding lookups count as products with one-hot vectors.
        """
        return None

    @abc.abstractmethod
    def build(self, hparams: Any, config: BackboneConfig, special_ids: dict[str, int]) -> Any:
        """The `training.objective.Objective` with its networks. TensorFlow is imported here.

        Args:
            hparams: the resolved PretrainingHParams; `hparams.objective` is this.
            config: the encoder that is pre-trained.
            special_ids: the ids `cls`, `sep`, `mask`. The commands give
                `pretrain.saved_settings.SpecialIds`, which knows of words, too.
        """

    def require(self, condition: bool, name: str, expectation: str) -> None:
        """Raises InputError, "`name` should be EXPECTATION", unless `condition` holds."""
        check_setting(self, condition, name, expectation)
