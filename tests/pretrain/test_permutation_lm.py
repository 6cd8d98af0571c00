"""Permutation language modelling: who sees whom, the loss."""

import numpy as np
import pytest
import tensorflow as tf

from convbert.analysis.operations import EXECUTED, pretraining
from convbert.pretrain.hparams import encoder_config, parse_hparams, resolve_hparams
from convbert.pretrain.permutation import permitted
from tests.analysis.test_flops import products, profiled
from tests.model_support import SPECIAL, TINY_XLNET, framed_texts, tensors
from tests.pretrain.test_objectives import run as loss_of

V, B, S = 97, 4, 24
SIZES = {"vocab_size": V, "num_attention_heads": 2, "intermediate_size": 32}
CONFIG = TINY_XLNET.replace(num_hidden_layers=3, **SIZES)
SEED = tf.constant([3, 4])


def build(config=CONFIG, **changes):
    values = {"objective": "permutation_lm", "vocab_size": V, "max_seq_length": S, **changes}
    return parse_hparams(values).build_objective(config, SPECIAL)


def make_features(lengths=(S, S, 20, 13)):
    return tensors(framed_texts(B, S, lengths, V))


@pytest.fixture(scope="module")
def objective():
    """With weights that are large enough for everything to show in the outputs."""
    built = build(mask_prob=0.3)
    draw = np.random.default_rng(1)
    for variable in built.trainable_variables:
        variable.assign(draw.normal(0, 0.4, variable.shape) + (variable.name.endswith("gamma:0")))
    return built


@pytest.fixture(scope="module")
def streams(objective):
    """Of a prepared batch: queries [B, P, D] and contents [B, S, D]."""

    @tf.function(autograph=False)
    def run(batch):
        places = permitted(batch["order"], batch["limit"]), batch["target_positions"]
        found = objective.encoder.two_streams(batch, *places, objective.head.mask_embedding)
        return found.queries, found.content.sequence

    return lambda batch: [value.numpy() for value in run(batch)]


def test_who_sees_a_target(objective, streams):
    """Its own prediction and those before it do not change with it, to the bit; others do."""
    batch = objective.prepare(make_features(), SEED)
    queries, contents = streams(batch)
    used, positions = batch["target_weights"].numpy() > 0, batch["target_positions"].numpy()
    ids, order = batch["input_ids"].numpy(), batch["order"].numpy()
    seen_by = {"before": 0, "after": 0, "special": 0}
    for slot in range(used.shape[1]):
        rows = np.flatnonzero(used[:, slot])
        changed_ids = ids.copy()
        places = positions[rows, slot]
        changed_ids[rows, places] = (ids[rows, places] - 5 + 1) % (V - 5) + 5
        other_queries, other_contents = streams({**batch, "input_ids": tf.constant(changed_ids)})
        for row, place in zip(rows, places):
            same_query = (other_queries[row] == queries[row]).all(-1)
            same_content = (other_contents[row] == contents[row]).all(-1)
            later = order[row] > order[row, place]
            for number in np.flatnonzero(used[row]):
                after = later[positions[row, number]]
                assert same_query[number] == (not after), (row, slot, number)
                seen_by["after" if after else "before"] += 1
            real = batch["input_mask"][row].numpy() > 0
            sees = (later | (np.arange(S) == place)) & (order[row] >= 0)
            np.testing.assert_array_equal(same_content[real], ~sees[real])
            seen_by["special"] += (sees & ~np.isin(np.arange(S), positions[row])).sum()
    assert min(seen_by.values()) > 10


def test_the_loss_is_the_mean_of_the_tied_softmax(objective, streams):
    batch = objective.prepare(make_features(), SEED)
    queries, _ = streams(batch)
    table = objective.encoder.embeddings.word_embeddings.numpy().astype(np.float64)
    logits = queries @ table.T + objective.head.output_bias.numpy()
    total = np.log(np.exp(logits - logits.max(-1, keepdims=True)).sum(-1)) + logits.max(-1)
    ids, weights = batch["target_ids"].numpy(), batch["target_weights"].numpy()
    nll = total - np.take_along_axis(logits, ids[..., None], -1)[..., 0]
    right = logits.argmax(-1) == ids
    loss, found = loss_of(objective, batch)
    expected, accuracy = ((value * weights).sum() / weights.sum() for value in (nll, right))
    assert loss == pytest.approx(expected, rel=1e-5)
    names = {"permutation_lm_loss": loss, "permutation_lm_accuracy": accuracy}
    assert found == pytest.approx(names)


def test_untrained_and_its_gradients():
    """The loss starts at log V. Gradients are slopes, and reach every variable."""
    objective = build(CONFIG.replace(num_hidden_layers=1), mask_prob=0.3)
    batch = objective.prepare(make_features(), SEED)
    assert loss_of(objective, batch)[0] == pytest.approx(np.log(V), rel=0.02)
    draw = np.random.default_rng(2)
    for variable in objective.trainable_variables:
        variable.assign_add(draw.normal(0, 0.3, variable.shape))

    @tf.function(autograph=False)
    def compute():
        with tf.GradientTape() as tape:
            loss, _ = objective.loss(batch, objective.normalizers(batch), training=False)
        found = tape.gradient(loss, objective.trainable_variables)
        return loss, [*map(tf.convert_to_tensor, found)]

    _, gradients = compute()
    step = 2e-3
    for variable, gradient in zip(objective.trainable_variables, gradients, strict=True):
        direction = gradient / (tf.norm(gradient) + 1e-12)
        slope = float(tf.reduce_sum(gradient * direction))
        assert slope > 1e-6, variable.name
        variable.assign_add(step * direction)
        above = float(compute()[0])
        variable.assign_sub(2 * step * direction)
        below = float(compute()[0])
        variable.assign_add(step * direction)
        assert (above - below) / (2 * step) == pytest.approx(slope, rel=0.02, abs=3e-4)


def test_a_sequence_of_padding_alone(objective):
    """As the last held-out batch may have it."""
    features = make_features()
    empty = {name: tf.concat([x[:2], tf.zeros_like(x[2:])], 0) for name, x in features.items()}
    batch = objective.prepare(empty, SEED)
    assert not batch["target_weights"][2:].numpy().any()
    assert np.isfinite(loss_of(objective, batch)[0])


@pytest.mark.slow  # traces a loss and profiles it
def test_operations():
    """Those of both streams and of the head; encodings of distances are not counted."""
    overrides = {"hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 64}
    values = {"objective": "permutation_lm", "model_size": "xlnet-tiny", "max_seq_length": S}
    hparams = resolve_hparams({**values, "model_hparam_overrides": overrides}, V)
    objective = hparams.build_objective(encoder_config(hparams, V), SPECIAL)

    def step(ids):
        features = {"input_ids": ids, "input_mask": tf.ones_like(ids), "segment_ids": 0 * ids}
        batch = objective.prepare(features, SEED)
        return objective.loss(batch, objective.normalizers(batch), training=False)[0]

    counted = products(profiled(step, tf.TensorSpec([1, S], tf.int32)))
    encodings = 2 * (2 * S) * 2 * 32 * 32  # 2 S of them in two layers
    assert pretraining(hparams, EXECUTED).matrix * S + encodings == pytest.approx(counted, abs=1)
