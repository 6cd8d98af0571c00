"""Architectures by the name in `config.json`: which class describes one, and what builds it.

Another architecture is a configuration, a function that builds a `Backbone`, and one call of
`register_architecture`. Reading a configuration needs no TensorFlow.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from errors import InputError
from model.config import (
    CONFIG_FILE,
    DEFAULT_ARCHITECTURE,
    BackboneConfig,
    EncoderConfig,
    read_fields,
)
from model.sizes import SIZES
from plugins import lazily

if TYPE_CHECKING:
    import tf_keras

    from model.backbone import Backbone


class Architecture(NamedTuple):
    """A registered architecture; see `register_architecture`."""

    config_class: type[BackboneConfig]
    build: Callable[..., Backbone] | str


_ARCHITECTURES: dict[str, Architecture] = {}


def register_architecture(
    config_class: type[BackboneConfig],
    build: Callable[..., Backbone] | str,
    sizes: Mapping[str, BackboneConfig] | None = None,
) -> None:
    """Makes an architecture known to every command.

    Args:
        config_class: a frozen dataclass that names its `architecture`.
        build: makes a backbone whose variables exist, `build(config, embeddings=None,
            name="encoder")`; `embeddings` are those of another backbone to share. Imports
            TensorFlow inside, or is given as "module:function", which is imported when called.
        sizes: configurations by name, for `model_size`.

    Raises:
        ValueError: the name of the architecture, or of a size, is taken.
    """
    name = config_class.architecture
    taken = [name] * (name in _ARCHITECTURES) + sorted(set(sizes or {}) & set(SIZES))
    if taken:
        raise ValueError(f"there is an architecture or a size already called {', '.join(taken)}")
    _ARCHITECTURES[name] = Architecture(config_class, build)
    SIZES.update(sizes or {})


def load_config(folder: str) -> BackboneConfig:
    """Reads `config.json` of `folder`, whatever its architecture.

    Raises:
        InputError: it is missing, does not fit, or names an architecture that is not registered.
    """
    path = os.path.join(folder, CONFIG_FILE)
    name = read_fields(path).get("architecture", DEFAULT_ARCHITECTURE)
    if name not in list(_ARCHITECTURES):  # it may be any JSON
        raise InputError(
            f"{path}: `architecture` should be one of {', '.join(_ARCHITECTURES)}."
            f" Received: {name!r}"
        )
    return _ARCHITECTURES[name].config_class.load(folder)


def build_backbone(
    config: BackboneConfig,
    embeddings: tf_keras.layers.Layer | None = None,
    name: str = "encoder",
) -> Backbone:
    """A backbone of the architecture that `config` describes, whose variables exist already."""
    build = _ARCHITECTURES[config.architecture].build
    if isinstance(build, str):
        build = lazily(build)
    return build(config, embeddings, name)


register_architecture(EncoderConfig, "model.encoder:build_encoder")
