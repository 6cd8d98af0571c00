"""ModernBERT's block (Warner et al. 2024), with a choice of token mixers."""

from convbert.model.config import register_architecture
from convbert.model.modern.config import ModernConfig

_BASE = ModernConfig()
_ETTIN = _BASE.replace(local_rope_theta=160_000.0)
SIZES = {
    # ModernBERT (arXiv 2412.13663), Table 4.
    "modern-base": _BASE,
    "modern-large": _BASE.replace(
        embedding_size=1024,
        hidden_size=1024,
        num_hidden_layers=28,
        num_attention_heads=16,
        intermediate_size=2624,
    ),
    # Ettin's encoders (arXiv 2507.11412); the one of 150M parameters has ModernBERT-base's widths.
    "ettin-17m": _ETTIN.replace(
        embedding_size=256,
        hidden_size=256,
        num_hidden_layers=7,
        num_attention_heads=4,
        intermediate_size=384,
    ),
    "ettin-32m": _ETTIN.replace(
        embedding_size=384,
        hidden_size=384,
        num_hidden_layers=10,
        num_attention_heads=6,
        intermediate_size=576,
    ),
    "ettin-68m": _ETTIN.replace(
        embedding_size=512,
        hidden_size=512,
        num_hidden_layers=19,
        num_attention_heads=8,
        intermediate_size=768,
    ),
    "ettin-150m": _ETTIN,
    # Ours: as wide and deep as convbert-tiny.
    "modern-tiny": _BASE.replace(
        vocab_size=8192,
        embedding_size=128,
        hidden_size=128,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=192,
        max_position_embeddings=512,
    ),
}
register_architecture(ModernConfig, "convbert.model.modern.network:ModernEncoder", SIZES)
