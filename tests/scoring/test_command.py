"""`python -m scoring`, and what it checks before TensorFlow is imported."""

import json

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
    again = command("--model", model_dir, "--output", output, text="the")
    assert again.returncode == 1
    assert "--overwrite" in again.stderr


def test_what_cannot_score_is_rejected_early(model_dir, tmp_path):
    assert method_of(str(model_dir)) == "self_critic"
    assert method_of(str(model_dir), "pseudo_log_likelihood") == "pseudo_log_likelihood"
    fine_tuned(tmp_path / "tuned", task("classification"), num_hidden_layers=1)
    description = {"kind": "x", "labels": [], "task": None, "scoring_method": "causal"}
    for name in ("embeddings", "score"):
        extra = tmp_path / name / "assets.extra"
        extra.mkdir(parents=True)
        (tmp_path / name / "saved_model.pb").touch()
        exported = sealed({**description, "signatures": {name: {}}}, "")
        (extra / "model.json").write_text(json.dumps(exported))
    assert method_of(str(tmp_path / "score")) == "causal"
    for folder, method in (
        *((model_dir, "causal"), (tmp_path / "score", "self_critic")),
        *((tmp_path / name, None) for name in ("", "tuned", "embeddings")),
    ):
        with pytest.raises(InputError):
            method_of(str(folder), method)
