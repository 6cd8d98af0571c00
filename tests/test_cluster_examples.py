"""The SLURM script and the Kubernetes manifest of examples/cluster, as far as loopback allows."""

import json
import os
import pathlib
import subprocess

import pytest
import yaml

import stopping
from tests.pretraining_support import HPARAMS, build_data, metrics
from training.launch import free_ports

ROOT = pathlib.Path(stopping.__file__).parent
FOLDER = ROOT / "examples" / "cluster"
# Two tasks on this machine, with the variables that SLURM gives them.
SRUN = """#!/bin/sh
echo "$@" >> $CALLS
while [ "${1#--}" != "$1" ]; do shift; done
export SLURM_JOB_ID=$JOB SLURM_STEP_NODELIST=localhost SLURM_STEP_TASKS_PER_NODE=2
export SLURM_STEP_NUM_TASKS=2
SLURM_PROCID=1 "$@" & other=$!
SLURM_PROCID=0 "$@"; first=$?
wait $other; second=$?
exit $((first > second ? first : second))
"""


@pytest.fixture
def slurm(tmp_path):
    """Runs the script; returns what it ended with and how often it called srun."""

    def run(**environment):
        (tmp_path / "srun").write_text(SRUN)
        (tmp_path / "srun").chmod(0o755)
        (tmp_path / "calls").write_text("")
        environment = {k: str(v) for k, v in environment.items()}
        environment |= {"PATH": f"{tmp_path}:{os.environ['PATH']}", "CALLS": f"{tmp_path}/calls"}
        environment |= {"JOB": str(free_ports(1)[0]), "SLURM_SUBMIT_DIR": str(ROOT)}
        command = ["bash", str(FOLDER / "slurm.sh")]
        environment = {**os.environ, "MODEL_NAME": "m", "DATA": "d", **environment}
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        return done, (tmp_path / "calls").read_text().splitlines()

    return run


@pytest.mark.slow  # imports TensorFlow twice, beside each other, and trains
def test_the_slurm_script_trains(slurm, tmp_path):
    data = build_data(tmp_path, "data")
    (tmp_path / "recipe.json").write_text(json.dumps(HPARAMS))
    done, called = slurm(DATA=data, RECIPE=tmp_path / "recipe.json")
    assert done.returncode == 0, done.stderr
    assert len(called) == 1
    assert metrics(f"{data}/models/m")[-1]["step"] == HPARAMS["num_train_steps"]


def manifest() -> tuple[dict, dict]:
    """The service and the job."""
    documents = yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text())
    found = {document["kind"]: document for document in documents}
    return found["Service"], found["Job"]


@pytest.mark.slow  # imports TensorFlow twice, beside each other, and trains
def test_the_command_of_the_manifest_trains(tmp_path):
    data = build_data(tmp_path, "data")
    (tmp_path / "recipe.json").write_text(json.dumps(HPARAMS))
    container = manifest()[1]["spec"]["template"]["spec"]["containers"][0]
    environment = {entry["name"]: entry["value"] for entry in container["env"]}
    environment |= {"ADDRESS": f"127.0.0.1:{free_ports(1)[0] // 10}%g", "DATA": data}
    environment["RECIPE"] = str(tmp_path / "recipe.json")
    processes = [
        subprocess.Popen(
            [*container["command"], *container["args"]],
            env={**os.environ, **environment, "JOB_COMPLETION_INDEX": str(index)},
            cwd=ROOT,
        )
        for index in range(int(environment["WORKERS"]))
    ]
    try:
        assert [process.wait(timeout=900) for process in processes] == [0, 0]
    finally:
        for process in processes:
            process.kill()
    assert metrics(f"{data}/models/mine")[-1]["step"] == HPARAMS["num_train_steps"]
