"""Hugging Face's side of the benchmarks: the same networks as ours, and steps that train."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from model import SIZES, EncoderConfig
from pretrain.hparams import resolve_hparams
from tests import peers
from tests.analysis.test_parameters import GRAPHS
from tests.model.test_sizes import EXACT

B, S, V = 2, 16, 1100
CONVBERT = EncoderConfig(
    vocab_size=V,
    embedding_size=8,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=32,
    max_position_embeddings=32,
    conv_kernel_size=5,
    linear_groups=2,
)
ELECTRA = CONVBERT.replace(token_mixer="attention", head_ratio=1, linear_groups=1)
# Generators of one head are narrower at Hugging Face, as their head_ratio exceeds their heads.
NARROWER = {"convbert-small": 177_408, "convbert-tiny": 15_232}


@pytest.fixture(scope="module", autouse=True)
def _needed():
    peers.need("torch", "transformers")


def generator_fields(config: EncoderConfig) -> dict:
    return dataclasses.asdict(
        config.replace(hidden_size=8, num_attention_heads=2, intermediate_size=16)
    )


@pytest.mark.parametrize(
    "size", [name for name in GRAPHS if name.startswith(("convbert", "electra"))]
)
def test_networks_are_as_large_as_ours(size):
    config = SIZES[size]
    hparams = resolve_hparams({"model_size": size}, config.vocab_size)
    fields = dataclasses.asdict(config)
    generator = dataclasses.asdict(hparams.objective.generator_config(config))
    discriminator, both = peers.ask(peers.benchmark_sizes, fields, generator)
    assert discriminator == EXACT[size]
    assert both == GRAPHS[size] - NARROWER.get(size, 0)


@pytest.mark.parametrize("precision", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize("config", [CONVBERT, ELECTRA])
def test_pretraining_step(config, precision):
    fields, generator = dataclasses.asdict(config), generator_fields(config)
    first, second = peers.ask(peers.benchmark_steps, fields, generator, B, S, precision)
    assert first == pytest.approx(math.log(V) + 50 * math.log(2), abs=0.5)
    assert np.isfinite(second)


@pytest.mark.parametrize("config", [CONVBERT, ELECTRA])
def test_every_weight_is_trained_and_embeddings_are_shared(config):
    fields, generator = dataclasses.asdict(config), generator_fields(config)
    assert peers.ask(peers.benchmark_sharing, fields, generator, B, S) == (True, True, [])


def test_masking():
    ids, masked, positions, mask_id = peers.ask(peers.benchmark_masking, 500, 40, V)
    assert positions.shape == (500, 6)
    chosen = np.zeros(ids.shape, bool)
    np.put_along_axis(chosen, positions, True, axis=1)
    assert (chosen.sum(1) == 6).all()  # distinct
    assert not chosen[:, [0, -1]].any()  # neither [CLS] nor [SEP]
    assert (masked == ids)[~chosen].all()
    hidden = masked[chosen] == mask_id
    assert (masked == ids)[chosen][~hidden].all()
    assert hidden.mean() == pytest.approx(0.85, abs=0.03)
