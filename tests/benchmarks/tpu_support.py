"""A network that compiles soon."""

TINY = {
    "vocab_size": 1200,
    "model_hparam_overrides": {
        "num_hidden_layers": 1,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "embedding_size": 32,
        "intermediate_size": 128,
    },
}
