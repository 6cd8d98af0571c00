"""The recipes hold to the tables of the papers; hyper-parameters, and mistakes in them."""

import dataclasses
import json
import pathlib

import pytest

from convbert.analysis.flops import TABLE_3
from convbert.analysis.operations import hparams_of, training_flops
from convbert.common.settings import read_json_object, replace_checked
from convbert.pretrain import hparams as pretraining
from convbert.pretrain.hparams import encoder_config, resolve_hparams, split_hparams
from tests.finetune.kinds_support import rejects

CONFIGS = pathlib.Path(__file__).parents[2] / "configs"

# Of all three papers.
_SHARED = {"num_hidden_layers": 12, "num_warmup_steps": 10_000, "lr_decay_power": 1.0}
_SHARED |= {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
_SHARED |= {"weight_decay_rate": 0.01, "mask_prob": 0.15}

# Table 1 of the ConvBERT supplement. Its head counts are those after the bottleneck.
_CONVBERT_ROWS = (
    *("hidden_size", "embedding_size", "intermediate_size", "generator_hidden_size", "num_heads"),
    *("head_size", "learning_rate", "train_batch_size"),
)
_CONVBERT = {
    "convbert_small": (256, 128, 1024, 1 / 4, 2, 64, 3e-4, 128),
    "convbert_medium_small": (384, 128, 1536, 1 / 4, 4, 48, 5e-4, 128),
    "convbert_base": (768, 768, 3072, 1 / 3, 6, 64, 2e-4, 256),
}
_CONVBERT_SHARED = {**_SHARED, "max_seq_length": 128, "num_train_steps": 1_000_000}  # Table 3
_CONVBERT_SHARED |= {"optimizer": "adam", "objective": "replaced_token_detection"}
_CONVBERT_SHARED |= {"token_mixer": "mixed", "convolution": "span", "conv_kernel_size": 9}
_CONVBERT_SHARED |= {"gen_weight": 1.0, "disc_weight": 50.0, "temperature": 1.0}
_MASKING = {"mask_token_prob": 0.85, "random_token_prob": 0.0}
_BERT_MASKING = {"mask_token_prob": 0.8, "random_token_prob": 0.1}  # appendix 4.1 of SCRIPT

# Table V of the ALE report.
_ALE = {
    "ale_report_bert_small": {"num_train_steps": 163_000, "share_layers": False},
    "ale_report_electra_small": {"num_train_steps": 125_000, "share_layers": False},
    "ale_small": {"num_train_steps": 162_000, "share_layers": True},
}
_ALE_SHARED = {**_SHARED, "max_seq_length": 128, "embedding_size": 128, "hidden_size": 256}
_ALE_SHARED |= {"intermediate_size": 1024, "num_heads": 4, "head_size": 64}
_ALE_SHARED |= {"token_mixer": "attention", "train_batch_size": 1024}
_ALE_SHARED |= {"learning_rate": 5e-4, "optimizer": "lamb"}
_ALE_DETECTION = {"objective": "replaced_token_detection", "generator_hidden_size": 0.25}
_ALE_DETECTION |= {"temperature": 0.8, "gen_weight": 1.0, "disc_weight": 50.0}

EXPECTED = {
    name: {**_CONVBERT_SHARED, **_MASKING, **dict(zip(_CONVBERT_ROWS, row))}
    for name, row in _CONVBERT.items()
}
_LONG = {"max_seq_length": 512, "num_train_steps": 1_100_000}
EXPECTED["convbert_512"] = {**EXPECTED["convbert_small"], **_LONG}
for _name, _row in _ALE.items():
    _objective = _ALE_DETECTION
    if _name == "ale_report_bert_small":
        _objective = {**_BERT_MASKING, "objective": "masked_lm"}
    EXPECTED[_name] = {**_ALE_SHARED, **_MASKING, **_objective, **_row}

# Table 4 of SCRIPT.
_SCRIPT_SHARED = {**_SHARED, "head_size": 64, "optimizer": "adam", "token_mixer": "attention"}
_SELF_CRITIC = {**_BERT_MASKING, "objective": "self_critic", "disc_weight": 50.0}  # appendix 4.1
_SCRIPT_ROWS = ("hidden_size", "intermediate_size", "num_heads", "embedding_size")
_SCRIPT_ROWS += ("learning_rate", "train_batch_size", "num_train_steps")
for _size, _row in (
    ("small", (256, 1024, 4, 128, 5e-4, 128, 1_000_000)),
    ("base", (768, 3072, 12, 768, 2e-4, 256, 766_000)),
):
    _values = {**_SCRIPT_SHARED, **dict(zip(_SCRIPT_ROWS, _row))}
    EXPECTED[f"script_{_size}"] = {**_values, **_SELF_CRITIC}
    # The baselines: its Table 2 and Table 3 of the ConvBERT supplement, which have base models of
    # length 512.
    _values |= {"head_ratio": 1, "max_seq_length": 128 if _size == "small" else 512}
    _generator = {"generator_hidden_size": 1 / 4 if _size == "small" else 1 / 3}
    EXPECTED[f"electra_{_size}"] = {**_CONVBERT_SHARED, **_MASKING, **_values, **_generator}
    _steps = {"num_train_steps": 1_450_000 if _size == "small" else 1_000_000}
    EXPECTED[f"bert_{_size}"] = {**_values, **_BERT_MASKING, "objective": "masked_lm", **_steps}


def read(name: str) -> tuple[dict, dict]:
    values = read_json_object(str(CONFIGS / f"{name}.json"))
    about = values.pop("about")
    return values, about


def resolve(values: dict, vocab_size: int = 30_522):
    hparams, run, ignored = split_hparams(values)
    assert not run
    assert not ignored
    return resolve_hparams(hparams, vocab_size)


@pytest.mark.parametrize("name", EXPECTED)
def test_recipe_is_the_papers_table(name):
    hparams = resolve(read(name)[0])
    config = encoder_config(hparams, 30522)
    said = {"num_heads": config.num_heads, "head_size": config.head_size}
    said |= dataclasses.asdict(config) | hparams.as_json()
    assert said | EXPECTED[name] == said


# Our own, of causal language models; with the types of their corpora, [PAD] and [MASK].
_CAUSAL = {"wikitext103_transformer": 267_737, "wikitext103_mixed": 267_737, "ptb_small": 10_002}
_ENTRIES = {**dict.fromkeys(EXPECTED, 30_522), **_CAUSAL, "xlnet_base": 32_000}


@pytest.mark.parametrize(("name", "entries"), _ENTRIES.items())
def test_recipe_says_where_it_comes_from_and_what_it_costs(name, entries):
    values, about = read(name)
    if name in EXPECTED:
        assert f"--recipe configs/{name}.json" in about["command"]
        assert {"training_flops", "convention", "published_flops", "hours"} <= set(about["cost"])
    status = "not reproduced here" if name in EXPECTED else "not run"
    assert about["expected"]["status"] == status
    steps = about["cost"].get("updates", values["num_train_steps"])
    hparams = split_hparams({**values, "num_train_steps": steps})[0]
    counted = training_flops(resolve_hparams(hparams, entries))
    assert about["cost"]["training_flops"] == pytest.approx(counted, rel=0.005)


def runs(name):
    """A recipe's run and those of its `variants`: what is published of each, and its settings."""
    values, about = read(name)
    yield {**about["cost"], **about["expected"]}, values
    for variant in about.get("variants", ()):
        yield variant, values | variant["hparams"]


def test_every_row_of_table_3_is_a_recipe_or_its_variant():
    """But for RoBERTa's, whose vocabulary is another. Variants cost what they say."""
    for said, values in (run for name in EXPECTED for run in [*runs(name)][1:]):
        assert said["training_flops"] == pytest.approx(training_flops(resolve(values)), rel=0.005)
    found = []
    for said, values in (run for name in EXPECTED for run in runs(name)):
        hparams = resolve(values)
        row = hparams.model_size, training_flops(hparams), said["published_flops"]
        found.append((*row, said["glue_dev_average"]))
    for row in TABLE_3:
        if row.settings.get("vocab_size") is None:
            counted = training_flops(hparams_of(row))
            assert (row.size, counted, row.flops, row.scores["average"]) in found, row.name


def test_every_recipe_file_is_valid_and_has_an_about():
    paths = [path for path in CONFIGS.glob("*.json") if "finetune" not in path.stem]
    assert paths
    for path in paths:
        values = json.loads(path.read_text())
        assert {"source", "command", "cost", "expected"} <= set(values.pop("about"))
        split_hparams(values)


# Objectives that not every architecture can learn.
CAUSAL = {"objective": "causal_lm", "model_size": "causal-mixed-small"}
PERMUTED = {"objective": "permutation_lm", "model_size": "xlnet-tiny"}


def test_json_written_for_the_original():
    values = {"model_size": "small", "electra_objective": True, "num_train_steps": 1e6}
    values |= {"iterations_per_loop": 100, "save_checkpoints_steps": 5000, "vocab_size": 30522}
    values |= {"keep_checkpoint_max": 3, "use_tpu": False, "tpu_name": None, "debug": False}
    values |= {"two_tower_generator": False, "generator_hidden_size": 0.25}
    values |= {"conv_type": "sdconv", "conv_kernel_size": 7, "linear_groups": 2}
    values["model_hparam_overrides"] = {"num_hidden_layers": 3, "hidden_size": 128}
    hparams, run, ignored = split_hparams(pretraining.translate(values))
    resolved = resolve_hparams(hparams, vocab_size=30522)
    assert (resolved.num_train_steps, resolved.learning_rate) == (1_000_000, 3e-4)
    assert resolved.train_batch_size == 128
    config = encoder_config(resolved, 30522)
    assert (config.num_hidden_layers, config.hidden_size) == (3, 128)
    # As in the original, the width brings its heads and its inner width along.
    assert (config.num_attention_heads, config.intermediate_size) == (2, 512)
    assert (config.conv_kernel_size, config.linear_groups) == (7, 2)
    settings = replace_checked(pretraining.RunSettings(), run)
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
    ({"generator_hidden_size": 0.7}, "`generator_hidden_size` 0.7"),
    ({"head_ratio": 2, "model_hparam_overrides": {"head_ratio": 4}}, "`head_ratio` is 2 but 4"),
    ({"num_decay_steps": 10}, "`num_decay_steps` should be 0"),
    ({**TRAPEZOID, "num_decay_steps": 71}, "`num_decay_steps` should be from 1 to 70"),
    ({**TRAPEZOID, "lr_decay_power": 2.0}, "`lr_decay_power` should be 1"),
    ({**CAUSAL, "adaptive_softmax_cutoffs": [10, 40_000]}, "`adaptive_softmax_cutoffs`"),
    ({**CAUSAL, "model_size": "convbert-small"}, "`causal`"),
    ({**PERMUTED, "model_size": "convbert-tiny"}, "`model_size`"),
]


@pytest.mark.parametrize(("values", "message"), MISTAKES)
def test_mistakes(values, message):
    with rejects(message):
        hparams, run, _ = split_hparams(pretraining.translate(values))
        replace_checked(pretraining.RunSettings(), run)
        resolve_hparams(hparams, vocab_size=30522)


def test_the_length_is_that_of_the_data_unless_it_is_given(tmp_path):
    (tmp_path / "manifest.json").write_text('{"settings": {"max_seq_length": 64}}')
    completed = pretraining.with_length_of_data
    assert completed({}, str(tmp_path))["max_seq_length"] == 64
    assert completed({"max_seq_length": 32}, str(tmp_path)) == {"max_seq_length": 32}
    assert completed({}, str(tmp_path / "none")) == {}
