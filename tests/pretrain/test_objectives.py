"""Properties of the objectives; the self-critic against the equations of SCRIPT, in NumPy."""

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
from tests.model_support import SPECIAL, TINY, TINY_XLNET, framed_texts, tensors

SIZES = {"vocab_size": 97, "hidden_size": 32, "intermediate_size": 64}
CONFIG = TINY.replace(embedding_size=16, conv_kernel_size=9, **SIZES)
CONFIGS = {"permutation_lm": TINY_XLNET.replace(**SIZES), "causal_lm": CONFIG.replace(causal=True)}
SEED = tf.constant([3, 4])


def make_hparams(**changes):
    sizes = {"max_seq_length": 24, "vocab_size": 97, "train_batch_size": 6}
    return parse_hparams({**sizes, "generator_hidden_size": 0.5, **changes})


def build(name, config=None, **changes):
    hparams = make_hparams(objective=name, **changes)
    return hparams.build_objective(config or CONFIGS.get(name, CONFIG), SPECIAL)


def detection(**changes):
    return build("replaced_token_detection", **changes)


@pytest.fixture(scope="module")
def features():
    return tensors(framed_texts(6, 24, [24] * 3 + [18] * 3, 97))


def run(objective, batch):
    loss, sums = objective.loss(batch, objective.normalizers(batch), training=False)
    return float(loss), summarize(sums)


@pytest.mark.parametrize("name", ["replaced_token_detection", "self_critic"])
def test_labels_are_zero_where_the_sample_is_right(features, name, monkeypatch):
    objective = build(name)
    batch = objective.prepare(features, SEED)
    for wrong in (0, 1):
        ids = (batch["masked_lm_ids"] - 5 + wrong) % 92 + 5
        monkeypatch.setattr(masked_lm, "draw_tokens", lambda *_, ids=ids: ids)
        _, sums = objective.loss(batch, objective.normalizers(batch), training=False)
        positives = wrong * batch["masked_lm_weights"].numpy().sum()
        assert sums["disc_auc"][1].numpy().sum() == positives
        assert summarize(sums)["sampled_masked_lm_accuracy"] == 1 - wrong


def gradients(objective, features):
    batch = objective.prepare(features, SEED)
    variables = objective.trainable_variables
    with tf.GradientTape() as tape:
        loss, _ = objective.loss(batch, objective.normalizers(batch), training=False)
    found = tape.gradient(loss, variables)
    return {
        variable.name: 0.0 if g is None else float(tf.norm(tf.convert_to_tensor(g)))
        for variable, g in zip(variables, found)
    }


@pytest.mark.parametrize(
    ("without", "trained"),
    [
        ("gen_weight", lambda name: not name.startswith("generator")),
        ("disc_weight", lambda name: name.startswith(("generator", "encoder/embeddings/"))),
    ],
)
def test_which_variables_a_loss_trains(features, without, trained):
    """The discriminator's none of the generator; the generator's the shared embeddings, too."""
    norms = gradients(detection(**{without: 0.0}), features)
    assert sum(name.startswith("generator") for name in norms) > 30
    for name, norm in norms.items():
        assert (norm > 0.0) == trained(name) or "key/bias" in name, name


def test_a_disentangled_discriminator_trains_its_own_tables(features):
    """Its loss has no gradient to the generator's tables, the generator's none to its own."""
    for weight, silent in (("gen_weight", "generator"), ("disc_weight", "encoder")):
        norms = gradients(detection(disentangled_embeddings=True, **{weight: 0.0}), features)
        tables = {n: norm for n, norm in norms.items() if n.endswith("word_embeddings:0")}
        assert {n.split("/")[0] for n in tables} == {"generator", "encoder"}
        assert all((norm == 0.0) == n.startswith(silent) for n, norm in tables.items())


def test_uniform_generator_has_no_network(features):
    objective = detection(uniform_generator=True)
    assert not [v for v in objective.trainable_variables if v.name.startswith("generator")]
    _, metrics = run(objective, objective.prepare(features, SEED))
    assert metrics["masked_lm_loss"] == pytest.approx(np.log(97), rel=1e-5)


@pytest.mark.parametrize("name", ["replaced_token_detection", "self_critic"])
def test_objectives_draw_at_their_temperature(features, name):
    objective = build(name, temperature=1e-6)
    head = getattr(objective, "generator_head", objective.head)
    head.output_bias.assign(3.0 * tf.one_hot(9, 97))
    features = {**features, "input_ids": 0 * features["input_ids"] + 9}
    _, metrics = run(objective, objective.prepare(features, SEED))
    assert metrics["sampled_masked_lm_accuracy"] == 1.0


def test_metrics_have_electras_names_and_weigh_as_asked_for(features):
    objective = detection(gen_weight=2.0, disc_weight=3.0)
    loss, metrics = run(objective, objective.prepare(features, SEED))
    names = {"masked_lm_accuracy", "masked_lm_loss", "sampled_masked_lm_accuracy"}
    names |= {f"disc_{name}" for name in ("loss", "auc", "accuracy", "precision", "recall")}
    assert set(metrics) == names
    expected = 2 * metrics["masked_lm_loss"] + 3 * metrics["disc_loss"]
    assert loss == pytest.approx(expected, rel=1e-5)


NETWORKS = dict.fromkeys(("untied_generator_embeddings", "disentangled_embeddings"), True)
NETWORKS |= {"uniform_generator": True, "untied_generator": False}


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        *((name, {}) for name in objectives.names()),
        *(("replaced_token_detection", {field: value}) for field, value in NETWORKS.items()),
    ],
)
def test_what_an_objective_says_of_its_networks_is_so(name, changes):
    objective, settings = build(name, **changes), make_hparams(objective=name, **changes).objective
    own = [getattr(objective, network) for network in settings.own_networks()]
    variables = [{v.ref() for v in network.trainable_variables} for network in own]
    assert set().union(*variables) == {v.ref() for v in objective.trainable_variables}
    for number, some in enumerate(variables):
        assert some - set().union(*variables[:number], *variables[number + 1 :])


@pytest.mark.slow  # each compiles for up to half a minute; an encoder is in test_encoder.py
@pytest.mark.parametrize("name", objectives.names())
def test_the_step_compiles_to_the_same_numbers(features, name):
    changes = {"adaptive_softmax_cutoffs": [9, 20]} if name == "causal_lm" else {}
    config = CONFIGS.get(name, CONFIG.replace(conv_kernel_size=3))
    objective = build(name, config.replace(num_hidden_layers=1), **changes)
    drawn = {"permutation_lm": "target_positions", "causal_lm": "input_ids"}
    drawn = drawn.get(name, "masked_lm_positions")

    def step(features, seed):
        batch = objective.prepare(features, seed)
        with tf.GradientTape() as tape:
            normalizers = objective.normalizers(batch)
            loss, sums = objective.loss(batch, normalizers, training=True, seed=seed)
        found = tape.gradient(loss, objective.trainable_variables)
        return loss, sums, tf.linalg.global_norm(found), batch[drawn]

    plain = tf.function(step)(features, SEED)
    compiled = tf.function(step, jit_compile=True)(features, SEED)
    np.testing.assert_array_equal(plain[3], compiled[3])
    for a, b in zip(tf.nest.flatten(plain[:3]), tf.nest.flatten(compiled[:3])):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-4)


@pytest.mark.bfloat16
def test_bfloat16_loss_of_two_streams_is_close(features):
    losses = []
    for policy in ("float32", "mixed_bfloat16"):
        tf_keras.mixed_precision.set_global_policy(policy)
        objective = build("permutation_lm", mask_prob=0.3)
        draw = np.random.default_rng(1)  # small weights would have the loss ln V, whatever they are
        for variable in objective.trainable_variables:
            noise = draw.normal(0, 0.2, variable.shape)
            variable.assign(noise + variable.name.endswith("gamma:0"))
        batch = objective.prepare(features, SEED)
        normalizers = objective.normalizers(batch)
        with tf.GradientTape() as tape:
            loss, _ = objective.loss(batch, normalizers, training=True, seed=SEED)
        assert loss.dtype == tf.float32
        for gradient in tape.gradient(loss, objective.trainable_variables):
            assert np.isfinite(tf.convert_to_tensor(gradient)).all()
        losses.append(float(loss))
    assert losses[0] == pytest.approx(losses[1], rel=0.01)
    assert losses[0] > 1.1 * np.log(97)


@pytest.mark.bfloat16
def test_the_bias_of_logits_is_not_rounded():
    tf_keras.mixed_precision.set_global_policy("mixed_bfloat16")
    objective = build("masked_lm")
    table, D = objective.encoder.embeddings.word_embeddings, objective.encoder.config.hidden_size
    table.assign(tf.zeros(table.shape))
    objective.head.output_bias.assign(tf.fill([97], 1.001))
    logits = objective.head(tf.zeros([1, 2, D], tf.bfloat16), tf.constant([[0, 1]]))
    np.testing.assert_allclose(logits, 1.001, rtol=1e-6)


V, B, S = 23, 4, 16
DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
CRITIC = TINY.replace(vocab_size=V, num_hidden_layers=1, token_mixer="attention", **DROPOUT)


@pytest.fixture(scope="module")
def objective():
    tf_keras.utils.set_random_seed(0)
    sizes = {"max_seq_length": S, "vocab_size": V, "train_batch_size": B}
    hparams = parse_hparams({"objective": "self_critic", "mask_prob": 0.3, **sizes})
    objective, draw = hparams.build_objective(CRITIC, SPECIAL), np.random.default_rng(0)
    for variable in objective.trainable_variables:
        variable.assign_add(draw.normal(0, 0.5, variable.shape).astype(np.float32))
    return objective


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


@pytest.fixture
def batch(objective):
    return objective.prepare(tensors(framed_texts(B, S, [S, S, 11, 11], V)), SEED)


@pytest.fixture
def sampled(objective, batch, monkeypatch):
    """The tokens to be drawn, the same for all weights: finite differences."""
    hidden = objective.encoder({**batch, "input_ids": batch["masked_input_ids"]}).sequence
    logits = objective.head(hidden, batch["masked_lm_positions"])
    drawn = draw_tokens(logits, unnormalized_softmax(logits), batch, 1.0)
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
        assert now.carried_networks(before, CRITIC, stored) == carried
