"""A backbone that a file outside of the project registers, under the ordinary commands."""

import json
import pathlib
import runpy

import numpy as np
import pytest
import tensorflow as tf

from convbert.analysis.operations import (
    ELECTRA,
    EXECUTED,
    count_parameters,
    recipe_hparams,
    training_flops,
)
from convbert.finetune.objective import FineTuning, learning_rate_scales
from convbert.model import SIZES, build_backbone, load_config, named_size
from convbert.model.architectures import size_of
from convbert.model.config import ARCHITECTURES
from convbert.model.heads.task import ClassificationHead
from tests import command_support
from tests.finetune.kinds_support import declared
from tests.model_support import random_features
from tests.pretraining_support import build_data

PLUGIN = pathlib.Path(__file__).parents[1] / "plugin_backbone.py"
TEXTS = [("w1 w2 w3", "low"), ("w4 w2 w1", "low"), ("w50 w51", "high"), ("w52 w50 w53", "high")]


@pytest.fixture
def plugin(monkeypatch):
    """The registered module, which is forgotten after the test."""
    registry = ARCHITECTURES
    monkeypatch.setattr(registry, "_entries", dict(registry._entries))
    monkeypatch.setitem(SIZES, "bag-tiny", None)
    del SIZES["bag-tiny"]
    return runpy.run_path(str(PLUGIN), run_name="plugin")


def test_a_configuration_is_read_by_the_name_of_its_architecture(plugin, tmp_path):
    config = named_size("bag-tiny").replace(hidden_size=8)
    config.save(str(tmp_path))
    assert json.loads((tmp_path / "config.json").read_text())["architecture"] == "bag"
    assert load_config(str(tmp_path)) == config
    assert size_of(config.replace(hidden_size=16, vocab_size=7)) == "bag-tiny"


def test_heads_and_rates_of_a_backbone(plugin):
    backbone = build_backbone(named_size("bag-tiny"))
    objective = FineTuning(backbone, ClassificationHead(2))
    features = {name: tf.constant(v) for name, v in random_features(2, 7, [7, 4]).items()}
    expected = objective.head.dense(backbone(features).pooled)
    np.testing.assert_allclose(objective.predict(features)["logits"], expected, atol=1e-6)
    rates = learning_rate_scales(objective, 0.5, corrected=True)
    names = [variable.name for variable in objective.trainable_variables]
    found = {rate: sum(other == rate for other in rates) for rate in rates}
    assert found == {1.0: 2, 0.5: 2, 0.25: 2, 0.125: 1}
    assert "word_embeddings" in names[rates.index(0.125)]


def test_its_operations_and_parameters_are_counted(plugin):
    hparams = {"model_size": "bag-tiny", "objective": "masked_lm", "max_seq_length": 20}
    hparams |= {"num_train_steps": 10, "train_batch_size": 4}
    run = recipe_hparams(json.dumps(hparams))
    forward = 2 * (2 * 32 * 16 + 16) + 4 * 16  # two layers, dropout
    head = (2 * 16 * 16 + 16) + (8 + 5) * 16 + (2 * 16 * 100 + 100) + 5 * 100
    executed = forward + 3 / 20 * head  # per token; 3 of a sequence's 20 are predicted
    tokens = 10 * 4 * 20
    assert training_flops(run, ELECTRA) == (executed + 2 * 16 * 100) * 2 * tokens
    assert training_flops(run, EXECUTED) == executed * 3 * tokens
    encoder = 100 * 16 + 2 * (32 * 16 + 16)
    graph = encoder + (16 * 16 + 16) + 2 * 16 + 100
    assert count_parameters(run) == (encoder, graph)


def run(script, **flags):
    """A command that imports the backbone's file first."""
    flags["plugins"] = PLUGIN
    command_support.run(script, *(f"--{name}={value}" for name, value in flags.items()))


@pytest.mark.slow  # needs a minute of two cores: four commands
def test_it_is_pretrained_finetuned_exported_and_asked(tmp_path):
    folder, model_dir = tmp_path, tmp_path / "model"
    build_data(folder, count=40, num_shards=1)
    lines = ["text\tlabel", *("\t".join(row) for row in TEXTS * 4)]
    declared(folder, {"train": lines, "dev": lines}, {"text_a": "text", "label": "label"}, "tsv")
    hparams = {"model_size": "bag-tiny", "objective": "masked_lm", "max_seq_length": 32}
    hparams |= {"train_batch_size": 4, "num_warmup_steps": 2, "learning_rate": 1e-2}
    hparams |= {"num_train_steps": 400, "iterations_per_loop": 2, "num_eval_steps": 1}
    flags = {"data_dir": folder / "data", "model_dir": model_dir, "hparams": json.dumps(hparams)}
    flags["do_eval"] = True
    run("run_pretraining.py", **flags)
    assert tf.train.latest_checkpoint(str(model_dir / "checkpoints")).endswith("-400")
    tuning = {"num_train_epochs": 30, "train_batch_size": 4, "learning_rate": 1e-2}
    runs = folder / "runs"
    flags = {"model_dir": model_dir, "task": folder / "own.json", "output_dir": runs}
    run("run_finetuning.py", **flags, hparams=json.dumps({**tuning, "max_seq_length": 16}))
    (result,) = runs.glob("*/*/trial_0/result.json")
    assert json.loads(result.read_text())["scores"]["dev"]["accuracy"] == 100.0
    run("export_savedmodel.py", model_dir=result.parent, output_dir=folder / "saved")
    rows = folder / "rows.jsonl"
    rows.write_text("".join(json.dumps({"text": text}) + "\n" for text, _ in TEXTS))
    run("serving/predict.py", model=folder / "saved", input=rows, output=folder / "answers.jsonl")
    answers = map(json.loads, (folder / "answers.jsonl").read_text().splitlines())
    assert [answer["prediction"] for answer in answers] == [gold for _, gold in TEXTS]
