"""What evaluation says of the data it is given: whether the model was trained on it."""

from __future__ import annotations

import pytest

from common.files import write_json
from data.manifest import settings_digest
from pretrain.evaluation import describe_data


@pytest.fixture
def folders(tmp_path):
    """Three data folders, "again" of the corpus of "own", and a model trained on "own"."""
    for name, corpus, seed in (("own", "a", 0), ("again", "a", 1), ("other", "b", 0)):
        (tmp_path / name).mkdir()
        content = {"settings": {"corpus_digest": corpus, "seed": seed}}
        write_json(str(tmp_path / name / "manifest.json"), content)
    (tmp_path / "electra").mkdir()
    trained_on = {"corpus_digest": "a", "seed": 0}
    record = {
        "hparams": {"data": settings_digest({"settings": trained_on})},
        "run_settings": {"data_dir": str(tmp_path / "own")},
    }
    return tmp_path, record


def described(folders, name):
    folder, record = folders
    write_json(str(folder / "hparams.json"), record)
    return describe_data(str(folder / name), str(folder))


def test_data_of_the_same_corpus_may_have_been_trained_on(folders, capsys):
    assert "own data" in described(folders, "own")
    for name in ("other", "electra"):
        assert described(folders, name) == "other data than the model's own"
    assert capsys.readouterr().err == ""
    described(folders, "again")
    assert str(folders[0] / "again") in capsys.readouterr().err
