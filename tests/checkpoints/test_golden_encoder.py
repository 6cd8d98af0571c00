"""Our networks with the original's weights against what the original computed with them."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from model import build_encoder
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
        small = golden.generator(golden.features("masked_input_ids"), output_attentions=True)
        logits = golden.masked_lm_head(small.sequence, golden.reference["masked_lm_positions"])
        nll = tf.nn.sparse_softmax_cross_entropy_with_logits(
            golden.reference["masked_lm_ids"], logits
        )
        mlm_loss = tf.reduce_sum(weights * nll) / (tf.reduce_sum(weights) + 1e-6)

        large = golden.discriminator(golden.features("corrupted_input_ids"), output_attentions=True)
        disc_logits = golden.discriminator_head(large.sequence)
        labels = tf.cast(golden.reference["disc_labels"], tf.float32)
        losses = tf.nn.sigmoid_cross_entropy_with_logits(labels, disc_logits) * mask
        disc_loss = tf.reduce_sum(losses) / tf.reduce_sum(mask)
        total_loss = mlm_loss + DISC_WEIGHT * disc_loss
    gradients = tape.gradient(total_loss, golden.variables)
    return {
        "generator_layers": np.stack(small.hidden_states),
        "generator_attention": np.stack(small.attention_probs),
        "mlm_logits": logits.numpy(),
        "mlm_loss": mlm_loss.numpy(),
        "discriminator_embedding_output": large.embedding_output.numpy(),
        "discriminator_layers": np.stack(large.hidden_states),
        "discriminator_attention": np.stack(large.attention_probs),
        "disc_probs": tf.sigmoid(disc_logits).numpy(),
        "disc_loss": disc_loss.numpy(),
        "total_loss": total_loss.numpy(),
        **{f"grad/{name}": tf.convert_to_tensor(g).numpy() for name, g in gradients.items()},
    }


@pytest.mark.parametrize(
    "name",
    [
        "generator_layers",
        "generator_attention",
        "mlm_logits",
        "discriminator_embedding_output",
        "discriminator_layers",
        "discriminator_attention",
        "disc_probs",
    ],
)
def test_tensors(golden, computed, name):
    # At padding positions too: there the original lets padding through, and so do we on request.
    expected = golden.reference[name]
    assert computed[name].shape == expected.shape
    np.testing.assert_allclose(computed[name], expected, rtol=0, atol=TENSOR_TOLERANCE)


@pytest.mark.parametrize("name", ["mlm_loss", "disc_loss"])
def test_losses(golden, computed, name):
    assert computed[name] == pytest.approx(golden.reference[name], abs=LOSS_TOLERANCE)


def test_total_loss(golden, computed):
    # The discriminator's error counts fifty times.
    tolerance = (1 + DISC_WEIGHT) * LOSS_TOLERANCE
    assert computed["total_loss"] == pytest.approx(golden.reference["total_loss"], abs=tolerance)


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
