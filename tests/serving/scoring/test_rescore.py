"""N-best lists: errors and choices counted by hand, and what is rejected."""

import json
import math

import pytest

from convbert.common.errors import InputError
from convbert.serving.scoring.nbest import NBest, read_lists, rescored
from tests.command_support import run

# Utterance -> what was said, hypotheses and their scores. The recogniser prefers longer hypotheses
# than were said, the scores below shorter ones.
DEV = {
    "d-1": ("a b c", {"a b c d": -1.0, "a b c": -2.0, "a b": -3.5}),
    "d-2": ("e f", {"e f g": -1.0, "e f": -1.5, "f": -3.0}),
}
TEST = {"t-1": ("i j k", {"i j k l": -1, "i j k": -1.9}), "t-2": ("m n", {"m n": -1, "m": -1.5})}


@pytest.fixture
def files(tmp_path):
    for name, utterances in (("dev", DEV), ("test", TEST)):
        lists = {}
        for utterance, (said, scores) in utterances.items():
            found = [{"score": score, "text": text} for text, score in scores.items()]
            lists[utterance] = {"ref": said, **{f"hyp_{i}": x for i, x in enumerate(found, 1)}}
        (tmp_path / f"{name}.json").write_text(json.dumps(lists))
    texts = [text for _, scores in (DEV | TEST).values() for text in scores]
    rows = [{"text": t, "score": -len(t.split()), "num_pieces": len(t.split())} for t in texts]
    (tmp_path / "scores.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def rescore(files, *arguments, **options):
    lists = [f"--dev={files}/dev.json", f"--test={files}/test.json"]
    scores = f"--scores={files}/scores.jsonl"
    return run("-m", "convbert.serving.scoring.rescore", *lists, scores, *arguments, **options)


def test_the_weight_of_the_dev_lists_is_applied_to_the_test_lists(files):
    lambdas = "--lambdas=0,0.5,1,1.5,2,2.5,3"
    rescore(files, lambdas, f"--output={files}/report.json")
    report = json.loads((files / "report.json").read_text())
    # At 0.5 two scores of d-2 are equal, at 1 two of d-1, and each time the first is too long; at
    # 1.5 two are equal again, of both, and the first is right; beyond, the shortest are taken.
    rates = [40, 40, 20, 0, 40, 40, 40]
    assert list(report["dev"].values()) == pytest.approx(rates, abs=1e-9)
    assert report["lambda"] == 1.5
    # Of t-2 the shorter text has the higher score then.
    assert report["test"] == pytest.approx({"1-best": 20, "rescored": 20, "oracle": 0})
    assert report["better_by"] == 0


def test_hypotheses_without_words_stay():
    lists = NBest.of(["a"], [["", " "]], [[-1.0, -2.0]])
    assert rescored(lists, lists, lambda texts: pytest.fail("asked"))["test"]["rescored"] == 100.0


def test_a_missing_score_is_named(files):
    (files / "scores.jsonl").write_text('{"text": "a b", "score": -1, "num_pieces": 1}\n')
    done = rescore(files, status=1)
    assert "scores.jsonl" in done.stderr


BAD = [{"hyp_1": {"score": 1, "text": "a"}}, {"ref": "a"}, {"ref": "a", "hyp_1": ["a"]}, []]
for hypothesis in ({"score": math.nan, "text": "a"}, {"score": 1}, {"score": 1, "text": "a\ud800"}):
    BAD.append({"ref": "a", "hyp_1": hypothesis})


@pytest.mark.parametrize("utterance", BAD)
def test_bad_lists_are_named_with_their_utterance(tmp_path, utterance):
    path = tmp_path / "lists.json"
    path.write_text(json.dumps({"u-7": utterance}))
    with pytest.raises(InputError):
        read_lists(str(path))
