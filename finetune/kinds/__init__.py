"""The kinds of tasks, by name. A new one is a subclass of `Kind` and one call of `register`."""

from __future__ import annotations

from errors import InputError
from finetune.kinds.base import Kind
from finetune.kinds.classification import Classification
from finetune.kinds.regression import Regression
from finetune.kinds.span import Span
from finetune.kinds.tagging import Tagging
from settings import field_names

_KINDS: dict[str, Kind] = {}


def register(kind: Kind) -> None:
    """Adds a kind, which declarations and recorded runs name from now on.

    Raises:
        ValueError: another kind has its name.
    """
    classes = (type(item) for item in (_KINDS.get(kind.name, kind), kind))
    known, own = (f"{item.__module__}.{item.__qualname__}" for item in classes)
    if known != own:  # the same class again is that of a file that is loaded again
        raise ValueError(f"the name {kind.name!r} of {own} is already that of {known}")
    _KINDS[kind.name] = kind


def get(name: str) -> Kind:
    """The kind of this name.

    Raises:
        InputError: there is none.
    """
    if name not in _KINDS:
        raise InputError(
            f"`kind` should be one of {', '.join(_KINDS)}, or of a file that --plugins imports. "
            f"Received: {name!r}"
        )
    return _KINDS[name]


def names() -> tuple[str, ...]:
    """The names of all kinds."""
    return tuple(_KINDS)


def hparam_names() -> list[str]:
    """The names of the hyper-parameters of all kinds."""
    return list(dict.fromkeys(field_names(*(kind.hparams for kind in _KINDS.values()))))


for _kind in (Classification(), Regression(), Tagging(), Span()):
    register(_kind)
