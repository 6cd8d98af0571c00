"""Encoders, their layers and heads, in the paper's notation. No training.

Names are imported on first use, so that reading a configuration does not import TensorFlow.
"""

import importlib
from typing import Any

_MODULES = {
    "architectures": ("SIZES", "build_backbone", "load_config", "named_size"),
    "backbone": ("Backbone", "EncoderOutput"),
    "config": ("BackboneConfig", "EncoderConfig", "register_architecture"),
    "encoder": ("Encoder",),
    "heads.pretraining": ("CausalLMHead", "DiscriminatorHead", "MaskedLMHead"),
}
_NAMES = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_NAMES[name]}"), name)
