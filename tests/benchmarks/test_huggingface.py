"""Hugging Face's side of the benchmarks: the same networks as ours, and steps that train."""

from __future__ import annotations

import dataclasses
import math
import subprocess
import sys

import numpy as np
import pytest

from errors import InputError
from model import SIZES, EncoderConfig
from pretrain.hparams import resolve_hparams
from tests.analysis.test_parameters import GRAPHS
from tests.model.test_sizes import EXACT

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from benchmarks import huggingface, huggingface_pretraining  # noqa: E402, they import the two

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
NETWORKS = {
    "convbert": (dataclasses.asdict(CONVBERT), "eager"),
    "electra": (dataclasses.asdict(ELECTRA), "sdpa"),
}
PRECISIONS = ("float32", "mixed_bfloat16")

# The generator of convbert-small is narrower at Hugging Face: its head_ratio exceeds its heads.
NARROWER = {"convbert-small": 177_408}


@pytest.fixture(autouse=True)
def _one_thread():
    """Threads that wait for each other cost more than such small networks."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


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


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("model_type", NETWORKS)
def test_inference(model_type, precision):
    fields, attention = NETWORKS[model_type]
    run = huggingface.inference(fields, B, S, precision)
    output = run()
    assert output.shape == (B, S, 16)
    assert output.dtype == np.float32
    np.testing.assert_array_equal(run(), output)  # no dropout
    assert run.facts["attention"] == attention
    float32 = huggingface.inference(fields, B, S)()
    assert (precision == "float32") == np.array_equal(output, float32)
    np.testing.assert_allclose(output, float32, atol=0.1)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("config", [CONVBERT, ELECTRA])
def test_pretraining_step(config, precision):
    fields, generator = dataclasses.asdict(config), generator_fields(config)
    run = huggingface.pretraining_step(fields, generator, B, S, precision)
    assert run() == pytest.approx(math.log(V) + 50 * math.log(2), abs=0.5)
    assert np.isfinite(run())


@pytest.mark.parametrize("precision", PRECISIONS)
def test_masked_lm_step(precision):
    """A new network knows nothing, each step is another, and all of BERT's weights are there."""
    run = huggingface.masked_lm_step(dataclasses.asdict(ELECTRA), B, S, precision)
    losses = [run() for _ in range(3)]
    assert losses == pytest.approx([math.log(V)] * 3, abs=0.5)
    assert len(set(losses)) == 3
    with torch.device("meta"):
        model = huggingface.masked_lm_step(dataclasses.asdict(SIZES["bert-base"]), B, S)
    vocabulary, hidden = SIZES["bert-base"].vocab_size, SIZES["bert-base"].hidden_size
    head = hidden * hidden + 3 * hidden + vocabulary
    assert model.facts["parameters"] == EXACT["electra-base"] + head


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
    optimizer = huggingface._optimizer(networks, 1e-3)
    assert sum(len(group["params"]) for group in optimizer.param_groups) == len(
        list(networks.parameters())
    )


def test_masking():
    ids = huggingface._random_ids(500, 40, V)
    masked, positions = huggingface_pretraining.mask_tokens(ids)
    assert positions.shape == (500, 6)
    chosen = torch.zeros_like(ids).scatter(1, positions, 1).bool()
    assert (chosen.sum(1) == 6).all()  # distinct
    assert not chosen[:, [0, -1]].any()  # neither [CLS] nor [SEP]
    assert (masked == ids)[~chosen].all()
    shown = masked[chosen]
    hidden = shown == huggingface.SPECIAL_IDS["mask"]
    assert (shown == ids[chosen])[~hidden].all()
    assert hidden.float().mean().item() == pytest.approx(0.85, abs=0.03)


def test_sampling():
    probabilities = torch.tensor([[0.5, 0.2, 0.0, 0.3]]).repeat(20_000, 1)
    drawn = huggingface_pretraining.sample(probabilities)
    assert drawn.shape == (20_000, 1)
    shares = torch.bincount(drawn.flatten(), minlength=4) / 20_000
    np.testing.assert_allclose(shares, probabilities[0], atol=0.02)
    assert shares[2] == 0


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("model_type", NETWORKS)
def test_finetuning_epoch(model_type, precision, monkeypatch):
    update, rates = huggingface._update, []

    def spy(loss, module, optimizer, schedule):
        rates.append(optimizer.param_groups[0]["lr"])
        return update(loss, module, optimizer, schedule)

    monkeypatch.setattr(huggingface, "_update", spy)
    fields, _ = NETWORKS[model_type]
    lengths = [5, 9, 16, 12, 3, 7]
    run = huggingface.finetuning_epoch(fields, lengths, 2, precision)
    assert run() == pytest.approx(math.log(2), abs=0.3)
    run()
    np.testing.assert_allclose(rates, [1e-4, 2 / 3 * 1e-4, 1 / 3 * 1e-4] * 2)


def test_batches_are_padded_to_their_own_length(monkeypatch):
    pad, widths = huggingface._pad, []

    def spy(examples):
        features = pad(examples)
        widths.append(features["input_ids"].shape[1])
        lengths = features["attention_mask"].sum(1).tolist()
        assert lengths == [len(example["input_ids"]) for example in examples]
        assert widths[-1] == max(lengths)
        return features

    monkeypatch.setattr(huggingface, "_pad", spy)
    fields, _ = NETWORKS["electra"]
    for grouped in (False, True):
        huggingface.finetuning_epoch(fields, [4, 16] * 32, 4, group_by_length=grouped)()
    assert len(widths) == 16 + 16
    assert sum(widths[:16]) > sum(widths[16:])


def test_regression():
    fields, _ = NETWORKS["electra"]
    assert np.isfinite(huggingface.finetuning_epoch(fields, [5, 9], 2, num_labels=1)())


@pytest.mark.parametrize(
    "changes",
    [
        {"head_ratio": 4},
        {"token_mixer": "convolution"},
        {"convolution": "static"},
        {"share_layers": True},
    ],
)
def test_networks_that_hugging_face_lacks_are_rejected(changes):
    fields = dataclasses.asdict(CONVBERT.replace(**changes))
    with pytest.raises(InputError, match=f"`{next(iter(changes))}`"):
        huggingface.inference(fields, B, S)


def test_tensorflow_is_not_imported():
    command = "import sys; from benchmarks import huggingface; print('tensorflow' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", command], text=True) == "False\n"
