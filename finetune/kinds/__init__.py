"""The kinds of tasks, by name. A new one is a subclass of `Kind` and one call of `register`."""

from __future__ import annotations

from common.plugins import Registry
from common.settings import field_names
from finetune.hparams import FinetuningRunSettings
from finetune.kinds.base import Kind
from finetune.kinds.multiple_choice import MultipleChoice
from finetune.kinds.span import Span
from finetune.kinds.tagging import Tagging
from finetune.kinds.texts import Classification, MultiLabel, Regression

_REGISTRY: Registry[Kind] = Registry("kind")
get, names = _REGISTRY.get, _REGISTRY.names


def register(kind: Kind) -> None:
    """Adds a kind, which declarations and recorded runs name from now on; see `Registry.add`."""
    shared = {*field_names(FinetuningRunSettings), "task_names"} & {*field_names(kind.hparams)}
    if shared:
        raise ValueError(f"kind {kind.name}: `{min(shared)}` is a setting of every run")
    _REGISTRY.add(kind.name, kind, type(kind))


def hparam_names() -> list[str]:
    """The names of the hyper-parameters of all kinds."""
    return list(dict.fromkeys(field_names(*(get(name).hparams for name in names()))))


for _kind in (Classification, MultiLabel, Regression, Tagging, Span, MultipleChoice):
    register(_kind())
