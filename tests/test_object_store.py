"""The commands on bucket://, an object store that runs as a plug-in of TensorFlow in each process.

Everything here needs g++, to compile the plug-in.
"""

from __future__ import annotations

import json
import pathlib
import shutil

import pytest

from tests.bucket_support import compiled, environment
from tests.build_support import content
from tests.command_support import Command
from tests.pretraining_support import HPARAMS, WORDS, assert_same_run, build_data

pytestmark = pytest.mark.slow  # a compiler, and a process for each command

FINETUNING = {
    "learning_rate": 1e-2,
    "num_train_epochs": 1,
    "train_batch_size": 8,
    "max_seq_length": 24,
    "iterations_per_loop": 2,
}


class Store:
    """The store and commands on it; `{}` in their arguments is the bucket's URL or its folder."""

    def __init__(self, folder: pathlib.Path, library: pathlib.Path):
        self.root, self.folder = folder, folder / "b"
        self.folder.mkdir(parents=True)
        self.environment = environment(library, folder)

    def command(self, *arguments: str, local: bool = False, full: str = "no object") -> Command:
        """Starts a command, on the bucket or on the local folder behind it.

        Objects whose path contains `full` cannot be written.
        """
        place = str(self.folder) if local else "bucket://b"
        filled = [argument.replace("{}", place) for argument in arguments]
        variables = {} if local else {**self.environment, "BUCKET_FULL": full}
        return Command(*filled, environment=variables)

    def run(self, *arguments: str, local: bool = False) -> str:
        """Runs a command; returns what it printed."""
        done = self.command(*arguments, local=local).finish()
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return compiled(tmp_path_factory.mktemp("plugin"))


@pytest.fixture(scope="module")
def store(library, tmp_path_factory):
    store = Store(tmp_path_factory.mktemp("store"), library)
    build_data(store.folder, "local", parts=2)
    (store.folder / "recipe.json").write_text(json.dumps(HPARAMS))
    task = store.folder / "task"
    task.mkdir()
    for split, count in (("train", 48), ("dev", 16), ("test", 8)):
        rows = [f"{('yes', 'no')[i % 2]}\t{WORDS[i]} {WORDS[i + 1]}" for i in range(count)]
        (task / f"{split}.tsv").write_text("\n".join(["label\ttext", *rows]) + "\n")
    declaration = {"kind": "classification", "columns": {"text_a": "text", "label": "label"}}
    declaration["files"] = {split: f"{split}.tsv" for split in ("train", "dev", "test")}
    (task / "task.json").write_text(json.dumps(declaration))
    return store


BUILD = [
    "build_pretraining_data.py",
    "--corpus={}/local_corpus",
    "--vocab={}/local_vocabulary",
    "--max_seq_length=32",
    "--heldout_fraction=0.1",
    "--num_shards=2",
]
PRETRAIN = ["run_pretraining.py", "--model_name=m", "--recipe={}/recipe.json", "--do_eval"]


@pytest.fixture(scope="module")
def data(store):
    """Data that was built in the bucket."""
    store.run(*BUILD, "--output_dir={}/data", "--num_processes=2")
    return store.folder / "data"


@pytest.fixture(scope="module")
def model(store, data):
    """A model that was pre-trained in the bucket, killed on its way."""
    started = store.command(*PRETRAIN, "--data_dir={}/data", "--model_dir={}/m")
    started.wait_until((store.folder / "m" / "checkpoints" / "model.ckpt-5.index").exists)
    started.kill()
    store.run(*PRETRAIN, "--data_dir={}/data", "--model_dir={}/m")
    return store.folder / "m"


def leftovers(folder: pathlib.Path) -> list[str]:
    """Names of locks, temporary files and unfinished uploads below a folder."""
    signs = (".lock", ".tmp-", ".upload", "_temp", "unfinished")
    return [name for name in content(folder) if any(sign in name for sign in signs)]


def test_data_and_model_are_those_of_local_folders(store, data, model):
    assert content(data) == content(store.folder / "local")
    store.run(*PRETRAIN, "--data_dir={}/local", "--model_dir={}/local_m", local=True)
    assert_same_run(model, store.folder / "local_m", 12)
    names = {name for name in content(store.folder / "local_m") if "tfevents" not in name}
    assert {name for name in content(model) if "tfevents" not in name} == names
    assert any("tfevents" in name for name in content(model))
    assert not leftovers(store.folder)
    said = store.run(*BUILD, "--output_dir={}/data")
    assert "is complete" in said


def test_fine_tuning_export_and_prediction(store, model):
    options = ["--model_dir={}/m", "--task={}/task/task.json", "--output_dir={}/out"]
    options += [f"--hparams={json.dumps(FINETUNING)}"]
    store.run("run_finetuning.py", *options)
    store.run("run_finetuning.py", *options)  # finished: what was encoded and found is read again
    for name in ("report.md", "*/*/*/predictions/test.jsonl"):
        assert list((store.folder / "out").glob(name)), name
    store.run("export_savedmodel.py", "--model_dir={}/out", "--output_dir={}/saved")
    asked = ["-m", "serving.predict", "--model={}/saved", "--input={}/task/test.tsv"]
    store.run(*asked, "--output={}/answers.jsonl")
    store.run(*asked, "--output={}/local.jsonl", local=True)
    answers = store.folder / "answers.jsonl"
    assert len(answers.read_text().splitlines()) == 8
    assert answers.read_bytes() == (store.folder / "local.jsonl").read_bytes()
    again = store.command(*asked, "--output={}/answers.jsonl").finish()
    assert "--overwrite" in error_line(again)
    assert not leftovers(store.folder)


def error_line(done) -> str:
    """The one line that a command which failed says."""
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    return line


@pytest.mark.parametrize(
    ("full", "command"),
    [
        ("pretrain_data.tfrecord-00001", [*BUILD, "--output_dir={}/full"]),
        ("full/checkpoints/", [*PRETRAIN, "--data_dir={}/data", "--model_dir={}/full"]),
        ("tfevents", [*PRETRAIN, "--data_dir={}/data", "--model_dir={}/full"]),
        ("saved_model.pb", ["export_savedmodel.py", "--model_dir={}/m", "--output_dir={}/full"]),
    ],
)
def test_a_quota_that_is_used_up(store, model, full, command):
    """One sentence; nothing that is taken for finished; with room again, the command finishes."""
    done = store.command(*command, full=full).finish()
    line = error_line(done)
    assert "bucket://b/full" in line
    assert "429" in line
    left = content(store.folder / "full")
    finished = {"manifest.json", "saved_model.pb", "config.json"}
    assert not finished & set(left) or "hparams.json" in left
    assert not [name for name in left if ".lock" in name or ".tmp-" in name]
    store.run(*command)
    shutil.rmtree(store.folder / "full")
