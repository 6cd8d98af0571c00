"""The objectives of pre-training by name. Needs no TensorFlow.

A new objective is one file and one call: a subclass of `ObjectiveSettings`, and `register`. A file
outside of this repository is imported with `--plugins FILE`.
"""

from __future__ import annotations

import difflib

from errors import InputError
from pretrain.objectives.base import ObjectiveSettings
from pretrain.objectives.masked_lm import MaskedLMSettings
from pretrain.objectives.replaced_token_detection import ReplacedTokenDetectionSettings

__all__ = ["ObjectiveSettings", "get", "register", "registered"]

_OBJECTIVES: dict[str, type[ObjectiveSettings]] = {}


def register(settings: type[ObjectiveSettings]) -> type[ObjectiveSettings]:
    """Makes an objective known under its `name`; also usable as a decorator.

    Raises:
        InputError: it is not what `ObjectiveSettings` describes, or the name is taken.
    """
    name = getattr(settings, "name", None)
    if not isinstance(name, str):
        raise InputError(f"{settings.__name__}.name should be a string. Received: {name!r}")
    if "__dataclass_fields__" not in vars(settings):  # those of a base would be taken for its own
        raise InputError(f"objective {name}: {settings.__name__} should be a frozen dataclass")
    if settings.networks[:1] != ("encoder",):
        raise InputError(
            f"objective {name}: the first of `networks` should be encoder."
            f" Received: {settings.networks!r}"
        )
    if name in _OBJECTIVES:
        raise InputError(f"objective {name}: there is one of that name already")
    _OBJECTIVES[name] = settings
    return settings


def get(name: str) -> type[ObjectiveSettings]:
    """The configuration class of an objective.

    Raises:
        InputError: there is none of that name; suggests the nearest.
    """
    if name in registered():
        return _OBJECTIVES[name]
    near = difflib.get_close_matches(str(name), _OBJECTIVES, n=1)
    hint = f" Did you mean {near[0]}?" if near else ""
    raise InputError(
        f"`objective` should be one of {', '.join(_OBJECTIVES)}, or of a file of --plugins."
        f"{hint} Received: {name!r}"
    )


def registered() -> tuple[str, ...]:
    """The names of all objectives."""
    return tuple(_OBJECTIVES)


register(MaskedLMSettings)
register(ReplacedTokenDetectionSettings)
