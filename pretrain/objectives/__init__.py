"""The objectives of pre-training by name.

A new objective is one file and one call: a subclass of `ObjectiveSettings`, and `register`. A file
outside of this repository is imported with `--plugins FILE`.
"""

from __future__ import annotations

from errors import InputError
from plugins import Registry, source
from pretrain.objectives.base import ObjectiveSettings, ScoringMethod, choose
from pretrain.objectives.causal_lm import CausalLMSettings
from pretrain.objectives.masked_lm import MaskedLMSettings
from pretrain.objectives.permutation_lm import PermutationLMSettings
from pretrain.objectives.replaced_token_detection import ReplacedTokenDetectionSettings
from pretrain.objectives.self_critic import SelfCriticSettings

__all__ = ["ObjectiveSettings", "ScoringMethod", "choose", "get", "names", "register"]

_REGISTRY: Registry[type[ObjectiveSettings]] = Registry("objective")
get, names = _REGISTRY.get, _REGISTRY.names


def register(settings: type[ObjectiveSettings]) -> type[ObjectiveSettings]:
    """Makes an objective known under its `name`; also usable as a decorator.

    Raises:
        InputError: it is not what `ObjectiveSettings` describes, or the name is another's.
    """
    if "__dataclass_fields__" not in vars(settings):  # those of a base would be taken for its own
        raise InputError(f"{source(settings)}: should be a frozen dataclass")
    _REGISTRY.add(settings.name, settings, settings)
    return settings


register(MaskedLMSettings)
register(ReplacedTokenDetectionSettings)
register(SelfCriticSettings)
register(CausalLMSettings)
register(PermutationLMSettings)
