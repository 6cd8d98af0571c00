"""`python -m scoring`, and what it checks before TensorFlow is imported."""

import json
import time

import pytest

from errors import InputError
from scoring.models import method_of
from scoring.nbest import read_scores
from serving.description import sealed
from tests import command_support
from tests.serving.support import fine_tuned, pretrained, task


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scored")
    pretrained(folder, objective="self_critic")
    return folder


def command(*arguments, text=""):
    return command_support.run("-m", "scoring", *arguments, text=text)


@pytest.mark.slow  # a whole command
def test_every_line_has_its_score(model_dir, tmp_path):
    output = tmp_path / "scores.jsonl"
    lines = ["the city was born", "who?", "the city was born", "a\u2603 b"]
    done = command("--model", model_dir, "--output", output, text="\n".join(lines))
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    assert [row["id"] for row in rows] == ["0", "1", "2", "3"]
    assert [row["num_words"] for row in rows] == [4, 1, 4, 2]
    assert [row["text"] for row in rows] == lines
    assert read_scores(str(output))["who?"] == rows[1]["score"]
    assert all(row["score"] < 0 for row in rows)
    assert rows[0]["score"] == pytest.approx(rows[2]["score"], abs=1e-5)
    assert {row["method"] for row in rows} == {"self_critic"}
    assert "1 of them unknown" in done.stderr
    start = time.monotonic()
    again = command("--model", model_dir, "--output", output, text="the")
    assert again.returncode == 1
    assert "--overwrite" in again.stderr
    assert time.monotonic() - start < 30  # before anything is loaded
    assert len(output.read_text().splitlines()) == 4


@pytest.mark.slow  # loads a model to say so
def test_a_line_without_words_is_named(model_dir, tmp_path):
    output = tmp_path / "scores.jsonl"
    done = command("--model", model_dir, "--output", output, text="the\n\nwho\n")
    assert done.returncode == 1
    assert "standard input, line 2" in done.stderr
    assert not output.exists()


def test_what_cannot_score_is_rejected_early(model_dir, tmp_path):
    assert method_of(str(model_dir)) == "self_critic"
    assert method_of(str(model_dir), "pseudo_log_likelihood") == "pseudo_log_likelihood"
    with pytest.raises(InputError):
        method_of(str(model_dir), "causal")
    with pytest.raises(InputError):
        method_of(str(tmp_path))
    fine_tuned(tmp_path / "tuned", task("classification"), num_hidden_layers=1)
    with pytest.raises(InputError):
        method_of(str(tmp_path / "tuned"))
    saved = tmp_path / "saved"
    (saved / "assets.extra").mkdir(parents=True)
    (saved / "saved_model.pb").touch()
    description = {"kind": "x", "labels": [], "task": None, "signatures": {"embeddings": {}}}
    (saved / "assets.extra" / "model.json").write_text(json.dumps(sealed(description, "")))
    with pytest.raises(InputError):
        method_of(str(saved))
    description |= {"signatures": {"score": {}}, "scoring_method": "causal"}
    (saved / "assets.extra" / "model.json").write_text(json.dumps(sealed(description, "")))
    assert method_of(str(saved)) == "causal"
    with pytest.raises(InputError):
        method_of(str(saved), "self_critic")
