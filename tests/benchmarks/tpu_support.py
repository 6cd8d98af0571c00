"""Networks that compile soon."""

_SIZES = {"hidden_size": 64, "num_attention_heads": 4, "embedding_size": 32}
TINY = {
    "vocab_size": 1200,
    "model_hparam_overrides": {"num_hidden_layers": 1, "intermediate_size": 128, **_SIZES},
}
# Likewise of XLNet, which has fewer fields.
_SHARED = {name: value for name, value in _SIZES.items() if name != "embedding_size"}
TINY_XLNET = {
    "vocab_size": 1200,
    "model_hparam_overrides": {"num_hidden_layers": 1, "intermediate_size": 128, **_SHARED},
}
# As wide as kernels need to be compiled with what is around them, see `model.kernels.compiles`.
TWO_LAYERS = {
    "vocab_size": 1200,
    "generator_hidden_size": 0.5,
    "model_hparam_overrides": {"num_hidden_layers": 2},
}
