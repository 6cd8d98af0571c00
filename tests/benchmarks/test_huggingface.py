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


@pytest.mark.parametrize("config", [CONVBERT, ELECTRA])
def test_pretraining_step(config):
    fields = dataclasses.asdict(config)
    narrow = config.replace(hidden_size=8, num_attention_heads=2, intermediate_size=16)
    first, second = peers.ask(peers.benchmark_steps, fields, dataclasses.asdict(narrow), B, S)
    assert first == pytest.approx(math.log(V) + 50 * math.log(2), abs=0.5)
    assert np.isfinite(second)
