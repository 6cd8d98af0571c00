"""Hyper-parameters: the original's JSON works unchanged, mistakes are named."""

import pytest

from convbert.common.settings import replace_checked
from convbert.pretrain.hparams import (
    RunSettings,
    encoder_config,
    resolve_hparams,
    split_hparams,
    translate,
    with_length_of_data,
)
from tests.finetune.kinds_support import rejects

# Objectives that not every architecture can learn.
CAUSAL = {"objective": "causal_lm", "model_size": "causal-mixed-small"}
PERMUTED = {"objective": "permutation_lm", "model_size": "xlnet-tiny"}


def test_json_written_for_the_original():
    """Keys of configure_pretraining.py of ConvBERT and ELECTRA."""
    values = {"model_size": "small", "electra_objective": True, "num_train_steps": 1e6}
    values |= {"iterations_per_loop": 100, "save_checkpoints_steps": 5000, "vocab_size": 30522}
    values |= {"keep_checkpoint_max": 3, "use_tpu": False, "tpu_name": None, "debug": False}
    values |= {"two_tower_generator": False, "generator_hidden_size": 0.25}
    values |= {"conv_type": "sdconv", "conv_kernel_size": 7, "linear_groups": 2}
    values["model_hparam_overrides"] = {"num_hidden_layers": 3, "hidden_size": 128}
    hparams, run, ignored = split_hparams(translate(values))
    resolved = resolve_hparams(hparams, vocab_size=30522)
    assert (resolved.num_train_steps, resolved.learning_rate) == (1_000_000, 3e-4)
    assert resolved.train_batch_size == 128
    config = encoder_config(resolved, 30522)
    assert (config.num_hidden_layers, config.hidden_size) == (3, 128)
    # As in the original, the width brings its heads and its inner width along.
    assert (config.num_attention_heads, config.intermediate_size) == (2, 512)
    assert (config.conv_kernel_size, config.linear_groups) == (7, 2)
    settings = replace_checked(RunSettings(), run)
    assert (settings.iterations_per_loop, settings.save_checkpoints_steps) == (100, 5000)
    assert ignored == ["use_tpu", "tpu_name"]


def test_resolving_twice_changes_nothing():
    assert resolve_hparams({}, vocab_size=30522).model_size == "medium-small"  # as in the original
    for size in ("small", "medium-small", "base", "electra-small", "bert-base"):
        once = resolve_hparams({"model_size": size}, vocab_size=30522)
        assert resolve_hparams(once.as_json(), vocab_size=30522) == once


def test_fields_of_the_encoder_that_stand_beside_the_others():
    """They are overrides, but what the size has anyway is not; a record of them is read as well."""
    values = {"model_size": "small", "conv_type": "noconv", "embedding_size": 128}
    hparams = resolve_hparams(values, 30522)
    assert hparams.model_hparam_overrides == {"token_mixer": "attention"}
    config = encoder_config(hparams, 30522)
    assert (config.token_mixer, config.head_ratio) == ("attention", 2)  # "+bottleneck"
    before = {**hparams.as_json(), **values, "model_hparam_overrides": {}, "head_ratio": 2}
    assert resolve_hparams(before, 30522) == hparams
    alone = resolve_hparams({"model_size": "small", "conv_type": "convonly"}, 30522)
    assert encoder_config(alone, 30522).token_mixer == "convolution"


TRAPEZOID = {"lr_schedule": "trapezoidal", "num_train_steps": 100, "num_warmup_steps": 20}
TRAPEZOID |= {"schedule_from_step": 10, "num_decay_steps": 70}
MISTAKES = [
    ({"learning_rat": 1e-3}, "Unknown name `learning_rat`. Did you mean `learning_rate`"),
    ({"two_tower_generator": True}, "`two_tower_generator` is not supported"),
    ({"num_train_steps": 10.5}, "`num_train_steps` should be int. Received: 10.5"),
    ({"electra_objective": 1}, "`electra_objective` should be true or false. Received: 1"),
    ({"objective": "maskedlm"}, "masked_lm"),
    ({"electra_objective": True, "objective": "masked_lm"}, "`objective`"),
    ({"model_size": "smal"}, "Did you mean `small`"),
    ({"vocab_size": 100}, "`vocab_size` should be 30522, that of the vocabulary"),
    ({"max_seq_length": 1024}, "at most max_position_embeddings (512)"),
    ({"conv_type": "sdcnv"}, "`conv_type` should be sdconv"),
    ({"mask_token_prob": 0.9, "random_token_prob": 0.2}, "at most 1 - mask_token_prob"),
    ({"generator_hidden_size": 0.7}, "`generator_hidden_size` 0.7 does not fit the encoder"),
    ({"head_ratio": 2, "model_hparam_overrides": {"head_ratio": 4}}, "`head_ratio` is 2 but 4"),
    ({"num_decay_steps": 10}, "`num_decay_steps` should be 0"),
    ({**TRAPEZOID, "num_decay_steps": 71}, "`num_decay_steps` should be from 1 to 70"),
    ({**TRAPEZOID, "lr_decay_power": 2.0}, "`lr_decay_power` should be 1"),
    ({**CAUSAL, "adaptive_softmax_cutoffs": [10, 40_000]}, "`adaptive_softmax_cutoffs`"),
    ({**CAUSAL, "model_size": "convbert-small"}, "`causal`"),
    ({**PERMUTED, "model_size": "convbert-tiny"}, "`model_size`"),
]


def read(values):
    hparams, run, _ = split_hparams(translate(values))
    return resolve_hparams(hparams, vocab_size=30522), replace_checked(RunSettings(), run)


@pytest.mark.parametrize(("values", "message"), MISTAKES)
def test_mistakes(values, message):
    with rejects(message):
        read(values)


def test_the_length_is_that_of_the_data_unless_it_is_given(tmp_path):
    (tmp_path / "manifest.json").write_text('{"settings": {"max_seq_length": 64}}')
    assert with_length_of_data({}, str(tmp_path))["max_seq_length"] == 64
    assert with_length_of_data({"max_seq_length": 32}, str(tmp_path)) == {"max_seq_length": 32}
    assert with_length_of_data({}, str(tmp_path / "none")) == {}
