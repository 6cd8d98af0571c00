"""Model directories between formats: what describes any encoder, and reading back."""

from __future__ import annotations

import pytest

from checkpoints.model_directory import (
    Conversion,
    Networks,
    describe_pretraining,
    generator_shares,
    load,
    save,
)
from data.vocabulary import SPECIAL_TOKENS, Vocabulary
from errors import InputError
from model import SIZES, build_encoder, named_size
from pretrain.hparams import parse_hparams
from pretrain.saved_settings import load_hparams
from tests.model_support import TINY


def of_size(number):
    return Vocabulary((*SPECIAL_TOKENS, *(f"w{i}" for i in range(number - 5))))


VOCABULARY = of_size(TINY.vocab_size)


def test_a_vocabulary_of_words_stays_here(tmp_path):
    """No other format has one."""
    tokens = ["[PAD]", "<unk>", "<eos>", "[MASK]"]
    tokens += [f"w{i}" for i in range(TINY.vocab_size - len(tokens))]
    words = Vocabulary(tuple(tokens), False, False, tokenizer="words")
    networks = Networks(build_encoder(TINY))
    conversion = Conversion(TINY, describe_pretraining(TINY, words), words, networks)
    save(conversion, str(tmp_path), {})
    with pytest.raises(InputError):
        load(str(tmp_path))


@pytest.mark.parametrize("name", SIZES)
def test_named_sizes_are_recognised(name):
    config = SIZES[name]
    bert = name.startswith("bert")
    objective = "masked_lm" if bert or name.startswith("xlnet") else "replaced_token_detection"
    hparams = describe_pretraining(config, of_size(config.vocab_size), objective=objective)
    assert SIZES[hparams.model_size] == config
    assert bert == hparams.model_size.startswith("bert")
    assert hparams.model_hparam_overrides == {}


@pytest.mark.parametrize(
    "config",
    [
        TINY,
        named_size("small").replace(vocab_size=31, hidden_size=512),
        named_size("base").replace(vocab_size=31, mask_padding=False, num_attention_heads=6),
        TINY.replace(token_mixer="convolution", convolution="static", share_layers=True),
    ],
    ids=["tiny", "wider", "fewer heads", "ablation"],
)
def test_any_encoder_is_described(config):
    """`describe_pretraining` checks that what it returns is resolved to the same encoder."""
    hparams = describe_pretraining(config, VOCABULARY, learning_rate=0.1)
    assert hparams.learning_rate == 0.1
    assert hparams.max_seq_length == min(128, config.max_position_embeddings)
    assert None not in (hparams.train_batch_size, hparams.objective.generator_hidden_size)


@pytest.mark.parametrize("share", [1.0, 1 / 3, 1 / 6])
def test_shares_of_a_generator(share):
    config = named_size("base")
    hparams = parse_hparams({"generator_hidden_size": share, "generator_layers": 0.5})
    generator = hparams.objective.generator_config(config)
    assert generator_shares(config, generator, untied_embeddings=False) == {
        "generator_hidden_size": share,
        "generator_layers": 0.5,
        "untied_generator_embeddings": False,
    }
    with pytest.raises(InputError):
        generator_shares(config, generator.replace(num_attention_heads=1), untied_embeddings=False)


@pytest.fixture
def encoder_only(tmp_path):
    encoder = build_encoder(TINY)
    hparams = describe_pretraining(TINY, VOCABULARY)
    conversion = Conversion(TINY, hparams, VOCABULARY, Networks(encoder), step=3)
    save(conversion, str(tmp_path / "model"), {"source": "nowhere"})
    return tmp_path / "model"


def test_an_encoder_alone(encoder_only):
    conversion = load(str(encoder_only))
    assert (conversion.step, conversion.optimizer) == (3, None)
    for name in ("head", "generator", "generator_head"):
        assert getattr(conversion.objective, name) is None
    assert any("head, generator, generator_head" in note for note in conversion.notes)
    hparams, run = load_hparams(str(encoder_only))
    assert hparams == conversion.hparams
    assert run["converted"] == {"source": "nowhere"}


def test_what_does_not_fit_together_is_rejected(encoder_only, tmp_path):
    of_size(30).save(encoder_only)
    with pytest.raises(InputError):
        load(str(encoder_only))
    VOCABULARY.save(encoder_only)
    TINY.replace(num_hidden_layers=3).save(str(encoder_only))
    with pytest.raises(InputError):
        load(str(encoder_only))
    with pytest.raises(InputError):
        load(str(tmp_path))
