from __future__ import annotations

import math

import pytest
import tensorflow as tf

from convbert.analysis import flops
from convbert.analysis.flops import NOTES, TABLE_3, TABLE_4_ALE, reproduced
from convbert.analysis.operations import EXECUTED, hparams_of, pretraining, training_flops
from convbert.model import SIZES, build_backbone
from convbert.model.flops import encoder, token_mixer
from convbert.pretrain.hparams import encoder_config, resolve_hparams
from tests.model_support import TINY

B, S = 3, 20
IDS = tf.TensorSpec([B, S], tf.int32)
PRODUCTS = ("MatMul", "BatchMatMulV2", "Conv2D", "DepthwiseConv2dNative")


def profiled(function, *signature) -> dict[str, int]:
    """Operations by type, as TensorFlow's profiler counts those of a traced function."""
    graph = tf.function(function).get_concrete_function(*signature).graph
    options = tf.compat.v1.profiler.ProfileOptionBuilder.float_operation()
    options["output"] = "none"
    root = tf.compat.v1.profiler.profile(graph, cmd="op", options=options)
    counts: dict[str, int] = {}
    while True:  # one node per type, each the child of the one before
        counts[root.name] = root.float_ops
        if not root.children:
            break
        (root,) = root.children
    # The profiler does not know Einsum: two operations per combination of its indices.
    for op in graph.get_operations():
        if op.type == "Einsum":
            counts["Einsum"] = counts.get("Einsum", 0) + _einsum(op)
        # Sums over tokens that gradients write as products with ones are none of the model's.
        if op.type == "MatMul" and op.inputs[0].shape[0] == 1:
            counts["MatMul"] -= 2 * op.inputs[1].shape.num_elements()
    return counts


def _einsum(op: tf.Operation) -> int:
    sizes: dict[str, int] = {}
    terms = op.get_attr("equation").decode().split("->")[0].split(",")
    for letters, operand in zip(terms, op.inputs):
        assert operand.shape.is_fully_defined()
        sizes.update(zip(letters, operand.shape))
    return 2 * math.prod(sizes.values())


def products(counts: dict[str, int]) -> int:
    return sum(counts.get(name, 0) for name in (*PRODUCTS, "Einsum"))


CONFIGS = {
    "mixed": TINY,
    "mixed, groups": TINY.replace(linear_groups=2),
    "mixed, dynamic": TINY.replace(convolution="dynamic"),
    "mixed, concatenation": TINY.replace(span_kernel="concatenation"),
    "convolution, key": TINY.replace(token_mixer="convolution", span_kernel="key"),
    "mixed, static": TINY.replace(convolution="static"),
    "convolution, dynamic": TINY.replace(token_mixer="convolution", convolution="dynamic"),
    "attention, E = D": TINY.replace(token_mixer="attention", head_ratio=1, embedding_size=16),
    "shared layers": TINY.replace(share_layers=True),
}
QUICK = ("mixed", "convolution, dynamic", "attention, E = D")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in CONFIGS]
)
def test_encoder_products_are_the_profilers(name):
    config = CONFIGS[name]
    network = build_backbone(config)
    counts = profiled(lambda ids: network({"input_ids": ids}).sequence, IDS)
    assert encoder(config, S, dense_lookup=False).matrix * B * S == products(counts) > 0


def _tiny_hparams(**changes):
    values = {
        "model_size": "convbert-tiny",
        "model_hparam_overrides": {"hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 31},
        "max_seq_length": S,
        "train_batch_size": B,
        "num_train_steps": 7,
    }
    return resolve_hparams({**values, **changes}, 31)


def _loss_function(hparams, gradients: bool = False):
    ids = {"cls": 1, "sep": 2, "mask": 3}
    objective = hparams.build_objective(encoder_config(hparams, 31), ids)

    def step(ids):
        features = {"input_ids": ids, "input_mask": tf.ones_like(ids)}
        features["segment_ids"] = tf.zeros_like(ids)
        batch = objective.prepare(features, tf.constant([1, 2]))
        with tf.GradientTape() as tape:
            loss, _ = objective.loss(batch, objective.normalizers(batch), training=False)
        found = tape.gradient(loss, objective.trainable_variables) if gradients else [loss]
        return list(map(tf.convert_to_tensor, found))

    return step


@pytest.mark.parametrize(
    ("changes", "gradients"),
    [
        ({}, False),
        pytest.param({"objective": "masked_lm"}, False, marks=pytest.mark.slow),
        pytest.param({"uniform_generator": True}, False, marks=pytest.mark.slow),
        pytest.param(
            {"generator_hidden_size": 0.5, "generator_layers": 0.5}, False, marks=pytest.mark.slow
        ),
        ({"objective": "masked_lm", "conv_type": "noconv"}, True),
    ],
)
def test_objective_products_are_the_profilers(changes, gradients):
    """Those of gradients are twice the forward ones."""
    hparams = _tiny_hparams(**changes)
    counts = profiled(_loss_function(hparams, gradients), IDS)
    expected = pretraining(hparams, EXECUTED).matrix * B * S
    expected *= 1 + EXECUTED.backward if gradients else 1
    assert products(counts) == pytest.approx(expected, abs=1)


@pytest.mark.parametrize(
    ("size", "steps", "length", "figure"),
    [  # what ELECTRA's own flops_computation.py prints
        ("bert-small", 1_450_000, 128, 1.42e18),
        ("bert-base", 1_000_000, 512, 6.43e19),
        ("electra-small", 1_000_000, 128, 1.29e18),
        ("electra-base", 766_000, 512, 6.42e19),
    ],
)
def test_the_convention_is_electras(size, steps, length, figure):
    values = {"model_size": size, "num_train_steps": steps, "max_seq_length": length}
    values["objective"] = "replaced_token_detection" if size[0] == "e" else "masked_lm"
    hparams = resolve_hparams(values, 30522)
    assert training_flops(hparams) == pytest.approx(figure, rel=0.005)


def test_which_rows_are_reproduced():
    rows = (*TABLE_3, *TABLE_4_ALE)
    missed = {r.name for r in rows if not reproduced(training_flops(hparams_of(r)), r.flops)}
    names = {"BERT-base MLM 160G 500k", "ConvBERT-base RTD 32G 1M", "ConvBERT-base RTD 32G 4M"}
    assert missed == names | {row.name for row in TABLE_4_ALE}
    assert len(TABLE_3) == 16
    assert missed <= set(NOTES) <= {row.name for row in rows}
    explained = [row for row in TABLE_3 if NOTES.get(row.name, ("", {}))[1]]
    assert len(explained) == 4
    for row in explained:
        counted = training_flops(hparams_of(row, **NOTES[row.name][1]))
        assert counted == pytest.approx(row.flops, rel=0.015)


def test_mixing_blocks_of_the_base_size():
    mixed, plain = SIZES["convbert-base"], SIZES["electra-base"]
    assert token_mixer(plain, 128).matrix == pytest.approx(5.1e6, rel=0.01)
    assert token_mixer(mixed, 128).matrix == pytest.approx(4.4e6, rel=0.01)
    assert flops.block_ratio(mixed, 128) == pytest.approx(0.86, abs=0.005)
    assert flops.block_ratio(mixed, 512) == pytest.approx(0.79, abs=0.005)
