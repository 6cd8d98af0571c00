"""Sequences of one row are encoded, and learned from, as if each had a row of its own."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

from convbert.common.errors import InputError
from convbert.data.build_options import PACKING_GAP
from convbert.model import build_backbone, encoder, named_size
from convbert.model.kernels import split_seeds
from convbert.model.modern import config as modern
from convbert.pretrain.hparams import check_data, resolve_hparams

SMALL = {"vocab_size": 60, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4}
STATIC = SMALL | {"token_mixer": "convolution", "convolution": "static"}
MODERN = SMALL | {"intermediate_size": 48, "embedding_size": 32, "local_attention": 8}
GATED = MODERN | {"token_mixer": "gated_convolution", "conv_kernel_size": 3}
CASES = {
    "BERT": ("bert-small", SMALL),
    "ConvBERT": ("convbert-small", SMALL),
    "convolution": ("convbert-small", STATIC),
    "modern": ("modern-base", MODERN),
    "mixed": ("modern-base", MODERN | {"token_mixer": "mixed"}),
    "gated": ("modern-base", GATED),
    "canon": ("modern-base", MODERN | {"canon_kernel_size": 5}),
}
SIZES = (11, 5, 14)
NAMES = ("input_ids", "input_mask", "segment_ids")


def rows(gap, S=48):
    """The same random sequences in one row and in a row each, and their places in the one row."""
    random = np.random.default_rng(0)
    apart = {name: np.zeros([len(SIZES), S], np.int32) for name in NAMES}
    packed = {name: np.zeros([1, S], np.int32) for name in (*NAMES, "sequence_ids")}
    places, start = [], 0
    for i, size in enumerate(SIZES):
        values = random.integers(5, 60, size), np.ones(size), random.integers(0, 2, size)
        place = slice(start, start + size)
        for name, value in zip(NAMES, values):
            apart[name][i, :size] = packed[name][0, place] = value
        packed["sequence_ids"][0, place] = i + 1
        places.append(place)
        start += size + gap
    packed, apart = ({n: tf.constant(v) for n, v in of.items()} for of in (packed, apart))
    return packed, apart, places


def states(name):
    """The sequences' states by either way, and the gradients of a function of them."""
    size, changes = CASES[name]
    encoder = build_backbone(named_size(size).overridden(changes))
    for number, variable in enumerate(encoder.trainable_variables):  # larger than initial ones
        variable.assign(tf.random.stateless_normal(variable.shape, [1, number], stddev=0.3))
    packed, apart, places = rows(encoder.config.packing_gap)
    with tf.GradientTape(persistent=True) as tape:
        there, here = encoder(packed).sequence[0], encoder(apart).sequence
        found = [there[place] for place in places], [r[:n] for r, n in zip(here, SIZES)]
        losses = [sum(tf.reduce_sum(tf.sin(x)) for x in of) for of in found]
    gradients = (tape.gradient(loss, encoder.trainable_variables) for loss in losses)
    return found, [[tf.convert_to_tensor(x) for x in of] for of in gradients]


@pytest.mark.parametrize(
    ("name", "block"), [*((name, None) for name in CASES), ("modern", 1), ("mixed", 1)]
)
def test_states_and_gradients_are_those_of_separate_rows(name, block, monkeypatch):
    """Also of local attention in blocks, here of half a window."""
    monkeypatch.setattr(modern, "SMALLEST_BLOCK", block or modern.SMALLEST_BLOCK)
    found, gradients = states(name)
    for a, b in zip(*found):
        np.testing.assert_allclose(a, b, atol=1e-5)
    for a, b in zip(*gradients):
        np.testing.assert_allclose(a, b, atol=1e-5 * float(1 + tf.reduce_max(tf.abs(b))))


PASSES = {"masked_lm": 1, "replaced_token_detection": 2, "self_critic": 2}


@pytest.mark.parametrize("name", PASSES)
def test_every_pass_of_an_objective_keeps_sequences_apart(name, monkeypatch):
    values = {"model_size": "convbert-small", "model_hparam_overrides": SMALL, "objective": name}
    hparams = resolve_hparams({**values, "max_seq_length": 48}, 60)
    config = named_size("convbert-small").overridden(SMALL)
    objective = hparams.build_objective(config, {"cls": 2, "sep": 3, "mask": 4})
    found, bias = [], encoder.packed_attention_bias
    monkeypatch.setattr(encoder, "packed_attention_bias", lambda *a: found.append(a) or bias(*a))
    seeds = split_seeds(tf.constant([1, 2]), 2)
    batch = objective.prepare(rows(PACKING_GAP)[0], seeds[0])
    objective.loss(batch, objective.normalizers(batch), training=True, seed=seeds[1])
    assert len(found) == PASSES[name]


REJECTED = {
    "objective": {"objective": "permutation_lm", "model_size": "xlnet-base"},
    "padding in convolutions": {"model_hparam_overrides": {"mask_padding": False}},
    "a larger kernel": {"model_hparam_overrides": {"conv_kernel_size": 11}},
    "causal": {"objective": "causal_lm", "model_hparam_overrides": {"causal": True}},
}


@pytest.mark.parametrize("changes", REJECTED.values(), ids=REJECTED)
def test_what_cannot_be_packed(changes, tmp_path):
    settings = {"example_layout": "packed", "max_seq_length": 128}
    (tmp_path / "manifest.json").write_text(json.dumps({"settings": settings}))
    check_data(str(tmp_path), resolve_hparams({"model_size": "convbert-small"}, 60))
    hparams = resolve_hparams({"model_size": "convbert-small", **changes}, 60)
    with pytest.raises(InputError, match="example_layout"):
        check_data(str(tmp_path), dataclasses.replace(hparams, max_seq_length=128))
