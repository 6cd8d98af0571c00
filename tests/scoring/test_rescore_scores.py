"""Sentence scores in a file: an interrupted run resumes, another model starts again."""

import json
import math
import os

import pytest

from errors import InputError
from scoring import rescore_scores
from scoring.rescore_scores import (
    Kept,
    about_model,
    begun_scores,
    complete,
    missing_scores,
    read_scores,
)

TEXTS = ["a b", "a", "a b c", "d \u2028 é", "a"]


class Lengths:
    """Scores minus the length; fails at its `fails`-th call, counted from 1."""

    def __init__(self, fails=0):
        self.calls, self._fails = [], fails

    def scores(self, sentences, **_):
        self.calls.append(list(sentences))
        if len(self.calls) == self._fails:
            raise KeyboardInterrupt
        return [(-len(s), len(s), len(s.split())) for s in sentences]


@pytest.fixture
def model(tmp_path):
    (tmp_path / "model" / "checkpoints").mkdir(parents=True)
    (tmp_path / "model" / "checkpoints" / "model.ckpt-5.index").write_bytes(b"\xff\x00")
    (tmp_path / "model" / "hparams.json").write_text("{}")
    return tmp_path / "model"


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.setattr(rescore_scores, "_SENTENCES", 2)
    return str(tmp_path / "m.causal.scores.jsonl")


def begun(path, about):
    return begun_scores(os.path.dirname(path), "m", about)


def completed(path, about, texts, scorer):
    kept = begun(path, about)
    complete(kept, about, missing_scores(kept, texts), scorer)
    return kept


def test_each_text_is_scored_once_and_kept(path, model):
    about, scorer = about_model(str(model), "causal"), Lengths()
    kept = completed(path, about, TEXTS, scorer)
    assert sorted(t for call in scorer.calls for t in call) == sorted(set(TEXTS))
    assert [len(call) for call in scorer.calls] == [2, 2]
    assert kept.of(["a b", "a"]) == [Kept(-3, 3, 2), Kept(-1, 1, 1)]
    again = read_scores(path)
    assert (again.scores, again.about, again.timed) == (kept.scores, about, 4)
    assert again.seconds == pytest.approx(kept.seconds)
    assert missing_scores(begun(path, about), TEXTS) == []


def test_a_text_of_no_pieces_has_no_score(path, model):
    """A sum over none is 0, which would be the best of all."""

    class Dropping(Lengths):
        def scores(self, sentences, *, allow_no_pieces=False):
            assert allow_no_pieces  # one such hypothesis should not end a run of hours
            found = super().scores([s.replace("\u200b", "") for s in sentences])
            return [
                (score, pieces, len(s.split())) for (score, pieces, _), s in zip(found, sentences)
            ]

    about = about_model(str(model), "causal")
    kept = completed(path, about, ["a", "\u200b"], Dropping())
    for scores in (kept, read_scores(path)):
        one, nothing = scores.of(["a", "\u200b"])
        assert one == Kept(-1, 1, 1)
        assert math.isnan(nothing.score)


def test_an_interrupted_run_resumes(path, model):
    about = about_model(str(model), "causal")
    with pytest.raises(KeyboardInterrupt):
        completed(path, about, TEXTS, Lengths(fails=2))
    with open(path, "a", encoding="utf-8") as file:
        file.write('{"text": "cut')
    scorer = Lengths()
    kept = completed(path, about, TEXTS, scorer)
    assert [len(call) for call in scorer.calls] == [2]
    assert read_scores(path).scores == kept.scores
    assert kept.scores.keys() == set(TEXTS)
    assert read_scores(path).timed == 4


@pytest.mark.parametrize("change", ["checkpoint", "method"])
def test_scores_of_another_model_are_not_taken(path, model, change, capsys):
    completed(path, about_model(str(model), "causal"), TEXTS, Lengths())
    if change == "checkpoint":
        (model / "checkpoints" / "model.ckpt-5.index").write_bytes(b"\xff\x01")
    about = about_model(str(model), "self_critic" if change == "method" else "causal")
    assert len(missing_scores(begun(path, about), TEXTS)) == 4
    completed(path, about, ["a"], Lengths())
    # Scores of another method stay; those of another checkpoint are replaced, not silently.
    assert len(read_scores(path).scores) == (4 if change == "method" else 1)
    assert ("warning" in capsys.readouterr().err) == (change == "checkpoint")


def test_a_model_that_was_moved_is_the_same(path, model):
    completed(path, about_model(str(model), "causal"), TEXTS, Lengths())
    about = about_model(str(model.rename(model.with_name("moved"))), "causal")
    assert missing_scores(begun(path, about), TEXTS) == []


@pytest.mark.parametrize("score", [math.nan, math.inf])
def test_a_score_that_is_not_finite_is_named_with_its_sentence(path, model, score):
    class Broken:
        def scores(self, sentences, **_):
            return [(score if s == "a" else -1.0, 1, 1) for s in sentences]

    with pytest.raises(InputError, match="'a'"):
        completed(path, about_model(str(model), "causal"), TEXTS, Broken())
    assert "a" not in read_scores(path).scores


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ('{"text": "b", "score": -1', "JSON"),
        ('{"text": "b"}', "`score`"),
        ('{"text": "b", "score": NaN, "num_pieces": 1, "num_words": 1}', "`score`"),
        pytest.param(
            json.dumps({"text": "b", "score": 10**400, "num_pieces": 1, "num_words": 1}),
            "`score`",
            id="an integer that no float is",
        ),
        pytest.param('{"text": "b", "score": ' + "1" * 5000 + "}", "digits", id="5,000 digits"),
        ('{"text": "b", "score": -1, "num_pieces": "1", "num_words": 1}', "`num_pieces`"),
        ('{"text": 1, "score": -1, "num_pieces": 1, "num_words": 1}', "`text`"),
        ('{"text": "b", "score": -1, "num_pieces": 0, "num_words": 1}', "`num_pieces`"),
        ('{"text": "b", "score": -1, "num_pieces": 1, "num_words": 0}', "`num_words`"),
        ('{"text": "b", "score": 0, "num_pieces": 1, "num_words": 0}', "`num_words`"),
        ('{"text": "b", "score": -1, "num_pieces": -2, "num_words": 1}', "`num_pieces`"),
        ('{"text": "b", "score": -1, "num_pieces": 1.5, "num_words": 1}', "`num_pieces`"),
        ('{"id": "2", "score": -1, "num_pieces": 1, "num_words": 1}', "`text`"),
        ('{"id": "2"}', "`text`"),
        ('{"seconds": 1}', "`sentences`"),
        ("[1]", "object"),
    ],
)
def test_lines_that_are_wrong_are_named(tmp_path, line, named):
    good = json.dumps({"text": "a", **Kept(-1, 1, 1)._asdict()})
    path = tmp_path / "bad.scores.jsonl"
    path.write_text(f"{good}\n\n{line}\n")
    with pytest.raises(InputError) as raised:
        read_scores(str(path))
    assert f"{path}, line 3" in str(raised.value)
    assert named in str(raised.value)


def test_files_that_cannot_be_read_are_named(tmp_path):
    (tmp_path / "latin.jsonl").write_bytes(b"\xe9")
    for name in ("none.jsonl", "latin.jsonl"):
        with pytest.raises(InputError, match=name):
            read_scores(str(tmp_path / name))
