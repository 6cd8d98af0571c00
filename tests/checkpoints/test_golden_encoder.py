"""Losses and gradients of our networks with the original's weights, against the original's.

Outputs of every layer are compared in test_tf1_convert.py.
"""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from convbert.model import build_encoder
from tests.golden_support import MODELS, Golden, load_golden

TENSOR_TOLERANCE = 2e-5
LOSS_TOLERANCE = 1e-5
GRADIENT_TOLERANCE = 1e-4  # norm of the difference, as a share of the reference's norm
DISC_WEIGHT = 50.0


@pytest.fixture(scope="module", params=MODELS)
def golden(request) -> Golden:
    return load_golden(request.param)


@pytest.fixture(scope="module")
def computed(golden):
    """Everything `reference.npz` holds under the same names, computed by our networks."""
    mask = tf.cast(golden.reference["input_mask"], tf.float32)  # [B, S]
    weights = golden.reference["masked_lm_weights"]  # [B, P]
    with tf.GradientTape() as tape:
        small = golden.generator(golden.features("masked_input_ids"))
        logits = golden.masked_lm_head(small.sequence, golden.reference["masked_lm_positions"])
        nll = tf.nn.sparse_softmax_cross_entropy_with_logits(
            golden.reference["masked_lm_ids"], logits
        )
        mlm_loss = tf.reduce_sum(weights * nll) / (tf.reduce_sum(weights) + 1e-6)

        large = golden.discriminator(golden.features("corrupted_input_ids"))
        disc_logits = golden.discriminator_head(large.sequence)
        labels = tf.cast(golden.reference["disc_labels"], tf.float32)
        losses = tf.nn.sigmoid_cross_entropy_with_logits(labels, disc_logits) * mask
        disc_loss = tf.reduce_sum(losses) / tf.reduce_sum(mask)
        total_loss = mlm_loss + DISC_WEIGHT * disc_loss
    gradients = tape.gradient(total_loss, golden.variables)
    return {
        "mlm_loss": mlm_loss.numpy(),
        "disc_loss": disc_loss.numpy(),
        "total_loss": total_loss.numpy(),
        **{f"grad/{name}": tf.convert_to_tensor(g).numpy() for name, g in gradients.items()},
    }


def test_losses(golden, computed):
    # In the total the discriminator's error counts fifty times.
    weights = {"mlm_loss": 1, "disc_loss": 1, "total_loss": 1 + DISC_WEIGHT}
    for name, weight in weights.items():
        tolerance = weight * LOSS_TOLERANCE
        assert computed[name] == pytest.approx(golden.reference[name], abs=tolerance), name


def test_every_gradient(golden, computed):
    expected = {k: v for k, v in golden.reference.items() if k.startswith("grad/")}
    assert set(expected) == {name for name in computed if name.startswith("grad/")}
    # A key's bias shifts all scores of a query alike, so its true gradient is zero and the
    # reference holds rounding errors; those are measured against the kernel's norm instead.
    for name, gradient in expected.items():
        scale = np.linalg.norm(expected[name.replace("/key/bias", "/key/kernel")])
        error = np.linalg.norm(computed[name] - gradient)
        assert error <= GRADIENT_TOLERANCE * scale, f"{name}: {error:.2e} of {scale:.2e}"


def test_every_variable_is_trained(golden):
    trained = {
        variable.ref()
        for network in (
            golden.discriminator,
            golden.generator,
            golden.masked_lm_head,
            golden.discriminator_head,
        )
        for variable in network.trainable_variables
    }
    assert trained == {variable.ref() for variable in golden.variables.values()}


def test_padding_is_what_the_switch_changes(golden):
    """With `mask_padding` on, the convolution's outputs near padding differ from the original."""
    masked = build_encoder(golden.config.replace(mask_padding=True))
    masked.set_weights(golden.discriminator.get_weights())
    output = masked(golden.features("corrupted_input_ids")).sequence.numpy()
    real = golden.reference["input_mask"].astype(bool)
    difference = np.abs(output - golden.reference["discriminator_layers"][-1])[real].max()
    if golden.config.token_mixer == "mixed":
        assert difference > 1e-3
    else:
        assert difference < TENSOR_TOLERANCE
