"""Folders with pipes for files, or whose configuration is of another network: errors at once."""

from __future__ import annotations

import shutil

import pytest

from convbert.checkpoints import model_directory
from convbert.finetune.load import load_fine_tuned
from convbert.pretrain.load import load_encoder
from tests.huggingface_support import change_json, copied, read, rejected
from tests.serving.support import fine_tuned, task

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
    fine_tuned(tmp_path, task("classification"))
    change_json(tmp_path / "config.json", intermediate_size=10**8)
    with rejected():
        load_fine_tuned(str(tmp_path))
