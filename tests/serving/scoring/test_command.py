"""`python -m serving.scoring`."""

import json

import pytest

import convbert
from common.errors import InputError
from serving.scoring.nbest import read_scores
from tests import command_support
from tests.serving.support import fine_tuned, pretrained, task


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scored")
    pretrained(folder, objective="self_critic")
    return folder


def command(*arguments, text=""):
    return command_support.run("-m", "serving.scoring", *arguments, text=text)


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
    assert "1 unknown" in done.stderr
    again = command("--model", model_dir, "--output", output, text="the")
    assert again.returncode == 1
    assert "--overwrite" in again.stderr


def test_what_cannot_score_is_rejected(model_dir, tmp_path):
    fine_tuned(tmp_path / "tuned", task("classification"), num_hidden_layers=1)
    for folder, method in ((model_dir, "causal"), (tmp_path / "tuned", None), (tmp_path, None)):
        with pytest.raises(InputError):
            convbert.load(folder, scoring_method=method).client("score")


@pytest.mark.slow  # a whole command
def test_a_sentence_of_no_pieces_is_named(model_dir):
    done = command("--model", model_dir, text="the\n\nwho?")
    assert done.returncode == 1
    assert "standard input, line 2" in done.stderr
