"""Heads, the layer-wise learning rates, and that padding changes nothing."""

import types
from functools import partial

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from convbert.finetune.batches import EvaluationBatches
from convbert.finetune.hparams import resolve_hparams
from convbert.finetune.kinds.tagging import TaggingHParams
from convbert.finetune.learner import Predictor
from convbert.finetune.objective import FineTuning, learning_rate_scales
from convbert.finetune.task_data import Split
from convbert.model import EncoderOutput, build_backbone
from convbert.model.heads import task as heads
from convbert.model.heads.crf import CrfHead
from convbert.model.kernels import dropout
from convbert.model.xlnet.config import XLNetConfig
from convbert.training.distribution import create_strategy
from convbert.training.loop import check_parts
from convbert.training.optimizer import create_optimizer
from tests.finetune.kinds_support import random_sequences, rejects, task_of
from tests.model_support import TINY, normal, randomize
from tests.serving import support

LONGEST = 40


def sequences(kind, n=50):
    return random_sequences(kind, [1] * n, LONGEST)


HEADS = {"classification": partial(heads.ClassificationHead, 3), "regression": heads.RegressionHead}
HEADS["tagging"] = partial(heads.TaggingHead, 3)


def objective_of(kind: str, **changes) -> FineTuning:
    encoder = build_backbone(TINY.replace(**changes))
    objective = FineTuning(encoder, HEADS[kind]())
    randomize(encoder, scale=0.3)
    randomize(objective.head)
    return objective


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        *(("classification", {}), ("classification", {"causal": True}), ("tagging", {})),
        pytest.param("regression", {}, marks=pytest.mark.slow),  # as classification but its output
    ],
)
def test_padding_and_the_order_of_sequences_change_no_prediction(kind, changes):
    """Of a causal encoder, the last token stands for the text."""
    objective, encoded = objective_of(kind, **changes), sequences(kind)
    task, found = task_of(kind), []
    for batch_size, buckets, name in ((8, [20, 32], "one_device"), (6, True, "mirrored:2")):
        hparams = {"max_seq_length": LONGEST, "length_buckets": buckets}
        options = {"hparams": resolve_hparams(hparams, task, TINY), "batch_size": batch_size}
        options["strategy"] = create_strategy(name)
        found.append(Predictor(objective, task, **options)(Split([], encoded)))
    (name,) = found[0]
    count = len(encoded.tokens["input_ids"]) if kind == "tagging" else len(encoded)
    assert len(found[0][name]) == count
    np.testing.assert_allclose(found[1][name], found[0][name], rtol=0, atol=1e-5)
    # And they are the predictions of these sequences: the last one, alone and without padding.
    start, stop = encoded.row_splits[-2:]
    alone = {"input_ids": encoded.tokens["input_ids"][None, start:stop]}
    alone |= {"input_mask": np.ones_like(alone["input_ids"]), "segment_ids": 0 * alone["input_ids"]}
    expected = objective.predict({key: tf.constant(value) for key, value in alone.items()})[name][0]
    last = found[0][name][start:stop] if kind == "tagging" else found[0][name][-1]
    np.testing.assert_allclose(last, expected, rtol=0, atol=1e-5)


def test_the_sum_and_the_mean_of_the_losses():
    """The original adds the losses up; the mean is reported. What fills a batch counts not."""
    encoded = sequences("tagging", 6)
    batch = next(iter(EvaluationBatches(encoded, 8, max_seq_length=LONGEST)()))
    objective, found, words = objective_of("tagging"), {}, encoded.tokens["tag_weight"].sum()
    for objective.reduction in ("sum", "mean"):
        loss, sums = objective.loss(batch, objective.normalizers(batch), training=False)
        found[objective.reduction] = float(loss)
        np.testing.assert_allclose(sums["loss"][0] / sums["loss"][1], found["sum"] / words)
    np.testing.assert_allclose(found["sum"] / words, found["mean"], rtol=1e-5)
    assert batch["weight"].numpy().tolist() == [1] * 6 + [0] * 2
    short = {name: value[:6] for name, value in batch.items()}
    loss, _ = objective.loss(short, objective.normalizers(short), training=False)
    np.testing.assert_allclose(loss, found["mean"], rtol=1e-6)


@pytest.mark.bfloat16
def test_scores_are_of_full_precision_under_mixed_bfloat16():
    tf_keras.mixed_precision.set_global_policy("mixed_bfloat16")
    for kind, head in HEADS.items():
        shape = [500, 1, 16] if kind == "tagging" else [500, 16]
        found = head()(tf.random.normal(shape, dtype=tf.bfloat16))
        assert found.dtype == tf.float32, kind
        assert len(np.unique(found.numpy()[..., 0])) > 450


def test_the_original_scale_of_layerwise_decay():
    """Reference facts: layer l of n gets decay^(n + 2 - (l + 1)), embeddings decay^(n + 2)."""
    objective = objective_of("classification")
    names = [variable.name for variable in objective.trainable_variables]
    by_name = dict(zip(names, learning_rate_scales(objective, 0.8)))
    n = TINY.num_hidden_layers
    assert len(set(by_name.values())) == n + 2
    for name, scale in by_name.items():
        power = 0
        if "embeddings" in name:
            power = n + 2
        elif "layer_" in name:
            power = n + 2 - (int(name.split("layer_")[1][0]) + 1)
        assert scale == pytest.approx(0.8**power), name
    corrected = learning_rate_scales(objective, 0.8, corrected=True)
    for scale, original in zip(corrected, by_name.values()):
        assert scale == pytest.approx(original if original == 1 else original / 0.8)
    assert learning_rate_scales(objective, 0.0) is None


def test_scales_of_shared_layers_are_the_top_ones_and_reach_the_update():
    """One step of the optimizer without gradient noise: the first update is rate times scale."""
    objective = objective_of("classification", share_layers=True, num_hidden_layers=6)
    variables, scales = objective.trainable_variables, learning_rate_scales(objective, 0.5)
    assert set(np.round(scales, 9)) == {1, 0.5**2, round(0.5**8, 9)}
    optimizer = create_optimizer("adam", 1e-3, 0.0, variables, scales)
    before = [variable.numpy() for variable in variables]
    optimizer.apply_gradients((tf.ones_like(variable), variable) for variable in variables)
    moved = [np.abs(v.numpy() - b).max() for v, b in zip(variables, before)]
    ratio = np.array(moved) / np.array(scales)
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-2)


def test_a_loss_over_the_batch_needs_one_device():
    """Unless it gathers the batch; for micro-batches see test_reranking.py."""
    head, two_devices = heads.RegressionHead(), types.SimpleNamespace(num_replicas_in_sync=2)
    check_parts(head, two_devices, 1, False)
    head.reads_whole_batch = True
    assert FineTuning(objective_of("regression").encoder, head).reads_whole_batch
    with rejects("`strategy`"):
        check_parts(head, two_devices, 1, False)


def test_the_head_of_tagging_is_a_setting():
    task = task_of("tagging", labels=("O", "B-A", "I-A"))
    assert isinstance(task.plugin.head(task, TINY, TaggingHParams()), heads.TaggingHead)
    crf = resolve_hparams({"head": "crf"}, task, TINY)
    assert task.plugin.whole_examples(crf)
    assert isinstance(task.plugin.head(task, TINY, crf), CrfHead)
    with rejects("head"):
        resolve_hparams({"head": "lstm"}, task, TINY)


def test_the_loss_of_several_labels_is_their_mean_cross_entropy():
    pooled, gold = normal(4, 6), np.float32([[0, 1, 1], [0, 0, 0], [1, 1, 1], [1, 0, 0]])
    head, output = heads.MultiLabelHead(3), EncoderOutput(None, tf.constant(pooled))
    batch = {"label": tf.constant(gold), "weight": tf.ones([4])}
    logits = np.float64(head.predict(output, batch)["logits"])
    shares = 1.0 / (1.0 + np.exp(-logits))
    expected = -np.mean(gold * np.log(shares) + (1 - gold) * np.log(1 - shares), axis=1)
    found = head.loss(output, batch, training=False)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


XLNET = XLNetConfig(vocab_size=31, hidden_size=16, num_attention_heads=2)


def head_of(kind, config):
    own = support.task(kind)
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
    dropped = dropout(tf.constant(summary), heads.HEAD_DROPOUT, seed).numpy()
    found = head(pooled, training=True, seed=seed)
    np.testing.assert_allclose(found, dropped @ kernel + bias, atol=1e-5)
    assert np.abs(dropped - summary).max() > 0.1
    plain = head_of(kind, TINY)
    plain(pooled)
    assert len(plain.weights) == 2
