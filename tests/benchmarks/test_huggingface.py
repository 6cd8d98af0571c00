"""Hugging Face's side of the benchmarks: the same networks as ours, and steps that train."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from model import SIZES, EncoderConfig
from pretrain.hparams import resolve_hparams
from tests.analysis.test_parameters import GRAPHS
from tests.model.test_sizes import EXACT

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from benchmarks import huggingface  # noqa: E402, it imports the two

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
# The generator of convbert-small is narrower at Hugging Face: its head_ratio exceeds its heads.
NARROWER = {"convbert-small": 177_408}


def count(module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


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
    with torch.device("meta"):  # shapes without memory
        networks = huggingface.ReplacedTokenDetection(
            huggingface._config(fields),
            huggingface._config(generator),
        )
    assert count(networks.discriminator) == EXACT[size]
    assert count(networks) == GRAPHS[size] - NARROWER.get(size, 0)


@pytest.mark.parametrize("precision", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize("config", [CONVBERT, ELECTRA])
def test_pretraining_step(config, precision):
    fields, generator = dataclasses.asdict(config), generator_fields(config)
    run = huggingface.pretraining_step(fields, generator, B, S, precision)
    assert run() == pytest.approx(math.log(V) + 50 * math.log(2), abs=0.5)
    assert np.isfinite(run())


@pytest.mark.parametrize("config", [CONVBERT, ELECTRA])
def test_every_weight_is_trained_and_embeddings_are_shared(config):
    networks = huggingface.ReplacedTokenDetection(
        huggingface._config(dataclasses.asdict(config)),
        huggingface._config(generator_fields(config)),
    )
    generator, embeddings = networks.generator, networks.discriminator.embeddings
    assert generator.base_model.embeddings is embeddings
    assert generator.generator_lm_head.weight is embeddings.word_embeddings.weight
    networks(huggingface._random_ids(B, S, V)).backward()
    unused = [name for name, value in networks.named_parameters() if value.grad is None]
    assert unused == []


def test_masking():
    ids = huggingface._random_ids(500, 40, V)
    masked, positions = huggingface.mask_tokens(ids)
    assert positions.shape == (500, 6)
    chosen = torch.zeros_like(ids).scatter(1, positions, 1).bool()
    assert (chosen.sum(1) == 6).all()  # distinct
    assert not chosen[:, [0, -1]].any()  # neither [CLS] nor [SEP]
    assert (masked == ids)[~chosen].all()
    shown = masked[chosen]
    hidden = shown == huggingface.SPECIAL_IDS["mask"]
    assert (shown == ids[chosen])[~hidden].all()
    assert hidden.float().mean().item() == pytest.approx(0.85, abs=0.03)
