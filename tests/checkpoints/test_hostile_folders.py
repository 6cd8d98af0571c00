"""Folders with pipes for files, or whose configuration is of another network: errors at once."""

from __future__ import annotations

import os
import shutil

import pytest

from checkpoints import model_directory
from common import files
from data.vocabulary import Vocabulary
from finetune.load import load_fine_tuned
from pretrain.load import load_encoder, load_objective
from tests.checkpoints.task_head_support import folder_of
from tests.huggingface_support import WEIGHTS, change_json, copied, read, rejected

SIZES = {
    "hidden_size": 10**7,
    "max_position_embeddings": 10**10,
    "vocab_size": 10**25,
    "num_hidden_layers": 10**6,
}


@pytest.mark.parametrize("field", SIZES)
def test_sizes(field, folders, tmp_path):
    theirs, ours = copied("convbert", tmp_path), tmp_path / "model"
    shutil.copytree(folders("convbert")[1], ours)
    for folder, loads in ((theirs, [read]), (ours, [load_encoder, model_directory.load])):
        change_json(folder / "config.json", **{field: SIZES[field]})
        for load in loads:
            with rejected():
                load(str(folder))


def test_sizes_of_a_fine_tuned_model(tmp_path):
    folder_of(tmp_path / "run", "convbert labels")
    change_json(tmp_path / "run" / "config.json", intermediate_size=10**8)
    with rejected():
        load_fine_tuned(str(tmp_path / "run"))


@pytest.mark.parametrize("name", ["config.json", "vocab.txt", "tokenizer.json", WEIGHTS])
def test_pipes_and_devices(name, tmp_path):
    path = copied("bert", tmp_path) / name
    options = {"vocab": str(path)} if name == "vocab.txt" else {}
    for make in (os.mkfifo, lambda path: path.symlink_to("/dev/zero")):
        path.unlink(missing_ok=True)
        make(path)
        with rejected(name):
            read(path.parent, **options)


@pytest.mark.parametrize("part", ["index", "data-00000-of-00001"])
def test_a_checkpoint_that_is_a_pipe(part, folders, tmp_path):
    shutil.copytree(folders("convbert")[1], tmp_path / "model")
    (path,) = (tmp_path / "model" / "checkpoints").glob(f"*.{part}")
    path.unlink()
    os.mkfifo(path)
    with rejected(path.name):
        load_objective(str(tmp_path / "model"))


def test_implausible_files(tmp_path):
    path = tmp_path / "vocab.txt"
    with open(path, "wb") as file:
        file.truncate(files.LARGEST + 1)
    for load in (Vocabulary.load, files.read_json):
        with rejected():
            load(str(path))
    path.write_text("[" * 200_000)
    with rejected():
        files.read_json(str(path))
