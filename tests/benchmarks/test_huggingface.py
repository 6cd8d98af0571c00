"""Hugging Face's side of the benchmarks: networks as large as ours."""

from __future__ import annotations

import dataclasses

import pytest

from convbert.model import SIZES
from convbert.pretrain.hparams import resolve_hparams
from tests import peers
from tests.analysis.test_parameters import GRAPHS
from tests.model.test_sizes import EXACT

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
