"""ModernBERT's block (Warner et al. 2024), with a choice of token mixers."""

from convbert.model.config import register_architecture
from convbert.model.modern.config import ModernConfig

_ETTIN = ModernConfig(local_rope_theta=160_000.0)


def _size(width: int, layers: int, heads: int, inner: int, base: ModernConfig) -> ModernConfig:
    """Returns a configuration of other sizes; `width` is that of embeddings and hidden states."""
    return base.replace(
        embedding_size=width,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=inner,
    )


_TINY = ModernConfig(vocab_size=8192, max_position_embeddings=512)
SIZES = {
    # ModernBERT (arXiv 2412.13663), Table 4.
    "modern-base": ModernConfig(),
    "modern-large": _size(1024, 28, 16, 2624, ModernConfig()),
    # Ettin's encoders (arXiv 2507.11412); the one of 150M parameters has ModernBERT-base's widths.
    "ettin-17m": _size(256, 7, 4, 384, _ETTIN),
    "ettin-32m": _size(384, 10, 6, 576, _ETTIN),
    "ettin-68m": _size(512, 19, 8, 768, _ETTIN),
    "ettin-150m": _ETTIN,
    # Ours: as wide and deep as convbert-tiny.
    "modern-tiny": _size(128, 4, 4, 192, _TINY),
}
register_architecture(ModernConfig, "convbert.model.modern.network:ModernEncoder", SIZES)
