"""Questions: files, windows, labels of answers, answers out of the network's beams, scores."""

import dataclasses
import json

import numpy as np
import pytest
from official.nlp.tools import squad_evaluate_v2_0

from convbert.common.errors import InputError
from convbert.finetune.kinds.base import Predicted
from convbert.finetune.kinds.span import QuestionExample, Span, official_scores
from convbert.finetune.task_files import read_split
from tests.finetune import squad_support
from tests.finetune.kinds_support import rejects, task_of
from tests.finetune.squad_support import LONG, decode, question, read_squad, small_file, vocabulary

SWITCHES = [(True, True), (True, False), (False, True), (False, False)]


def encode(examples, S=48, query=16, stride=8, **switches):
    lengths = {"max_seq_length": S, "max_query_length": query, "doc_stride": stride}
    return squad_support.encode(examples, vocabulary(**switches), **lengths)


def example(context, *answers, start=None, text="What was it?", identifier="a"):
    start = context.index(answers[0]) if answers and start is None else start
    return QuestionExample(identifier, text, context, answers, start, not answers)


def sequence(encoded, index):
    tokens = slice(encoded.row_splits[index], encoded.row_splits[index + 1])
    return {name: values[tokens] for name, values in encoded.tokens.items()}


def labelled_text(encoded, index, context):
    """The slice of the context that a sequence's label says."""
    columns = sequence(encoded, index)
    first, last = (encoded.sequences[f"{name}_position"][index] for name in ("start", "end"))
    return context[columns["char_start"][first] : columns["char_end"][last]]


@pytest.mark.parametrize(("lower", "strip"), SWITCHES)
def test_answers_come_back_to_the_letter(tmp_path, lower, strip):
    examples = read_squad(small_file(tmp_path / "s.json"), training=True)
    encoded = encode(examples, do_lower_case=lower, strip_accents=strip)
    labelled = np.flatnonzero(encoded.sequences["start_position"])
    for index in labelled:
        item = examples[encoded.sequences["example"][index]]
        assert labelled_text(encoded, index, item.context) == item.answers[0]
    answerable = [i for i, item in enumerate(examples) if not item.is_impossible]
    assert sorted(set(encoded.sequences["example"][labelled])) == answerable
    assert len(encoded) > len(examples)  # or windows would go untested


def test_layout_of_a_sequence():
    words = vocabulary()
    encoded = encode([example("the city", "city", text="who was")])
    pieces = [words.tokens[i] for i in encoded.tokens["input_ids"]]
    assert pieces == ["[CLS]", "who", "was", "[SEP]", "the", "city", "[SEP]"]
    assert encoded.tokens["segment_ids"].tolist() == [0, 0, 0, 0, 1, 1, 1]
    assert encoded.tokens["char_start"].tolist() == [0, 0, 0, 0, 0, 4, 0]
    assert encoded.tokens["char_end"].tolist() == [0, 0, 0, 0, 3, 8, 0]
    assert encoded.tokens["max_context"].tolist() == [0, 0, 0, 0, 1, 1, 0]
    found = {name: values.tolist() for name, values in encoded.sequences.items()}
    places = {"start_position": [5], "end_position": [5]}
    assert found == {"example": [0], **places, "is_impossible": [0]}
    assert encoded.truncated == 0
    columns = [*encoded.tokens.values(), *encoded.sequences.values()]
    assert {column.dtype for column in columns} == {np.dtype(np.int32)}
    assert encoded.row_splits.dtype == np.int64


@pytest.mark.parametrize(
    ("length", "stride", "S"),
    [
        *[(37, 8, 48), (46, 8, 48), (200, 8, 48), (90, 40, 48)],
        (252, 121, 256),  # a last window so short that its length decides
    ],
)
def test_windows_against_the_rule_of_bert(length, stride, S):
    """A token belongs to the window in which the lesser of its two sides is largest."""
    context = " ".join(["the"] * length)
    encoded = encode([example(context, text="who was")], S, stride=stride)
    room = S - 2 - 3
    starts = [0]
    while starts[-1] + room < length:
        starts.append(starts[-1] + min(stride, room))
    assert len(encoded) == len(starts)
    spans = [(start, min(start + room, length)) for start in starts]
    best = []
    for token in range(length):
        scores = [
            min(token - a, b - 1 - token) + 0.01 * (b - a) if a <= token < b else -1
            for a, b in spans
        ]
        best.append(scores.index(max(scores)))
    for index, (start, end) in enumerate(spans):
        columns = sequence(encoded, index)
        own = [best[token] == index for token in range(start, end)]
        assert columns["max_context"][4:-1].tolist() == own
        assert columns["char_start"][4:-1].tolist() == [4 * t for t in range(start, end)]
    assert encoded.lengths.max() <= S
    assert encoded.truncated == (len(starts) > 1)


def test_windows_without_the_answer_point_at_the_first_token():
    (first, *_), encoded = [example(LONG, "1939")], encode([example(LONG, "1939")], stride=20)
    without = encoded.sequences["start_position"] == 0
    assert without.tolist() == [True] * (len(encoded) - 1) + [False]
    assert (encoded.sequences["end_position"][without] == 0).all()
    assert (encoded.sequences["is_impossible"] == 0).all()  # of the question, not of the window
    assert labelled_text(encoded, len(encoded) - 1, LONG) == first.answers[0]
    impossible = encode([example(LONG)], stride=20).sequences
    assert (impossible["is_impossible"] == 1).all()
    assert not impossible["start_position"].any()


@pytest.mark.parametrize(
    ("context", "answer", "marked", "found"),
    [
        ("it was it ; who was it", "it", 7, (7, 9)),
        ("what was in the city", "it", 17, (16, 20)),
        # Not another place where the same words are whole pieces.
        ("it was the city ; who was it", "it", 12, (11, 15)),
        ("born in 1995 in the 5 city", "5", 11, (10, 12)),
        ("the cafe was in the city", "fe was i", 6, (4, 15)),
    ],
)
def test_an_answer_is_labelled_by_the_pieces_that_cover_it(context, answer, marked, found):
    encoded = encode([example(context, answer, start=marked)])
    first, last = (encoded.sequences[f"{name}_position"][0] for name in ("start", "end"))
    columns = sequence(encoded, 0)
    assert (columns["char_start"][first], columns["char_end"][last]) == found


def test_long_unlabelled_and_empty_questions():
    examples = [example("the city", "city", text="who " * 30), example("the city", "city")]
    assert (encode(examples).truncated, encode(examples).lengths[0]) == (1, 16 + 3 + 2)
    blind = dataclasses.replace(example("the city", "city"), answers=(), answer_start=None)
    assert list(encode([blind, example("the city", "city")]).sequences) == ["example"]
    encoded = encode([example("", text="who"), example("the city", "city", text="")])
    assert encoded.lengths.tolist() == [4, 5]
    assert not encoded.tokens["max_context"][:4].any()
    assert len(encode([])) == 0


CONTEXT = "Ada Lovelace was born in London."


def test_questions_with_and_without_answers(tmp_path):
    path = squad_support.write_squad(
        tmp_path / "squad.json",
        (CONTEXT, [question("a", CONTEXT, "London", "in London"), question("b", CONTEXT, "Ada")]),
        ("Nothing.", [question("c", "Nothing.", "Nothing", is_impossible=True)]),  # plausible
    )
    found = read_squad(path, training=True)
    assert found == [
        QuestionExample("a", "What was it?", CONTEXT, ("London", "in London"), 25, False),
        QuestionExample("b", "What was it?", CONTEXT, ("Ada",), 0, False),
        QuestionExample("c", "What was it?", "Nothing.", (), None, True),
    ]
    assert len(read_squad(small_file(tmp_path / "small.json"), training=True)) == 27


@pytest.mark.parametrize("version_2", [False, True])
@pytest.mark.parametrize("split", ["train", "dev"])
def test_only_test_splits_may_have_questions_without_answers(tmp_path, split, version_2):
    task = task_of("span", version_2=version_2, test=("test",))
    blind, textual = question("a", CONTEXT), question("b", CONTEXT, "Ada")
    del blind["answers"], textual["answers"][0]["answer_start"]
    for name, items in ((split, [textual, blind]), ("test", [textual, question("q7", CONTEXT)])):
        squad_support.write_squad(tmp_path / f"{name}.squad", (CONTEXT, items))
    found = read_split(task, str(tmp_path), "test")
    assert [(x.answers, x.answer_start) for x in found] == [(("Ada",), None), ((), None)]
    with pytest.raises(InputError):
        read_split(task, str(tmp_path), split)
    squad_support.write_squad(tmp_path / f"{split}.squad", (CONTEXT, [textual]))
    if split == "train":
        with pytest.raises(InputError):
            read_split(task, str(tmp_path), split)
    else:
        (example,) = read_split(task, str(tmp_path), split)
        assert (example.answers, example.answer_start) == (("Ada",), None)


@pytest.mark.parametrize(
    ("item", "named"),
    [
        (question("q7", CONTEXT, ("London", 24)), "q7"),
        (question("q7", CONTEXT, "Ada", ("Eve", 0)), "q7"),
        (question("q7", CONTEXT, (" ", 3)), "`text`"),
        ({"id": "q7", "question": "Who?", "answers": {"text": "Ada"}}, "`answers`"),
        (question("a", CONTEXT, "London"), "question a"),
    ],
)
def test_errors_of_a_question(tmp_path, item, named):
    items = [question("a", CONTEXT, "Ada"), item]
    path = squad_support.write_squad(tmp_path / "squad.json", (CONTEXT, items))
    with rejects(named):
        read_squad(path, training=True)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return small_file(tmp_path_factory.mktemp("squad") / "dev.json")


@pytest.fixture(scope="module")
def examples(path):
    return read_squad(path, training=False)


@pytest.fixture(scope="module")
def encoded(examples):
    return encode(examples)


def spans_by_loop(index, example, encoded, predictions, longest):
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
                if last - first + 1 > longest:
                    continue
                text = example.context[column["char_start"][first] : column["char_end"][last]]
                score = predictions["start_log_probs"][window, i]
                found.append((score + predictions["end_log_probs"][window, i, j], text))
    return sorted(found, key=lambda item: -item[0])


@pytest.mark.parametrize("longest", [30, 5])
def test_against_loops(examples, encoded, longest):
    predictions = squad_support.random_predictions(encoded, K=9)
    answers = decode(examples, encoded, predictions, max_answer_length=longest)
    assert len(answers) == len(examples)
    for index, (example, answer) in enumerate(zip(examples, answers)):
        windows = encoded.sequences["example"] == index
        assert answer.null_score == predictions["answerable_logit"][windows].min()
        found = spans_by_loop(index, example, encoded, predictions, longest)
        assert answer.text == (found[0][1] if found else "")
        if found:
            np.testing.assert_allclose(answer.score, found[0][0], 1e-6)
            assert example.context[answer.start : answer.end] == answer.text


def test_nothing_possible_and_no_classifier(examples, encoded):
    predictions = squad_support.random_predictions(encoded)
    with_one = decode(examples, encoded, predictions)
    without = decode(examples, encoded, predictions, answerable_classifier=False)
    for a, b in zip(with_one, without):
        np.testing.assert_allclose(b.null_score, a.null_score - a.score)
    predictions["end_index"][:] = 0
    answers = decode(examples, encoded, predictions)
    assert {answer.text for answer in answers} == {""}
    # Gold answers of version 1.
    answers = decode(examples, encoded, squad_support.gold_predictions(encoded), -2.75)
    some = [pair for pair in zip(examples, answers) if not pair[0].is_impossible]
    assert official_scores(*zip(*some), False) == {"exact_match": 100.0, "f1": 100.0}


@pytest.mark.parametrize("threshold", [-2.75, 0.5])
def test_version_2_by_the_official_scorer(path, examples, encoded, tmp_path, threshold):
    """On the written files. Some answers are wrong, partly wrong, or missing."""
    predictions = squad_support.gold_predictions(encoded)
    noise = squad_support.random_predictions(encoded, seed=3)
    for window in np.flatnonzero(encoded.sequences["example"] % 3):
        for name, values in noise.items():
            predictions[name][window] = values[window]
    answers = decode(examples, encoded, predictions, threshold)
    task = task_of("span", version_2=True)
    task.plugin.write_files(Predicted(task, examples, answers), str(tmp_path), "dev")
    submitted, odds = (
        json.loads((tmp_path / f"dev_{name}.json").read_text(encoding="utf-8"))
        for name in ("predictions", "null_odds")
    )
    with open(path) as file:
        articles = json.load(file)["data"]
    scores = official_scores(examples, answers, True)
    official = squad_evaluate_v2_0.evaluate(articles, submitted)
    for name in ("f1", "HasAns_exact", "HasAns_f1", "NoAns_exact", "NoAns_f1"):
        assert scores[name] == official[name], name
    assert scores["exact_match"] == official["exact"]
    # The same with all answers, and odds shifted to the script's threshold of 1.
    texts = {example.id: answer.text for example, answer in zip(examples, answers)}
    shifted = {identifier: value - threshold + 1.0 for identifier, value in odds.items()}
    swept = squad_evaluate_v2_0.evaluate(articles, texts, shifted)
    assert swept["exact"] == scores["exact_match"]
    assert swept["final_f1"] == scores["best_f1"] >= scores["f1"]
    shift = threshold - 1.0
    np.testing.assert_allclose(swept["final_f1_thresh"] + shift, scores["best_f1_thresh"], 1e-6)
    declined = {"answer": "", "start": -1, "end": -1, "score": 0.0, "null_score": 1.0}
    assert Span().answer_of((), declined).text is None
    unknown = official_scores(examples, [of._replace(text=None) for of in answers], True)
    assert unknown == {name: of for name, of in scores.items() if not name.startswith("best")}
    denied = [i for i, value in odds.items() if value > threshold]
    assert denied
    assert all(submitted[identifier] == "" for identifier in denied)
