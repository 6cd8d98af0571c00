"""A tiny XLNet, and the Model Garden's with the same weights."""

from __future__ import annotations

import re

import tensorflow as tf

from model import build_backbone
from tests.model_support import TINY_XLNET as TINY
from tests.model_support import randomize

NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def build(seed: int = 0, **changes):
    """A tiny one with random weights."""
    encoder = build_backbone(TINY.replace(**changes))
    randomize(encoder, seed, scale=0.5)
    for variable in encoder.trainable_variables:
        if "gamma" in variable.name:  # or tokens become alike from layer to layer
            variable.assign_add(tf.ones_like(variable))
    return encoder


def garden(encoder, mask_embedding=None):
    """`official.nlp.modeling.networks.XLNetBase` with the weights of an encoder of ours.

    In two streams if a mask embedding [1, D] is given.
    """
    from official.nlp.modeling.networks import XLNetBase

    config, two_stream = encoder.config, mask_embedding is not None
    theirs = XLNetBase(
        vocab_size=config.vocab_size,
        num_layers=config.num_hidden_layers,
        hidden_size=config.hidden_size,
        num_attention_heads=config.num_attention_heads,
        head_size=config.head_size,
        inner_size=config.intermediate_size,
        dropout_rate=0.0,
        attention_dropout_rate=0.0,
        attention_type="bi",
        bi_data=False,
        initializer="zeros",
        two_stream=two_stream,
        tie_attention_biases=not config.untie_biases,
        memory_length=0,
        reuse_length=0,
        clamp_length=config.clamp_length,
        inner_activation=lambda x: tf.nn.gelu(x, approximate=True),  # its "gelu" is the exact one
    )
    ids = tf.zeros([2, 3], tf.int32)
    streams = {"target_mapping": tf.eye(3, batch_shape=[2]), "masked_tokens": tf.zeros([2, 3])}
    theirs(ids, segment_ids=ids, **(streams if two_stream else {}))
    values = dict(_garden_values(encoder))
    if two_stream:
        values["mask_emb/mask_emb"] = mask_embedding
    scope = re.compile(r"^(xl_net_base\w*/)?(transformer_xl/)?|:0$")
    variables = {scope.sub("", variable.name): variable for variable in theirs.weights}
    assert set(variables) == set(values)
    for name, variable in variables.items():
        variable.assign(tf.reshape(values[name], variable.shape))
    return theirs


def _garden_values(encoder):
    """Its names of our weights; shapes differ in how heads are cut out."""
    yield "word_embedding/embeddings", encoder.embeddings.word_embeddings
    layers = encoder.encoder_layers
    segments = [layer.attention.segment_embeddings for layer in layers]
    yield "seg_embed", tf.stack(segments)
    tied = encoder.tied_biases
    names = {"content_attention_bias": "content", "positional_attention_bias": "position"}
    for name, ours in {**names, "segment_attention_bias": "segment"}.items():
        own = [getattr(layer.attention.biases, ours) for layer in layers]
        yield name, tf.stack(own) if tied is None else getattr(tied, ours)
    for i, layer in enumerate(layers):
        attention = layer.attention
        for name in ("query", "key", "value", "encoding"):
            yield f"layer_{i}/rel_attn/{name}/kernel", getattr(attention, f"{name}_kernel")
        yield f"layer_{i}/rel_attn/attention_output/kernel", attention.output_kernel
        for name, part in (
            ("self_attention_layer_norm", layer.attention_norm),
            ("output_layer_norm", layer.output_norm),
        ):
            yield f"layer_{i}/{name}/gamma", part.gamma
            yield f"layer_{i}/{name}/beta", part.beta
        for name, part in (("inner", layer.intermediate), ("output", layer.output_dense)):
            yield f"layer_{i}/{name}/kernel", part.kernel
            yield f"layer_{i}/{name}/bias", part.bias
