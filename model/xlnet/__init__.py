"""XLNet (Yang et al. 2019): relative attention, segments by equality, and two streams."""

from convbert.model.config import register_architecture
from convbert.model.xlnet.config import XLNetConfig

# README of zihangdai/xlnet: XLNet-Base and XLNet-Large, cased. The tiny one is ours.
SIZES = {
    "xlnet-base": XLNetConfig(),
    "xlnet-large": XLNetConfig(
        hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096
    ),
    "xlnet-tiny": XLNetConfig(
        vocab_size=8192,
        hidden_size=128,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=512,
    ),
}
register_architecture(XLNetConfig, "convbert.model.xlnet.network:XLNet", SIZES)
