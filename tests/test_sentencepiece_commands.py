"""The commands after pre-training, with a SentencePiece vocabulary."""

import json

import pytest

from convbert.data.vocabulary import Vocabulary
from tests.command_support import run as forked
from tests.finetune.kinds_support import model_directory
from tests.sentencepiece_support import comma_model, sentences


@pytest.mark.slow  # three commands
def test_from_a_model_to_answers(tmp_path):
    """README's commands begin with a text."""
    words = Vocabulary.of_model(comma_model())
    model = model_directory(tmp_path / "model", words, type_vocab_size=3, summary_last=True)
    task = {"kind": "classification", "columns": {"text_a": "text", "label": "label"}}
    task["files"] = {"train": "rows.jsonl", "dev": "rows.jsonl"}
    rows = [{"text": text, "label": "ab"[n % 2]} for n, text in enumerate(sentences(40))]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "own.json").write_text(json.dumps(task))
    hparams, saved = json.dumps({"num_train_epochs": 1, "max_seq_length": 24}), tmp_path / "saved"
    for command in (
        ["run_finetuning.py", "--model_dir", model, "--task", tmp_path / "own.json",
         "--num_trials=1", "--output_dir", tmp_path / "out", "--hparams", hparams],
        ["export_savedmodel.py", "--model_dir", tmp_path / "out/own", "--output_dir", saved],
    ):  # fmt: skip
        done = forked(*command)
        assert done.returncode == 0, done.stderr
    (run,) = (tmp_path / "out/own").glob("*/trial_0")
    for folder in (run, saved / "assets"):
        assert (folder / "spiece.model").read_bytes() == words.model
        assert not (folder / "vocab.txt").exists()
    asked = forked(
        "-m", "convbert.serving.predict", "--model", saved, text="the river, in 1,234, runs\n"
    )
    assert json.loads(asked.stdout)["prediction"] in ("a", "b"), asked.stderr
