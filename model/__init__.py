"""What is computed: the encoder, its layers and heads. No training, no files of weights.

Names are imported when they are first used, so that reading a configuration needs no TensorFlow.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from model.backbone import Backbone, EncoderOutput
    from model.config import EncoderConfig
    from model.encoder import Encoder, build_encoder
    from model.heads import DiscriminatorHead, MaskedLMHead
    from model.sizes import SIZES, named_size

__all__ = [
    "SIZES",
    "Backbone",
    "DiscriminatorHead",
    "Encoder",
    "EncoderConfig",
    "EncoderOutput",
    "MaskedLMHead",
    "build_encoder",
    "named_size",
]

_MODULES = {
    "Backbone": "backbone",
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
