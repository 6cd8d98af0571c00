"""What evaluation says of the data it is given: whether the model was trained on it."""

from __future__ import annotations

import pytest

from data.manifest import settings_digest
from files import write_json
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
    assert described(folders, "other") == "which the model was not trained on"
    assert capsys.readouterr().err == ""
    assert described(folders, "again") == "of the corpus that the model was trained on"
    (warning,) = capsys.readouterr().err.splitlines()
    assert warning.startswith(f"warning: {folders[0] / 'again'} ")


def test_where_the_own_data_is_gone_nothing_is_claimed(folders):
    assert "not known" in described(folders, "electra")
    content = {"settings": {"corpus_digest": "c", "seed": 0}}
    write_json(str(folders[0] / "own" / "manifest.json"), content)  # built again since
    assert "not known" in described(folders, "other")
    (folders[0] / "own" / "manifest.json").unlink()
    assert "not known" in described(folders, "other")
    folders[1]["run_settings"]["data_dir"] = None
    assert "not known" in described(folders, "again")


def test_of_a_continued_model_the_last_run_is_known(folders):
    folders[1]["run_settings"]["continue_from"] = "another"
    assert described(folders, "other") == "which its last run was not trained on"
