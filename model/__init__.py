"""What is computed: the encoder, its layers and heads. No training, no files of weights.

Names are imported when they are first used, so that reading a configuration needs no TensorFlow.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from model.config import EncoderConfig
    from model.encoder import Encoder, EncoderOutput, build_encoder
    from model.heads import DiscriminatorHead, MaskedLMHead
    from model.sizes import SIZES, named_size

__all__ = [
    "SIZES",
    "DiscriminatorHead",
    "Encoder",
    "EncoderConfig",
    "EncoderOutput",
    "MaskedLMHead",
    "build_encoder",
    "named_size",
]

_MODULES = {
    "EncoderConfig": "config",
    "Encoder": "encoder",
    "EncoderOutput": "encoder",
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
