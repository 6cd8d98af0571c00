"""Answers out of the network's beams, against plain loops, and their official scores."""

import json

import numpy as np
import pytest
from official.nlp.tools import squad_evaluate_v1_1, squad_evaluate_v2_0

from finetune.squad.decode import decode_answers
from finetune.squad.examples import read_squad
from finetune.squad.features import encode_questions
from finetune.squad.score import official_scores, write_predictions
from tests.finetune.squad_support import (
    gold_predictions,
    hparams,
    random_predictions,
    small_file,
    vocabulary,
)

LENGTHS = {"max_seq_length": 48, "max_query_length": 16, "doc_stride": 8}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return small_file(tmp_path_factory.mktemp("squad") / "dev.json")


@pytest.fixture(scope="module")
def examples(path):
    return read_squad(path, training=False)


@pytest.fixture(scope="module")
def encoded(examples):
    return encode_questions(examples, vocabulary(), **LENGTHS)


def spans_by_loop(index, example, encoded, predictions, settings):
    """Every possible (score, text) of a question, the best first."""
    found = []
    for window in np.flatnonzero(encoded.sequences["example"] == index):
        offset, length = encoded.row_splits[window], encoded.lengths[window]
        column = {k: v[offset : offset + length] for k, v in encoded.tokens.items()}
        for i, first in enumerate(predictions["start_index"][window]):
            for j, last in enumerate(predictions["end_index"][window, i]):
                if first >= length or last >= length or not column["max_context"][first]:
                    continue
                if column["char_end"][last] == 0 or last < first:
                    continue
                if last - first + 1 > settings.max_answer_length:
                    continue
                text = example.context[column["char_start"][first] : column["char_end"][last]]
                score = predictions["start_log_probs"][window, i]
                found.append((score + predictions["end_log_probs"][window, i, j], text))
    return sorted(found, key=lambda item: -item[0])


@pytest.mark.parametrize(("longest", "n_best"), [(30, 20), (5, 3)])
def test_against_loops(examples, encoded, longest, n_best):
    settings = hparams(max_answer_length=longest, n_best_size=n_best)
    predictions = random_predictions(encoded, K=9)
    answers = decode_answers(examples, encoded, predictions, settings)
    assert len(answers) == len(examples)
    filled = 0
    for index, (example, answer) in enumerate(zip(examples, answers)):
        expected = {}
        for score, text in spans_by_loop(index, example, encoded, predictions, settings):
            expected.setdefault(text, score)
        expected = list(expected.items())[:n_best]
        assert [span.text for span in answer.nbest] == [text for text, _ in expected]
        found = [span.start_log_prob + span.end_log_prob for span in answer.nbest]
        np.testing.assert_allclose(found, [score for _, score in expected], 1e-6)
        windows = encoded.sequences["example"] == index
        assert answer.null_score == predictions["answerable_logit"][windows].min()
        for span in answer.nbest:
            assert example.context[span.start : span.end] == span.text
        if answer.nbest:
            assert (answer.text, answer.start, answer.end) == answer.nbest[0][:3]
            weights = np.exp(found) / np.exp(found).sum()
            np.testing.assert_allclose([s.probability for s in answer.nbest], weights, 1e-5)
        filled += len(answer.nbest) == n_best
    assert filled > (0 if n_best == 20 else 5)


def test_nothing_possible_and_no_classifier(examples, encoded):
    predictions = random_predictions(encoded)
    with_one = decode_answers(examples, encoded, predictions, hparams())
    without = decode_answers(examples, encoded, predictions, hparams(answerable_classifier=False))
    for a, b in zip(with_one, without):
        np.testing.assert_allclose(b.null_score, a.null_score - a.score)
    predictions["end_index"][:] = 0
    answers = decode_answers(examples, encoded, predictions, hparams())
    assert {(answer.text, answer.nbest) for answer in answers} == {("", ())}


def test_gold_answers_score_100(examples, encoded):
    predictions = gold_predictions(encoded)
    answers = decode_answers(examples, encoded, predictions, hparams())
    for example, answer in zip(examples, answers):
        assert example.is_impossible or answer.text == example.answers[0]
    scores = official_scores(examples, answers, -2.75)
    perfect = ["exact_match", "f1", "best_exact", "best_f1"]
    perfect += ["HasAns_exact", "HasAns_f1", "NoAns_exact", "NoAns_f1"]
    assert {name: scores[name] for name in perfect} == dict.fromkeys(perfect, 100.0)
    assert list(scores)[:2] == ["exact_match", "f1"]
    answerable = [i for i, example in enumerate(examples) if not example.is_impossible]
    some = [examples[i] for i in answerable], [answers[i] for i in answerable]
    assert official_scores(*some, None) == {"exact_match": 100.0, "f1": 100.0}


def half_right(examples, encoded):
    """Answers some of which are wrong, in part or altogether, or denied."""
    predictions = gold_predictions(encoded)
    noise = random_predictions(encoded, seed=3)
    for window, example in enumerate(encoded.sequences["example"]):
        if example % 3:
            for name, values in noise.items():
                predictions[name][window] = values[window]
    return decode_answers(examples, encoded, predictions, hparams())


def test_version_1_by_the_official_scorer_on_the_written_file(path, examples, encoded, tmp_path):
    answers = half_right(examples, encoded)
    write_predictions(str(tmp_path), "dev", examples, answers, None)
    texts = json.loads((tmp_path / "dev_predictions.json").read_text(encoding="utf-8"))
    with open(path) as file:
        articles = json.load(file)["data"]
    for paragraph in articles[0]["paragraphs"]:
        paragraph["qas"] = [item for item in paragraph["qas"] if item["answers"]]
    official = squad_evaluate_v1_1.evaluate(articles, texts)
    answerable = [i for i, example in enumerate(examples) if example.answers]
    scores = official_scores(
        [examples[i] for i in answerable], [answers[i] for i in answerable], None
    )
    assert scores["exact_match"] == 100 * official["exact_match"]
    assert scores["f1"] == 100 * official["final_f1"]
    assert 20 < scores["exact_match"] < scores["f1"] < 80
    assert not (tmp_path / "dev_null_odds.json").exists()


@pytest.mark.parametrize("threshold", [-2.75, 0.5])
def test_version_2_by_the_official_scorer_on_the_written_files(
    path, examples, encoded, tmp_path, threshold
):
    answers = half_right(examples, encoded)
    write_predictions(str(tmp_path), "dev", examples, answers, threshold)
    scores = official_scores(examples, answers, threshold)

    def read(name):
        return json.loads((tmp_path / f"dev_{name}.json").read_text(encoding="utf-8"))

    with open(path) as file:
        articles = json.load(file)["data"]
    submitted, odds, nbest = read("predictions"), read("null_odds"), read("nbest_predictions")
    official = squad_evaluate_v2_0.evaluate(articles, submitted)
    for name in ("f1", "HasAns_exact", "HasAns_f1", "NoAns_exact", "NoAns_f1"):
        assert scores[name] == official[name], name
    assert scores["exact_match"] == official["exact"]
    # The same the other way round: all answers, and odds of which 1 is the script's threshold.
    best = {identifier: spans[0]["text"] if spans else "" for identifier, spans in nbest.items()}
    shifted = {identifier: value - threshold + 1.0 for identifier, value in odds.items()}
    swept = squad_evaluate_v2_0.evaluate(articles, best, shifted)
    assert swept["exact"] == scores["exact_match"]
    assert swept["final_f1"] == scores["best_f1"] >= scores["f1"]
    assert swept["final_exact"] == scores["best_exact"] >= scores["exact_match"]
    shift = threshold - 1.0
    np.testing.assert_allclose(swept["final_f1_thresh"] + shift, scores["best_f1_thresh"], 1e-6)
    denied = [i for i, value in odds.items() if value > threshold]
    assert denied
    assert all(submitted[identifier] == "" for identifier in denied)
    assert set(nbest["l0"][0]) == {
        *("text", "start", "end", "start_log_prob", "end_log_prob", "probability")
    }
