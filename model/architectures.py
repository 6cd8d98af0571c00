"""Architectures by the name in `config.json`: which class describes one, and what builds it.

Another architecture is a configuration, a function that builds a `Backbone`, and one call of
`register_architecture`. Reading a configuration needs no TensorFlow.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import storage
from errors import InputError, located
from model.config import (
    CONFIG_FILE,
    DEFAULT_ARCHITECTURE,
    BackboneConfig,
    EncoderConfig,
    read_fields,
)
from model.sizes import SIZES
from model.xlnet.config import XLNetConfig
from plugins import Registry, lazily, source

if TYPE_CHECKING:
    import tf_keras

    from model.backbone import Backbone


class Architecture(NamedTuple):
    """A registered architecture; see `register_architecture`."""

    config_class: type[BackboneConfig]
    build: Callable[..., Backbone] | str


_REGISTRY: Registry[Architecture] = Registry("architecture")


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
        InputError: the name of the architecture, or of a size, is another's.
    """
    for name in sizes or {}:
        if name in SIZES and source(type(SIZES[name])) != source(config_class):
            raise InputError(f"{source(config_class)}: there is a size {name} already")
    _REGISTRY.add(config_class.architecture, Architecture(config_class, build), config_class)
    SIZES.update(sizes or {})


def load_config(folder: str) -> BackboneConfig:
    """Reads `config.json` of `folder`, whatever its architecture.

    Raises:
        InputError: it is missing, does not fit, or names an architecture that is not registered.
    """
    if not storage.isdir(folder):
        raise InputError(
            f"{folder}: there is no such model directory; checkpoints.convert makes one of the"
            " files of a Hugging Face or TensorFlow 1 model"
        )
    path = os.path.join(folder, CONFIG_FILE)
    name = read_fields(path).get("architecture", DEFAULT_ARCHITECTURE)
    with located(path):
        architecture = _REGISTRY.get(name)
    return architecture.config_class.load(folder)


def build_backbone(
    config: BackboneConfig,
    embeddings: tf_keras.layers.Layer | None = None,
    name: str = "encoder",
) -> Backbone:
    """A backbone of the architecture that `config` describes, whose variables exist already."""
    build = _REGISTRY.get(config.architecture).build
    if isinstance(build, str):
        build = lazily(build)
    return build(config, embeddings, name)


register_architecture(EncoderConfig, "model.encoder:build_encoder")
register_architecture(XLNetConfig, "model.xlnet.network:build_xlnet")
