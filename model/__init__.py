"""What is computed, as the paper writes it: encoders, their layers and heads. No training.

Names are imported when they are first used, so that reading a configuration needs no TensorFlow.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from model.architectures import build_backbone, load_config, register_architecture
    from model.backbone import Backbone, EncoderOutput
    from model.config import BackboneConfig, EncoderConfig
    from model.encoder import Encoder, build_encoder
    from model.heads import DiscriminatorHead, MaskedLMHead
    from model.sizes import SIZES, named_size

__all__ = [
    "SIZES",
    "Backbone",
    "BackboneConfig",
    "DiscriminatorHead",
    "Encoder",
    "EncoderConfig",
    "EncoderOutput",
    "MaskedLMHead",
    "build_backbone",
    "build_encoder",
    "load_config",
    "named_size",
    "register_architecture",
]

_MODULES = {
    "build_backbone": "architectures",
    "load_config": "architectures",
    "register_architecture": "architectures",
    "Backbone": "backbone",
    "BackboneConfig": "config",
    "EncoderConfig": "config",
    "Encoder": "encoder",
    "EncoderOutput": "backbone",
    "build_encoder": "encoder",
    "DiscriminatorHead": "heads",
    "MaskedLMHead": "heads",
    "SIZES": "sizes",
    "named_size": "sizes",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
