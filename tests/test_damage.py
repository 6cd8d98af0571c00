"""Random damage to every file that the project writes: it is named, or answers stay the same.

    DAMAGES=300 python -m pytest -m slow -s tests/test_damage.py

Files without a digest, as JSON that people edit, may become other valid ones: they are counted.
"""

import collections
import gc
import os
import pathlib
import shutil
import tempfile

import numpy as np
import pandas as pd
import pytest

import convbert
from convbert.checkpoints.formats import from_elsewhere, to_elsewhere
from convbert.checkpoints.model_directory import Options
from convbert.common.errors import CommandError
from convbert.common.machine import peak_memory_gib
from convbert.data import input_pipeline
from convbert.pretrain.load import data_vocabulary
from convbert.serving.export import export, export_litert
from convbert.serving.load import load_model_directory
from convbert.training.tracing import temporary_graphs
from tests.build_support import content, read_split
from tests.damage_support import random_draw
from tests.pretraining_support import build_data, run

DAMAGES = int(os.environ.get("DAMAGES", "24"))
FOREIGN = {"huggingface": (".safetensors", ".txt"), "tf1": (".txt",)}  # more such files
TEXTS = ["w1 w2 w3", "w4 w5 w60 w7", ""]


def flip(data, draw, others):
    place = draw.randrange(len(data))
    return data[:place] + bytes([data[place] ^ 1 << draw.randrange(8)]) + data[place + 1 :]


DAMAGE = {
    "flip": flip,
    "cut": lambda data, draw, _: data[: draw.randrange(len(data))],
    "empty": lambda *_: b"",
    "swap": lambda _, draw, others: draw.choice(others),
}


def embedded(folder):
    path = folder / "model.tflite"
    return convbert.load(path if path.exists() else folder).embed(TEXTS)


def classified(folder):
    return np.stack([row.probabilities for row in convbert.load(folder).predict(TEXTS)])


def converted(source):
    """Returns a reader of a foreign folder: the vectors of what it is converted to."""

    def read(folder):
        with tempfile.TemporaryDirectory() as output:
            from_elsewhere(source, str(folder), f"{output}/model", Options())
            return embedded(pathlib.Path(output) / "model")

    return read


def records(folder):
    data_vocabulary(str(folder))
    found = []
    for split in ("train", "heldout"):
        with input_pipeline.clear_read_errors(input_pipeline.record_files(str(folder), split)):
            found.append(read_split(folder, split)["input_ids"])
    return np.concatenate(found)


@pytest.fixture(scope="module")
def artefacts(tmp_path_factory):
    """Name -> folder, and what a user reads from it."""
    folder = tmp_path_factory.mktemp("artefacts")
    data = build_data(folder, num_shards=2)
    hparams = {"objective": "masked_lm", "num_train_steps": 4, "save_checkpoints_steps": 4}
    run(data, folder / "model", hparams)
    model = load_model_directory(str(folder / "model"))
    export(model, str(folder / "saved"), "run")
    export_litert(model, str(folder / "litert"), "run")
    for target in FOREIGN:
        to_elsewhere(target, str(folder / "model"), str(folder / target))
    frame = pd.DataFrame({"text": ["w1 w2", "w3"] * 8, "label": ["a", "b"] * 8})
    tuned = {"output_dir": folder / "runs", "hparams": {"max_seq_length": 16}}
    convbert.fine_tune(folder / "model", frame, frame, **tuned)
    (run_folder,) = (folder / "runs").glob("**/checkpoints")
    return {
        "fine-tuned model": (run_folder.parent, classified),
        **{source: (folder / source, converted(source)) for source in FOREIGN},
        "data": (folder / "data", records),
        "model directory": (folder / "model", embedded),
        "SavedModel": (folder / "saved", embedded),
        "LiteRT": (folder / "litert", embedded),
    }


@pytest.mark.slow  # needs three minutes
def test_damage_is_named_or_harmless(artefacts, tmp_path):
    draw, table = random_draw(), collections.Counter()
    expected = {name: read(folder) for name, (folder, read) in artefacts.items()}
    for number in range(DAMAGES):
        before = peak_memory_gib()
        name = [*artefacts][number % len(artefacts)]
        source, read = artefacts[name]
        copy = tmp_path / f"copy{number}"
        shutil.copytree(source, copy)
        files = {n: data for n, data in content(copy).items() if data and ".lock" not in n}
        file, damage = draw.choice([*files]), draw.choice(["flip", *DAMAGE])
        others = [data for data in files.values() if data != files[file]] or [b"other"]
        (copy / file).write_bytes(DAMAGE[damage](files[file], draw, others))
        what = f"{number}: {damage} of {name}/{file}"
        try:
            with temporary_graphs():
                found = read(copy)
        except CommandError as error:
            outcome = "named" if str(copy) in str(error) else f"not named: {error}"
        else:
            same = found.shape == expected[name].shape and np.array_equal(found, expected[name])
            assert same or file.endswith((".json", ".jsonl", *FOREIGN.get(name, ()))), what
            outcome = "harmless" if same else "a valid edit"
        assert not outcome.startswith("not named"), (what, outcome)
        table[name, outcome] += 1
        print(f"{outcome}: {what}")
        shutil.rmtree(copy)
        gc.collect()  # the graphs refer to themselves
        assert peak_memory_gib() - before < 0.5, what
    for (name, outcome), count in sorted(table.items()):
        print(f"| {name} | {outcome} | {count} |")
