"""What earlier commits wrote still loads, resumes and answers with equal numbers.

tests/fixtures/make_model_directories.py says what the archive holds and which commit wrote it.
"""

import json
import pathlib
import shutil
import tarfile

import numpy as np
import pytest

from pretrain.load import load_encoder
from tests import command_support

ARCHIVE = pathlib.Path(__file__).parent / "fixtures" / "model_directories.tar.gz"


@pytest.fixture(scope="module")
def earlier(tmp_path_factory):
    """The unpacked archive, and what it expects."""
    folder = tmp_path_factory.mktemp("earlier")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder, json.loads((folder / "expected.json").read_text())


def sequence(model_dir):
    """[S, D] of the first of two sequences of fixed ids."""
    ids = np.arange(24).reshape(2, 12) % 40 + 2
    mask = np.ones([2, 12], np.int32)
    mask[1, 7:] = 0
    features = {"input_ids": ids, "input_mask": mask, "segment_ids": 0 * ids}
    return load_encoder(str(model_dir))(features).sequence[0]


def test_every_encoder_computes_what_it_did(earlier):
    folder, expected = earlier
    assert len(expected["encoders"]) == 10
    for name, values in expected["encoders"].items():
        np.testing.assert_allclose(sequence(folder / name), values, atol=2e-5, err_msg=name)


def command(*arguments, **options):
    done = command_support.run(*arguments, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def assert_same(now, before, tolerance=1e-4):
    """Equal but for the rounding of floats; what has come since is not looked at."""
    if isinstance(before, dict):
        assert set(before) <= set(now)
        for key, value in before.items():
            assert_same(now[key], value, tolerance)
    elif isinstance(before, list):
        assert len(now) == len(before)
        for one, other in zip(now, before):
            assert_same(one, other, tolerance)
    elif isinstance(before, float):
        assert now == pytest.approx(before, rel=tolerance, abs=tolerance)
    else:
        assert now == before


def json_lines(text):
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.slow  # needs a minute: four runs
@pytest.mark.parametrize("name", ["convbert", "electra", "bert", "ale"])
def test_a_run_resumes(earlier, tmp_path, name):
    """Saved at step 4 of 8, with the JSON it was begun with."""
    folder, expected = earlier
    model = shutil.copytree(folder / "pretrained" / name, tmp_path / name)
    wanted = expected["pretrained"][name]
    flags = [f"--data_dir={folder}/data", f"--model_name={name}", f"--model_dir={model}"]
    command("run_pretraining.py", *flags, f"--hparams={json.dumps(wanted['hparams'])}", "--do_eval")
    rows = json_lines((model / "metrics.jsonl").read_text())
    assert_same([row for row in rows if row["step"] > 4], wanted["rows_after_resuming"])
    np.testing.assert_allclose(sequence(model), expected["whole"][f"whole/{name}"], atol=1e-4)


@pytest.mark.slow  # needs half a minute: one command per kind of task
def test_fine_tuned_runs_are_measured_again(earlier):
    """Task, hyper-parameters and weights are read; scores and predictions are those of before."""
    folder, expected = earlier
    for name, scores in expected["finetuned"].items():
        task, run = name.split("/")[0], folder / "finetuned" / name
        paths = sorted((run / "predictions").glob("dev.jsonl"))
        before = {path: json_lines(path.read_text()) for path in paths}
        command(
            "run_finetuning.py",
            f"--model_dir={folder}/pretrained/convbert",
            f"--task={folder}/tasks/{task}.json",
            f"--output_dir={folder}/finetuned",
            f"--hparams={json.dumps(expected['finetuning_hparams'])}",
            "--nodo_train",
        )
        assert_same(json.loads((run / "result.json").read_text())["scores"], scores)
        assert before
        for path, rows in before.items():
            assert_same(json_lines(path.read_text()), rows)


@pytest.mark.slow  # needs half a minute: SavedModels, asked and exported again
@pytest.mark.parametrize(
    ("name", "model"),
    [("pretrained", "pretrained/convbert"), ("classification", "finetuned/classification")],
)
def test_exported_models_answer(earlier, tmp_path, name, model):
    """The SavedModel of before, and one exported now from the same directory."""
    folder, expected = earlier
    rows = [{"text": text, "text_pair": "w1"} for text in expected["texts"]]
    rows = "".join(json.dumps(row) + "\n" for row in rows)
    again = tmp_path / "again"
    command("export_savedmodel.py", f"--model_dir={folder / model}", f"--output_dir={again}")
    for saved in (folder / "exported" / name, again):
        printed = command("-m", "serving.predict", f"--model={saved}", text=rows)
        assert_same(json_lines(printed), expected["exported"][name])
