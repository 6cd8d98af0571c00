"""Reading files in the format of SQuAD: what is in them, and what is wrong with them."""

import json

import pytest

from errors import InputError
from finetune.declaration import parse
from finetune.squad.examples import QuestionExample, read_squad
from finetune.task_files import read_split
from tests.finetune.squad_support import question, small_file, write_squad

CONTEXT = "Ada Lovelace was born in London."


def test_questions_with_and_without_answers(tmp_path):
    path = write_squad(
        tmp_path / "squad.json",
        (CONTEXT, [question("a", CONTEXT, "London", "in London"), question("b", CONTEXT, "Ada")]),
        ("Nothing.", [question("c", "Nothing.", is_impossible=True)]),
    )
    found = read_squad(path, training=True)
    assert found == [
        QuestionExample("a", "What was it?", CONTEXT, ("London", "in London"), 25, False),
        QuestionExample("b", "What was it?", CONTEXT, ("Ada",), 0, False),
        QuestionExample("c", "What was it?", "Nothing.", (), None, True),
    ]
    assert len(read_squad(small_file(tmp_path / "small.json"), training=True)) == 27


def test_plausible_answers_of_unanswerable_questions_are_none(tmp_path):
    item = question("a", CONTEXT, "Ada", is_impossible=True)
    (example,) = read_squad(write_squad(tmp_path / "s.json", (CONTEXT, [item])), training=True)
    assert (example.answers, example.answer_start) == ((), None)


def test_byte_order_mark(tmp_path):
    path = write_squad(tmp_path / "s.json", (CONTEXT, [question("a", CONTEXT, "Ada")]))
    content = (tmp_path / "s.json").read_bytes()
    (tmp_path / "s.json").write_bytes(b"\xef\xbb\xbf" + content)
    assert len(read_squad(path, training=True)) == 1


def test_evaluation_needs_neither_answers_nor_places(tmp_path):
    blind, textual = question("a", CONTEXT), question("b", CONTEXT, "Ada")
    del blind["answers"], textual["answers"][0]["answer_start"]
    path = write_squad(tmp_path / "test.json", (CONTEXT, [blind, textual]))
    first, second = read_squad(path, training=False)
    assert (first.answers, first.answer_start) == ((), None)
    assert (second.answers, second.answer_start) == (("Ada",), None)
    with pytest.raises(InputError, match=r"test.json, question a: `answers` should be a list"):
        read_squad(path, training=True)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    ("item", "message"),
    [
        (
            question("q7", CONTEXT, ("London", 24)),
            "question q7: the answer 'London' should stand at character 24 of its context, counted"
            " from 0 (it stands at 25). Received: ' Londo'",
        ),
        (question("q7", CONTEXT, ("on.", 40)), "(it stands at 29). Received: ''"),
        (question("q7", CONTEXT, ("n", 24)), "(it stands at 23). Received: ' '"),
        (question("q7", CONTEXT, ("Ada", -3)), "(it stands at 0). Received: 'Ada'"),
        (question("q7", CONTEXT, ("Paris", 25)), "(it occurs nowhere there). Received: 'Londo'"),
        (question("q7", CONTEXT, "Ada", ("Eve", 0)), "the answer 'Eve' should stand at"),
        (question("q7", CONTEXT, (" ", 3)), "q7: an answer should be more than whitespace"),
        (question("q7", CONTEXT, ("Ada", "0")), "should be a whole number. Received: '0'"),
        ({"id": "q7", "answers": []}, "q7: `question` should be a text. Received: only id"),
        ({"question": "Who?"}, "data[0].paragraphs[0].qas[1]: `id` should be a text"),
        (question(7, CONTEXT, "Ada"), "qas[1]: `id` should be a text. Received: 7"),
        ("Who?", "`id` should be in a JSON object. Received: 'Who?'"),
        (
            question("q7", CONTEXT, "Ada", is_impossible="no"),
            "question q7: `is_impossible` should be true or false. Received: 'no'",
        ),
        (question("q7", CONTEXT, "Ada", text="\ud800"), "`question` holds half a surrogate pair"),
        (question("a", CONTEXT, "London"), "question a: the id occurs twice"),
    ],
)
def test_errors_of_a_question(tmp_path, item, message, training):
    path = write_squad(tmp_path / "squad.json", (CONTEXT, [question("a", CONTEXT, "Ada"), item]))
    with pytest.raises(InputError) as caught:
        read_squad(path, training=training)
    assert str(caught.value).startswith(path)
    assert message in str(caught.value)


def span_task(**fields):
    return parse(
        {
            "name": "own",
            "kind": "span",
            "files": {split: f"{split}.json" for split in ("train", "dev", "test")},
            **fields,
        },
        "task",
    )


@pytest.mark.parametrize("version_2", [False, True])
@pytest.mark.parametrize("split", ["train", "dev"])
def test_only_test_splits_may_have_questions_without_answers(tmp_path, split, version_2):
    task = span_task(version_2=version_2)
    items = [question("a", CONTEXT, "Ada"), question("q7", CONTEXT)]
    for name in (split, "test"):
        write_squad(tmp_path / f"{name}.json", (CONTEXT, items))
    assert [item.answers for item in read_split(task, str(tmp_path), "test")] == [("Ada",), ()]
    with pytest.raises(InputError, match=rf"{split}\.json.* question q7.* answer"):
        read_split(task, str(tmp_path), split)


def test_an_answer_of_a_development_split_needs_no_place(tmp_path):
    item = question("a", CONTEXT, "Ada")
    del item["answers"][0]["answer_start"]
    write_squad(tmp_path / "dev.json", (CONTEXT, [item]))
    (example,) = read_split(span_task(), str(tmp_path), "dev")
    assert (example.answers, example.answer_start) == (("Ada",), None)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", r"squad.json, line 1: not JSON \(the file is empty\)"),
        (" \n", r"squad.json, line 1: not JSON \(the file is empty\)"),
        ('{"data":\n[}', r"squad.json, line 2: not JSON"),
        ("[]", r"squad.json: should be a JSON object. Received: list"),
        ('{"dat": []}', r"squad.json: `data` should be a list. Received: only dat"),
        ('{"data": []}', r"squad.json: there is no question in it"),
        (
            '{"data": [{"paragraphs": [{"qas": []}]}]}',
            r"data\[0\].paragraphs\[0\]: `context` should",
        ),
        (json.dumps({"data": [{"title": "x"}]}), r"json, data\[0\]: `paragraphs` should be a list"),
        ("{\n\xff", r"squad.json, line 2: the file should be UTF-8. Received: b'.xff' at byte 1"),
        ("[" * 100_000, r"squad.json: not JSON that can be read"),
        (None, r"squad.json: cannot be read .*No such file"),
    ],
)
def test_errors_of_a_file(tmp_path, content, message):
    if content is not None:
        (tmp_path / "squad.json").write_bytes(content.encode("latin-1"))
    with pytest.raises(InputError, match=message):
        read_squad(str(tmp_path / "squad.json"), training=False)
