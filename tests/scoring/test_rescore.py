"""The command, with a scorer of the tests and with scores in a file."""

import json
import pathlib

import pytest

from tests.command_support import run

PLUGIN = pathlib.Path(__file__).parent / "scorer_plugin.py"
# The recogniser prefers longer hypotheses than were said, the scorer shorter ones.
DEV = {
    "d-1": {
        "ref": "a b c",
        "hyp_1": {"score": -1.0, "text": "a b c d"},
        "hyp_2": {"score": -2.0, "text": "a b c"},
        "hyp_3": {"score": -3.5, "text": "a b"},
    },
    "d-2": {
        "ref": "e f",
        "hyp_1": {"score": -1.0, "text": "e f g"},
        "hyp_2": {"score": -1.5, "text": "e f"},
        "hyp_3": {"score": -3.0, "text": "f"},
    },
}
# utterance, score, hypothesis, reference
TEST = """t-1\t-1\ti j k l\ti j k
t-1\t-1.9\ti j k\ti j k
t-2\t-1\tm n\tm n
t-2\t-1.5\tm\tm n
"""


@pytest.fixture
def files(tmp_path):
    (tmp_path / "dev.json").write_text(json.dumps(DEV))
    (tmp_path / "test.tsv").write_text(TEST)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "hparams.json").write_text('{"hparams": {"objective": "masked_lm"}}')
    return tmp_path


def rescore(files, *arguments, output="out"):
    lists = [f"--dev={files}/dev.json", f"--test={files}/test.tsv"]
    fixed = [*lists, f"--output_dir={files}/{output}", "--resamples=200"]
    done = run("-m", "scoring.rescore", *fixed, *arguments)
    assert done.returncode == 0, done.stderr
    return done, json.loads((files / output / "report.json").read_text())


def test_the_weight_of_the_dev_lists_is_applied_to_the_test_lists(files):
    model = [f"--plugins={PLUGIN}", f"--model={files}/mine"]
    done, report = rescore(files, *model, "--lambdas=0:3:0.5")
    assert report["dev"]["one_best"]["wer"] == pytest.approx(40)  # 2 insertions of 5 words
    assert report["test"]["one_best"]["wer"] == pytest.approx(20)
    assert report["dev"]["oracle"]["wer"] == report["test"]["oracle"]["wer"] == 0
    mine = report["systems"]["mine"]
    # At 0.5 two scores of d-2 are equal, at 1 two of d-1, and each time the first is too long; at
    # 1.5 two are equal again, of both, and the first is right; beyond, the shortest are taken.
    assert mine["curves"]["dev"] == pytest.approx([40, 40, 20, 0, 40, 40, 40], abs=1e-9)
    assert mine["lambda"] == 1.5
    # Of t-2 the shorter text has the higher score then: one deletion.
    assert mine["test"] == {
        "wer": 20.0, "errors": 1, "substitutions": 0, "deletions": 1, "insertions": 0
    }  # fmt: skip
    assert mine["improvement"]["points"] == 0
    assert mine["improvement"]["interval"][0] < 0 < mine["improvement"]["interval"][1]
    assert mine["seconds_per_1000"] >= 0
    assert (files / "out" / "wer.png").read_bytes().startswith(b"\x89PNG")
    for row in ("1-best", "mine", "oracle"):
        assert row in done.stdout
        assert row in (files / "out" / "report.md").read_text()

    # Another grid opens no model; another model of the same scores joins.
    (files / "mine" / "calls.txt").unlink()
    kept = files / "out" / "mine.pseudo_log_likelihood.scores.jsonl"
    (files / "copied.scores.jsonl").write_bytes(kept.read_bytes())
    copied = f"--scores={files}/copied.scores.jsonl"
    done, report = rescore(files, *model, copied, "--lambdas=0,0.7")
    assert not (files / "mine" / "calls.txt").exists()
    systems = report["systems"]
    assert systems["mine"]["curves"] == systems["copied"]["curves"]
    assert systems["mine"]["lambda"] == 0.7
    assert "warning: mine" in done.stderr  # the largest weight of the grid


def test_the_method_is_the_one_that_the_checkpoint_has_networks_for(files):
    """The objective offers another first."""
    hparams = {"hparams": {"objective": "replaced_token_detection"}}
    (files / "mine" / "hparams.json").write_text(json.dumps(hparams))
    for _ in range(2):
        _, report = rescore(files, f"--plugins={PLUGIN}", f"--model={files}/mine")
        assert report["systems"]["mine"]["about"]["method"] == "pseudo_log_likelihood"
    assert (files / "mine" / "calls.txt").read_text().splitlines() == ["10"]  # scored once


def test_scores_may_be_divided_by_pieces_or_words(files):
    arguments = [f"--plugins={PLUGIN}", f"--model={files}/mine", "--lambdas=0,1000"]
    curves = {}
    for normalize in ("none", "words", "pieces"):
        _, report = rescore(files, *arguments, f"--normalize={normalize}")
        curves[normalize] = report["systems"]["mine"]["curves"]["dev"]
    assert curves["none"][1] == pytest.approx(40)  # the shortest
    # Every word has a letter, so all means are equal and the recogniser decides.
    assert curves["words"] == curves["pieces"] == pytest.approx([40, 40])


def test_a_missing_score_is_named_with_its_hypothesis(files):
    line = {"text": "a b c d", "score": -1, "num_pieces": 4, "num_words": 4}
    (files / "few.jsonl").write_text(json.dumps(line))
    lists = [f"--dev={files}/dev.json", f"--test={files}/test.tsv", f"--output_dir={files}/out"]
    done = run("-m", "scoring.rescore", *lists, f"--scores={files}/few.jsonl")
    assert done.returncode == 1
    for part in ("few.jsonl", "hypothesis 2", "'d-1'", "dev.json"):
        assert part in done.stderr
    assert not (files / "out").exists()
