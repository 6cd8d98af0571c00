"""Model directories between formats: what describes any encoder, and what is rejected at once."""

import dataclasses
import shutil

import pytest

from convbert.checkpoints import model_directory
from convbert.common.errors import InputError
from convbert.data.vocabulary import SPECIAL_TOKENS, Vocabulary
from convbert.finetune.load import load_fine_tuned
from convbert.model import SIZES, build_backbone, load_config
from convbert.pretrain.load import load_encoder
from tests.finetune.kinds_support import rejects
from tests.huggingface_support import change_json, copied, read
from tests.model_support import TINY
from tests.serving.support import fine_tuned, task


def test_a_vocabulary_of_words_stays_here(tmp_path):
    """No other format has one."""
    tokens = ["[PAD]", "<unk>", "<eos>", "[MASK]"]
    tokens += [f"w{i}" for i in range(TINY.vocab_size - len(tokens))]
    words = Vocabulary(tuple(tokens), False, False, tokenizer="words")
    networks = model_directory.Networks(build_backbone(TINY))
    conversion = model_directory.Conversion(
        TINY, model_directory.describe_pretraining(TINY, words), words, networks
    )
    model_directory.save(conversion, str(tmp_path), {})
    with pytest.raises(InputError):
        model_directory.load(str(tmp_path))


@pytest.mark.parametrize("name", SIZES)
def test_named_sizes_are_recognised(name):
    config = SIZES[name]
    bert = name.startswith("bert")
    objective = "masked_lm" if bert or name.startswith("xlnet") else "replaced_token_detection"
    words = (f"w{i}" for i in range(config.vocab_size - len(SPECIAL_TOKENS)))
    vocabulary = Vocabulary((*SPECIAL_TOKENS, *words))
    hparams = model_directory.describe_pretraining(config, vocabulary, objective=objective)
    assert SIZES[hparams.model_size] == config
    assert bert == hparams.model_size.startswith("bert")
    assert hparams.model_hparam_overrides == {}


def test_what_does_not_fit_together_is_rejected(folders, tmp_path):
    model = tmp_path / "model"
    shutil.copytree(folders("convbert")[1], model)
    config, vocabulary = load_config(str(model)), Vocabulary.load(model)
    dataclasses.replace(vocabulary, tokens=vocabulary.tokens[:-1]).save(model)
    with pytest.raises(InputError):
        model_directory.load(str(model))
    vocabulary.save(model)
    config.replace(num_hidden_layers=3).save(str(model))
    for folder in (model, tmp_path):
        with pytest.raises(InputError):
            model_directory.load(str(folder))


HUGE = {"hidden_size": 10**7, "max_position_embeddings": 10**10}
HUGE |= {"vocab_size": 10**25, "num_hidden_layers": 10**6}


@pytest.mark.parametrize("field", HUGE)
def test_sizes_that_no_machine_has(field, folders, tmp_path):
    theirs, ours = copied("convbert", tmp_path), tmp_path / "model"
    shutil.copytree(folders("convbert")[1], ours)
    for folder, loads in ((theirs, [read]), (ours, [load_encoder, model_directory.load])):
        change_json(folder / "config.json", **{field: HUGE[field]})
        for reads in loads:
            with rejects():
                reads(str(folder))


def test_sizes_of_a_fine_tuned_model(tmp_path):
    fine_tuned(tmp_path, task("classification"))
    change_json(tmp_path / "config.json", intermediate_size=10**8)
    with rejects():
        load_fine_tuned(str(tmp_path))
