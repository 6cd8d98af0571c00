"""The self-critic against the equations of SCRIPT, written out in NumPy, and its properties."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from convbert.pretrain import objectives
from convbert.pretrain.hparams import parse_hparams
from convbert.pretrain.masking import draw_tokens, replace_tokens
from convbert.pretrain.objectives import masked_lm
from convbert.pretrain.vocabulary_softmax import unnormalized_softmax
from convbert.training.loop import Trainer
from convbert.training.metrics import summarize
from tests.model_support import SPECIAL, TINY, framed_texts, tensors

V, B, S = 23, 4, 16
DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
CONFIG = TINY.replace(vocab_size=V, num_hidden_layers=1, token_mixer="attention", **DROPOUT)
SEED = tf.constant([3, 4])


@pytest.fixture(scope="module")
def objective():
    """A self-critic with large random weights, with which scores differ."""
    tf_keras.utils.set_random_seed(0)
    sizes = {"max_seq_length": S, "vocab_size": V, "train_batch_size": B}
    hparams = parse_hparams({"objective": "self_critic", "mask_prob": 0.3, **sizes})
    objective, draw = hparams.build_objective(CONFIG, SPECIAL), np.random.default_rng(0)
    for variable in objective.trainable_variables:
        variable.assign_add(draw.normal(0, 0.5, variable.shape).astype(np.float32))
    return objective


def run(objective, batch):
    loss, sums = objective.loss(batch, objective.normalizers(batch), training=False)
    return float(loss), summarize(sums)


def scores(objective, ids, batch):
    """s_t = W e_t at every position, in float64 from here on: [B, S, V]."""
    hidden = objective.encoder({**batch, "input_ids": tf.constant(ids)}).sequence
    positions = tf.repeat(tf.range(S)[None], B, 0)
    return objective.head(hidden, positions).numpy().astype(np.float64)


def equations(objective, batch, sampled):
    """Equations 1 to 6 token by token: the two losses and p(replaced) [B, S]."""
    original, mask = batch["input_ids"].numpy(), batch["input_mask"].numpy()
    positions, weights = (batch[f"masked_lm_{n}"].numpy() for n in ("positions", "weights"))
    predicted = scores(objective, batch["masked_input_ids"].numpy(), batch)
    shown, masked = original.copy(), []
    for b, p in np.argwhere(weights > 0):
        t = positions[b, p]
        share = np.exp(predicted[b, t]) / np.exp(predicted[b, t]).sum()  # Equation 2
        masked.append(np.log(share[original[b, t]]))  # Equation 1
        shown[b, t] = sampled[b, p]
    judged = np.concatenate([scores(objective, shown, batch), np.zeros([B, S, 1])], -1)
    shares = np.exp(judged) / np.exp(judged).sum(-1, keepdims=True)
    replaced, kept = shares[..., V], shares[..., :V].sum(-1)  # Equations 4 and 5
    entropy = -np.where(shown == original, np.log(kept), np.log(replaced))  # Equation 6
    return -np.mean(masked), entropy[mask > 0].mean(), replaced


def predictions(objective, batch):
    """Logits of the masked places, and their softmax in blocks."""
    hidden = objective.encoder({**batch, "input_ids": batch["masked_input_ids"]}).sequence
    logits = objective.head(hidden, batch["masked_lm_positions"])
    return logits, unnormalized_softmax(logits)


@pytest.fixture
def batch(objective):
    return objective.prepare(tensors(framed_texts(B, S, [S, S, 11, 11], V)), SEED)


@pytest.fixture
def sampled(objective, batch, monkeypatch):
    """The tokens to be drawn, the same for all weights: finite differences."""
    logits, softmax = predictions(objective, batch)
    drawn = draw_tokens(logits, softmax, batch, 1.0)
    monkeypatch.setattr(masked_lm, "draw_tokens", lambda *_: drawn)
    return drawn.numpy()


def test_losses_are_those_of_the_equations(objective, batch, sampled):
    loss, metrics = run(objective, batch)
    masked, critic, replaced = equations(objective, batch, sampled)
    assert metrics["masked_lm_loss"] == pytest.approx(masked, rel=1e-5)
    assert metrics["disc_loss"] == pytest.approx(critic, rel=1e-5)
    assert loss == pytest.approx(masked + 50 * critic, rel=1e-5)
    ids = replace_tokens(batch["input_ids"], batch["masked_lm_positions"], sampled)
    hidden = objective.encoder({**batch, "input_ids": ids}).sequence
    logits = objective.head.replaced_logits(hidden)
    np.testing.assert_allclose(tf.sigmoid(logits), replaced, rtol=1e-4, atol=1e-6)


def test_gradients_are_those_of_the_equations(objective, batch, sampled):
    """In training, where the critic's come from their own formula, by finite differences."""
    trainer = Trainer(objective, None, None, seed=0, strategy=tf.distribute.get_strategy())
    normalizers = objective.normalizers(batch)
    variables = objective.trainable_variables
    _, _, gradients = trainer._part_gradients_fn(batch, normalizers, SEED)
    draw = np.random.default_rng(1)

    def value():
        masked, critic, _ = equations(objective, batch, sampled)
        return masked + 50 * critic

    for part in (objective.encoder, objective.head):
        chosen = {v.ref() for v in part.trainable_variables}
        kept = [v.numpy() for v in variables]
        steps = [draw.normal(size=v.shape) if v.ref() in chosen else 0.0 * v for v in variables]
        slope = sum(np.sum(g * step) for g, step in zip(gradients, steps))
        values = []
        for length in (1e-3, -1e-3):
            for variable, start, step in zip(variables, kept, steps):
                variable.assign(start + length * step)
            values.append(value())
        for variable, start in zip(variables, kept):
            variable.assign(start)
        assert slope == pytest.approx((values[0] - values[1]) / 2e-3, rel=0.02)


def test_continuation_with_a_masked_lm_carries_the_head():
    for now, before, carried in (
        ("self_critic", "masked_lm", ("encoder", "head")),
        ("masked_lm", "self_critic", ("encoder", "head")),
        ("self_critic", "replaced_token_detection", ("encoder",)),
        ("replaced_token_detection", "self_critic", ("encoder",)),
    ):
        now, before = (objectives.get(name)() for name in (now, before))
        stored = before.own_networks()
        assert now.carried_networks(before, CONFIG, stored) == carried
