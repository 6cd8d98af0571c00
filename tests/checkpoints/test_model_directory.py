"""Model directories between formats: what describes any encoder, and reading back."""

from __future__ import annotations

import dataclasses
import shutil

import pytest

from convbert.checkpoints.model_directory import (
    Conversion,
    Networks,
    describe_pretraining,
    load,
    save,
)
from convbert.common.errors import InputError
from convbert.data.vocabulary import SPECIAL_TOKENS, Vocabulary
from convbert.model import SIZES, build_backbone, load_config
from tests.model_support import TINY


def test_a_vocabulary_of_words_stays_here(tmp_path):
    """No other format has one."""
    tokens = ["[PAD]", "<unk>", "<eos>", "[MASK]"]
    tokens += [f"w{i}" for i in range(TINY.vocab_size - len(tokens))]
    words = Vocabulary(tuple(tokens), False, False, tokenizer="words")
    networks = Networks(build_backbone(TINY))
    conversion = Conversion(TINY, describe_pretraining(TINY, words), words, networks)
    save(conversion, str(tmp_path), {})
    with pytest.raises(InputError):
        load(str(tmp_path))


@pytest.mark.parametrize("name", SIZES)
def test_named_sizes_are_recognised(name):
    config = SIZES[name]
    bert = name.startswith("bert")
    objective = "masked_lm" if bert or name.startswith("xlnet") else "replaced_token_detection"
    words = (f"w{i}" for i in range(config.vocab_size - len(SPECIAL_TOKENS)))
    vocabulary = Vocabulary((*SPECIAL_TOKENS, *words))
    hparams = describe_pretraining(config, vocabulary, objective=objective)
    assert SIZES[hparams.model_size] == config
    assert bert == hparams.model_size.startswith("bert")
    assert hparams.model_hparam_overrides == {}


def test_what_does_not_fit_together_is_rejected(folders, tmp_path):
    model = tmp_path / "model"
    shutil.copytree(folders("convbert")[1], model)
    config, vocabulary = load_config(str(model)), Vocabulary.load(model)
    dataclasses.replace(vocabulary, tokens=vocabulary.tokens[:-1]).save(model)
    with pytest.raises(InputError):
        load(str(model))
    vocabulary.save(model)
    config.replace(num_hidden_layers=3).save(str(model))
    with pytest.raises(InputError):
        load(str(model))
    with pytest.raises(InputError):
        load(str(tmp_path))
