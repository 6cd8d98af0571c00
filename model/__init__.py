"""What is computed: the encoder, its layers and heads. No training, no files of weights."""

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
