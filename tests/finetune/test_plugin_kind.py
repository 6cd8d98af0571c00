"""A kind of task from a file outside the package, by the ordinary commands."""

import json
import pathlib

import numpy as np
import pytest

from convbert.common import plugins
from convbert.common.errors import InputError
from convbert.data.vocabulary import SPECIAL_TOKENS, Vocabulary
from convbert.finetune.batches import EvaluationBatches
from convbert.finetune.declaration import load_task
from convbert.finetune.hparams import resolve_hparams
from convbert.finetune.kinds import base
from convbert.finetune.objective import FineTuning
from convbert.finetune.task_data import load_task_data
from convbert.model import build_backbone
from tests import command_support
from tests.finetune.kinds_support import declared, model_directory, read_predictions
from tests.model_support import TINY

PLUGIN = pathlib.Path(__file__).parent / "choice_kind.py"
RIGHT, WRONG, WORDS = ([f"{kind}{i}" for i in range(8)] for kind in ("right", "wrong", "w"))
VOCABULARY = Vocabulary((*SPECIAL_TOKENS, *RIGHT, *WRONG, *WORDS))
CHOICES = 3
HPARAMS = {"learning_rate": 1e-2, "num_train_epochs": 8, "train_batch_size": 12}
HPARAMS |= {"max_seq_length": 24, "iterations_per_loop": 2, "save_checkpoints_steps": 4}
HPARAMS |= {"margin": 0.5}


@pytest.fixture(scope="module")
def task_path(tmp_path_factory):
    draw, lines = np.random.default_rng(0), {"train": [], "dev": []}
    for split, count in (("train", 48), ("dev", 17)):
        for _ in range(count):
            label = int(draw.integers(CHOICES))
            choices = [
                " ".join([*draw.choice(WORDS, draw.integers(1, 9)), draw.choice(words)])
                for words in (RIGHT if i == label else WRONG for i in range(CHOICES))
            ]
            row = {"story": " ".join(draw.choice(WORDS, 5)), "ends": choices, "right": label}
            lines[split].append(json.dumps(row))
    columns = {"context": "story", "choices": "ends", "label": "right"}
    return declared(tmp_path_factory.mktemp("choices"), lines, columns, "jsonl", "choice")


def test_its_loss_is_of_a_whole_example(task_path, monkeypatch):
    with pytest.raises(InputError):
        load_task(task_path)
    monkeypatch.setattr(base._REGISTRY, "_entries", dict(base._REGISTRY._entries))
    plugins.load([str(PLUGIN)])
    task = load_task(task_path)
    with pytest.raises(InputError):
        resolve_hparams({"margin": 10.0}, task, TINY)
    hparams = resolve_hparams({"max_seq_length": 24}, task, TINY)
    data = load_task_data(task, "", VOCABULARY, hparams)
    task = data.task
    encoder = build_backbone(TINY.replace(vocab_size=VOCABULARY.size))
    head = task.plugin.head(task, encoder.config, hparams)
    objective = FineTuning(encoder, head, "mean")
    options = {"max_seq_length": 24, "group_size": task.plugin.group_size(task)}
    *_, last = EvaluationBatches(data.splits["dev"].encoded, 12, **options)()
    loss, _ = objective.loss(last, objective.normalizers(last), training=False)
    assert np.isfinite(loss)
    assert head.loss_weights(last).numpy().tolist() == [1.0, 0.0, 0.0, 0.0]  # of 17 by fours


@pytest.mark.slow  # needs half a minute: a training and an export by real commands
def test_it_is_trained_predicted_and_exported(task_path, tmp_path):
    model_dir = model_directory(tmp_path / "model", VOCABULARY)
    flags = {"plugins": PLUGIN, "model_dir": model_dir, "task": task_path}
    flags |= {"output_dir": tmp_path / "runs", "hparams": json.dumps(HPARAMS)}
    command = ["run_finetuning.py", *(f"--{name}={value}" for name, value in flags.items())]
    command_support.run(*command)
    (folder,) = (tmp_path / "runs").glob("*/*/trial_0")
    result = json.loads((folder / "result.json").read_text())
    assert (result["kind"], result["hparams"]["margin"]) == ("choice", 0.5)
    assert result["scores"]["dev"]["accuracy"] > 80  # one in three by chance
    rows = read_predictions(folder / "predictions" / "dev.jsonl")
    # The exported run answers what it predicted.
    exported, records = tmp_path / "exported", pathlib.Path(task_path).with_name("dev.jsonl")
    export = ["export_savedmodel.py", f"--model_dir={folder}", f"--output_dir={exported}"]
    rejected = command_support.run(*export, status=1)
    assert "choice" in rejected.stderr
    command_support.run(*export, f"--plugins={PLUGIN}")
    asked = ["-m", "convbert.serving.predict", f"--model={exported}", f"--plugins={PLUGIN}"]
    answers = map(json.loads, command_support.run(*asked, f"--input={records}").stdout.splitlines())
    for answer, row in zip(answers, rows, strict=True):
        assert answer["prediction"] == row["prediction"]
