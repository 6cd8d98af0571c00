"""The commands, one after the other, with a SentencePiece vocabulary."""

import json

import pytest

from data.vocabulary import Vocabulary
from tests.command_support import run as forked
from tests.sentencepiece_support import sentences

TINY = {
    "model_size": "convbert-tiny",
    "objective": "masked_lm",
    "model_hparam_overrides": {"hidden_size": 32, "embedding_size": 16, "num_hidden_layers": 1},
    "max_seq_length": 32,
    "train_batch_size": 4,
    "num_train_steps": 4,
    "num_warmup_steps": 1,
    "num_eval_steps": 2,
}


@pytest.mark.slow  # five commands
def test_from_text_to_answers(tmp_path):
    documents = ["\n".join(sentences(9, seed)) for seed in range(40)]
    (tmp_path / "text.txt").write_text("\n\n".join(documents), encoding="utf-8")
    build = ["build_pretraining_data.py", "--corpus", tmp_path / "text.txt", "--max_seq_length=32"]
    build += ["--output_dir", tmp_path / "data", "--heldout_fraction=0.2"]
    rows = [
        json.dumps({"text": text, "label": "ab"[n % 2]}) for n, text in enumerate(sentences(40))
    ]
    task = {"kind": "classification", "labels": ["a", "b"], "name": "own"}
    task["columns"] = {"text_a": "text", "label": "label"}
    task["files"] = {"train": "rows.jsonl", "dev": "rows.jsonl"}
    (tmp_path / "rows.jsonl").write_text("\n".join(rows))
    (tmp_path / "own.json").write_text(json.dumps(task))
    model, saved = tmp_path / "data/models/mine", tmp_path / "saved"
    hparams = json.dumps({"num_train_epochs": 1, "max_seq_length": 32})
    for command in (
        [*build, "--tokenizer=sentencepiece", "--vocab_size=300"],
        ["run_pretraining.py", "--data_dir", tmp_path / "data", "--model_name=mine", "--do_eval",
         "--hparams", json.dumps(TINY)],
        ["run_finetuning.py", "--model_dir", model, "--task", tmp_path / "own.json",
         "--num_trials=1", "--output_dir", tmp_path / "out", "--hparams", hparams],
        ["export_savedmodel.py", "--model_dir", tmp_path / "out/own", "--output_dir", saved],
    ):  # fmt: skip
        done = forked(*command)
        assert done.returncode == 0, done.stderr
    words = Vocabulary.load(tmp_path / "data")
    (run,) = (tmp_path / "out/own").glob("*/trial_0")
    for folder in (model, run, saved / "assets"):
        assert (folder / "spiece.model").read_bytes() == words.model
        assert not (folder / "vocab.txt").exists()
    assert json.loads((model / "config.json").read_text())["summary_last"] is True
    asked = forked("-m", "serving.predict", "--model", saved, text="the river, in 1,234, runs\n")
    assert asked.returncode == 0, asked.stderr
    assert json.loads(asked.stdout)["prediction"] in ("a", "b")
