"""Log scores of tokens: what the scoring methods of scoring_methods.py compute."""

from __future__ import annotations

import tensorflow as tf

from pretrain.objectives.causal_lm_loss import token_losses


def self_critic(features, encode, head) -> tf.Tensor:
    """log p(t+ | x): one minus Equation 4 of SCRIPT, so log sigmoid of a log-sum-exp over V.

    The head sees the scored tokens alone.

    Returns:
        float32 [n, S], 0 elsewhere.
    """
    places = tf.where(features["scored"] > 0)  # [T, 2]
    hidden = tf.gather_nd(encode(features).sequence, places)  # [T, D]
    replaced = head.replaced_logits(hidden[None])[0]  # [T]
    shape = tf.shape(features["scored"], tf.int64)
    return tf.scatter_nd(places, -tf.nn.softplus(replaced), shape)


def causal_lm(features, encode, head) -> tf.Tensor:
    """log p(token | those before it), by a softmax in blocks: float32 [n, S], 0 elsewhere."""
    used = features["scored"][:, 1:] > 0
    nll, _ = token_losses(head, encode(features).sequence, features, used=used)
    return tf.pad(-nll, [[0, 0], [1, 0]])


def discriminator(features, encode, head) -> tf.Tensor:
    """Minus the logits of "was replaced": float32 [n, S]."""
    return -head(encode(features).sequence)


def masked_lm(features, encode, head) -> tf.Tensor:
    """log p(`token`) at the `position` that is masked: float32 [n]; no other one has logits."""
    logits = head(encode(features).sequence, features["position"][:, None])[:, 0]  # [n, V]
    return tf.gather(tf.nn.log_softmax(logits), features["token"], batch_dims=1)
