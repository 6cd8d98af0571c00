"""Pre-training that is killed and started again, objective by objective."""

import pytest

from tests.command_support import Command
from tests.pretraining_support import HPARAMS, arguments, assert_same_run, build_data, metrics, run

CAUSAL = {"model_hparam_overrides": {**HPARAMS["model_hparam_overrides"], "causal": True}}
XLNET = {
    **{"model_size": "xlnet-tiny", "memory_length": 40},
    "model_hparam_overrides": {
        name: value
        for name, value in HPARAMS["model_hparam_overrides"].items()
        if name != "embedding_size"
    },
}
STREAMS = {"example_layout": "ordered", "parts": 4, "num_shards": 4}
OBJECTIVES = {
    "self_critic": ({}, {}),
    "causal_lm": (CAUSAL, {"example_layout": "contiguous"}),
    "permutation_lm": (XLNET, STREAMS),
}


@pytest.mark.slow  # needs a minute each: three commands
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_it_ends_with_the_same_weights(objective, tmp_path):
    """SIGKILL after step 12; the same command goes on."""
    changes, options = OBJECTIVES[objective]
    hparams = {"objective": objective, "num_train_steps": 40, "iterations_per_loop": 2, **changes}
    data = build_data(tmp_path, **options)
    run(data, tmp_path / "whole", hparams)
    line = arguments(data, tmp_path / "killed", hparams)
    killed = Command("run_pretraining.py", *line)
    killed.wait_until(lambda: any(row["step"] >= 12 for row in metrics(tmp_path / "killed")))
    killed.kill()
    done = Command("run_pretraining.py", *line).finish()
    assert done.returncode == 0, done.stderr
    assert "resuming from step" in done.stderr
    assert_same_run(tmp_path / "killed", tmp_path / "whole", 40)
