"""XLNet against the Model Garden's with the same weights, and by properties."""

from __future__ import annotations

import re

import numpy as np
import tensorflow as tf

from convbert.model import build_backbone
from tests.model_support import TINY_XLNET as TINY
from tests.model_support import normal, random_features, randomize, tensors

D = TINY.hidden_size
B, S, P = 4, 7, 3
LENGTHS = (7, 4, 6, 3)
CLOSE = {"atol": 2e-5, "rtol": 0}


def build(**changes):
    """A tiny one with random weights."""
    encoder = build_backbone(TINY.replace(**changes))
    randomize(encoder)
    for variable in encoder.trainable_variables:
        if "gamma" in variable.name:  # or tokens become alike from layer to layer
            variable.assign_add(tf.ones_like(variable))
    return encoder


def batch():
    """Features with three segments, the last token's a third."""
    features = random_features(B, S, LENGTHS)
    features["segment_ids"][np.arange(B), np.asarray(LENGTHS) - 1] = 2
    return features


def order():
    """Permitted [B, S, S] of random orders, in which all see the first, and targets [B, P]."""
    draw = np.random.default_rng(3)
    permitted, targets = np.zeros([B, S, S], np.float32), np.zeros([B, P], np.int32)
    for b, length in enumerate(LENGTHS):
        rank = np.concatenate([draw.permutation(length), np.arange(length, S)])
        permitted[b] = (rank[:, None] > rank) | (rank == 0)
        targets[b] = draw.choice(length, P, replace=False)
    return permitted, targets


# ---------------------------------------------------------------- the Model Garden's


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
        tie_attention_biases=False,
        memory_length=0,
        reuse_length=0,
        clamp_length=-1,
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
    names = {"content_attention_bias": "content_bias", "positional_attention_bias": "position_bias"}
    for name, ours in {**names, "segment_attention_bias": "segment_bias"}.items():
        yield name, tf.stack([getattr(layer.attention, ours) for layer in layers])
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


def assert_real_equal(found, expected):
    for b, length in enumerate(LENGTHS):
        np.testing.assert_allclose(found[b, :length], expected[b, :length], **CLOSE)


def test_the_garden_computes_the_same_streams():
    encoder, features = build(), batch()
    permitted, targets = order()
    mask_embedding = normal(1, TINY.hidden_size)
    given = {**tensors(features), "permutation_mask": tf.constant(permitted, tf.int32)}
    mapping = {"target_mapping": tf.one_hot(targets, S), "masked_tokens": tf.zeros([B, S])}
    content, _ = garden(encoder)(**given)
    queries, _ = garden(encoder, mask_embedding)(**given, **mapping)
    found = encoder.two_streams(features, permitted, targets, mask_embedding)
    assert_real_equal(found.content.sequence, content)
    last = np.asarray(LENGTHS) - 1
    np.testing.assert_array_equal(
        found.content.pooled, found.content.sequence.numpy()[np.arange(B), last]
    )
    np.testing.assert_allclose(found.queries, queries, **CLOSE)


# ---------------------------------------------------------------- properties


def test_padding_on_either_side_changes_nothing():
    """Here it is on the right; the original has it on the left."""
    encoder, right = build(), batch()
    longer = {name: np.pad(value, [[0, 0], [0, 3]]) for name, value in right.items()}
    moved = [[np.roll(row, S - n) for row, n in zip(v, LENGTHS)] for v in right.values()]
    left = dict(zip(right, map(np.stack, moved), strict=True))
    expected = encoder(right)
    for features, begins in ((longer, [0] * B), (left, S - np.array(LENGTHS))):
        found = encoder(features)
        np.testing.assert_allclose(found.pooled, expected.pooled, atol=1e-5)
        for b, (begin, length) in enumerate(zip(begins, LENGTHS, strict=True)):
            states = found.sequence[b, begin : begin + length]
            np.testing.assert_allclose(states, expected.sequence[b, :length], atol=1e-5)
    nothing = {**right, "input_mask": np.zeros_like(right["input_mask"])}
    assert np.isfinite(encoder(nothing).sequence).all()
