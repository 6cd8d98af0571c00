"""The heads of XLNet are those of the original."""

import numpy as np
import pytest
import tensorflow as tf

from convbert.finetune.hparams import resolve_hparams
from convbert.model.heads.task import HEAD_DROPOUT
from convbert.model.kernels import dropout
from convbert.model.xlnet.config import XLNetConfig
from tests.model_support import TINY, normal
from tests.serving.support import task

XLNET = XLNetConfig(vocab_size=31, hidden_size=16, num_attention_heads=2)


def head_of(kind, config):
    own = task(kind)
    return own.plugin.head(own, config, resolve_hparams({"max_seq_length": 24}, own, config))


@pytest.mark.parametrize("kind", ["classification", "regression", "multiple_choice"])
def test_heads_for_texts_begin_with_a_dense_layer(kind):
    """Of XLNet alone; dropout comes after it."""
    head, pooled = head_of(kind, XLNET), normal(500, 16)
    found = head(pooled)
    shapes = {tuple(w.shape) for w in head.weights}
    assert shapes == {(16, 16), (16,), (16, found.shape[1]), found.shape[1:]}
    head.summary.kernel.assign(normal(16, 16, seed=3) / 4)
    head.summary.bias.assign(normal(16, seed=4))
    summary = np.tanh(pooled @ head.summary.kernel.numpy() + head.summary.bias.numpy())
    kernel, bias = head.dense.kernel.numpy(), head.dense.bias.numpy()
    np.testing.assert_allclose(head(pooled), summary @ kernel + bias, atol=1e-5)
    seed = tf.constant([1, 2])
    dropped = dropout(tf.constant(summary), HEAD_DROPOUT, seed).numpy()
    found = head(pooled, training=True, seed=seed)
    np.testing.assert_allclose(found, dropped @ kernel + bias, atol=1e-5)
    assert np.abs(dropped - summary).max() > 0.1
    plain = head_of(kind, TINY)
    plain(pooled)
    assert len(plain.weights) == 2
