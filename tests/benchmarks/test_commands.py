"""Every system of ours runs; every command asks for systems that exist and makes its table."""

import dataclasses

import pytest

from convbert.benchmarks import ours
from convbert.benchmarks.random_model import MIXERS, make_model
from convbert.model import load_config
from tests.build_support import VOCABULARY
from tests.model_support import TINY

# Ids of benchmarks start at 1000.
WIDE = TINY.replace(vocab_size=1100, num_hidden_layers=1)
FIELDS = dataclasses.asdict(WIDE)
SHAPE = {"batch": 2, "length": 16}
OVERRIDES = ("vocab_size", "embedding_size", "hidden_size", "num_hidden_layers")
OVERRIDES += ("num_attention_heads", "intermediate_size", "conv_kernel_size")
STEP = {"size": "tiny", "generator_hidden_size": 0.5}
STEP["model_hparam_overrides"] = {name: FIELDS[name] for name in OVERRIDES}


@pytest.mark.slow  # needs ten seconds: a model of each
def test_models_of_every_token_mixer(tmp_path):
    for mixer in MIXERS:
        make_model(f"modern-tiny:{mixer}", str(tmp_path / mixer))
        config = load_config(str(tmp_path / mixer))
        assert {name: getattr(config, name) for name in MIXERS[mixer]} == MIXERS[mixer]


@pytest.mark.slow  # needs ten seconds: a step of each
def test_every_system_runs(tmp_path):
    step = ours.pretraining_step(**STEP, **SHAPE, objective="masked_lm")
    step()
    assert step.facts["flops"] > 0
    ours.mixer_block(FIELDS, training=True, **SHAPE)()
    fields = dataclasses.asdict(WIDE.replace(vocab_size=VOCABULARY.size))
    (tmp_path / "CoLA").mkdir()
    rows = [f"a\t{i % 2}\t\t{'a b c ' * (i % 5 + 1)}" for i in range(12)]
    for split in ("train", "dev"):
        (tmp_path / "CoLA" / f"{split}.tsv").write_text("\n".join(rows))
    VOCABULARY.save(tmp_path)
    files = {"data_dir": str(tmp_path), "vocab": str(tmp_path)}
    epoch = ours.finetuning_epoch(fields, task="cola", batch=5, **files)
    epoch()
    assert epoch.facts == {"examples": 10}  # of twelve: full batches only
