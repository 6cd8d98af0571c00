"""Slow: ConvBERT-small as published, all twelve layers, through the real command."""

import json

import numpy as np
import pytest

from tests import command_support
from training.monitoring import read_metrics


@pytest.mark.slow  # needs 4 GiB of memory and about two minutes on two cores
def test_convbert_small_trains(tmp_path):
    """20 steps at batch 8 and length 128: the loss is finite and falls."""
    rng = np.random.default_rng(0)
    words = [f"word{i}" for i in range(300)]
    documents = ["\n".join(" ".join(rng.choice(words, 30)) for _ in range(12)) for _ in range(60)]
    (tmp_path / "corpus.txt").write_text("\n\n".join(documents))
    builder = ["build_pretraining_data.py", f"--corpus={tmp_path}/corpus.txt", "--vocab_size=600"]
    hparams = {
        "model_size": "small",
        "train_batch_size": 8,
        "num_train_steps": 20,
        "num_warmup_steps": 5,
        "iterations_per_loop": 5,
    }
    trainer = ["run_pretraining.py", f"--data_dir={tmp_path}/data", "--model_name=small"]
    for command in (
        [*builder, f"--output_dir={tmp_path}/data"],
        [*trainer, f"--hparams={json.dumps(hparams)}"],
    ):
        done = command_support.run(*command)
        assert done.returncode == 0, done.stderr
    losses = [row["loss"] for row in read_metrics(str(tmp_path / "data" / "models" / "small"))]
    assert len(losses) == 4
    assert np.isfinite(losses).all()
    assert losses[-1] < losses[0]
