"""What can be seen to be wrong without TensorFlow is said before it is imported."""

import json
import pathlib
import subprocess
import sys
from importlib.util import find_spec

import pytest

ROOT = pathlib.Path(__file__).parent.parent
# Runs a command and says whether it imported TensorFlow.
RUN = """
import runpy, sys
sys.argv = sys.argv[1:]
try:
    if sys.argv[0] == "-m":
        module = sys.argv[1]
        sys.argv = sys.argv[1:]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(sys.argv[0], run_name="__main__")
except SystemExit as end:
    print(end.code, "tensorflow" in sys.modules, "numpy" in sys.modules)
"""
VOCABULARY = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A data folder, a model directory and a task, as far as they are looked at early."""
    from model import EncoderConfig

    folder = tmp_path_factory.mktemp("early")
    for name in ("data", "model"):
        (folder / name).mkdir()
        (folder / name / "vocab.txt").write_text(VOCABULARY)
    EncoderConfig(vocab_size=7).save(str(folder / "model"))
    task = {"kind": "classification", "files": {"train": "train.csv", "dev": "dev.csv"}}
    task["columns"] = {"text_a": "text", "label": "label"}
    (folder / "task").mkdir()
    (folder / "task" / "task.json").write_text(json.dumps(task))
    for split in ("train", "dev"):
        (folder / "task" / f"{split}.csv").write_text("text,label\na,yes\nb,no\n")
    return folder


BUILD = ["build_pretraining_data.py", "--corpus={}/data", "--output_dir={}/out"]
WITHOUT_BEAM = pytest.mark.skipif(bool(find_spec("apache_beam")), reason="Apache Beam is installed")
PRETRAIN = ["run_pretraining.py", "--data_dir={}/data", "--model_name=m"]
FINETUNE = ["run_finetuning.py", "--model_dir={}/model", "--task={}/task/task.json"]


@pytest.mark.parametrize(
    ("command", "named"),
    [
        (["run_pretraining.py", "--data_dir={}/none", "--model_name=m"], "none"),
        ([*PRETRAIN, '--hparams={{"learning_rat": 1}}'], "`learning_rate`"),
        ([*PRETRAIN, "--plugins={}/none.py"], "none.py"),
        ([*PRETRAIN, "--recipe={}/none.json"], "none.json"),
        ([*PRETRAIN, "--strategy=mirrored:0"], "mirrored:0"),
        ([*PRETRAIN, "--tpu=local"], "--tpu"),
        ([*FINETUNE, '--hparams={{"learning_rat": 1}}'], "`learning_rate`"),
        (["run_finetuning.py", "--model_dir={}/none", "--task=cola"], "none"),
        ([*FINETUNE[:2], "--task=cola", "--data_dir={}"], "train.tsv"),
        (["build_pretraining_data.py", "--corpus={}/none", "--output_dir={}/out"], "none"),
        (["build_pretraining_data.py", "--output_dir={}/out"], "--corpus"),
        (
            ["build_pretraining_data.py", "--corpus={}", "--output_dir={}/out", "--num_shards=0"],
            "num_shards",
        ),
        ([*BUILD, "stray"], "'stray'"),
        ([*BUILD, "--runner=beam", "--num_processes=2"], "--num_processes"),
        pytest.param([*BUILD, "--runner=beam"], "requirements-beam.txt", marks=WITHOUT_BEAM),
        (["-m", "checkpoints.convert", "--source=tf1", "--input={}/none", "--output={}/o"], "none"),
        (["export_savedmodel.py", "--model_dir={}/none", "--output_dir={}/o"], "none"),
        (["-m", "serving.predict", "--model={}/none", "--input={}/task/dev.csv"], "none"),
    ],
    ids=lambda value: value if isinstance(value, str) else value[0].lstrip("-") or value[1],
)
def test_an_error_comes_before_tensorflow(folder, command, named):
    before = sorted(folder.rglob("*"))
    command = [part.format(folder, folder) for part in command]
    done = subprocess.run(
        [sys.executable, "-c", RUN, *command], cwd=ROOT, capture_output=True, text=True
    )
    assert done.stdout.split()[:2] == ["1", "False"], done.stderr
    last = done.stderr.splitlines()[-1]  # there may be a progress bar before it
    assert last.startswith("error: ")
    assert named in last
    assert sorted(folder.rglob("*")) == before
