"""Reading files in the format of SQuAD: what is in them, and what is wrong with them."""

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


def test_evaluation_needs_neither_answers_nor_places(tmp_path):
    blind, textual = question("a", CONTEXT), question("b", CONTEXT, "Ada")
    del blind["answers"], textual["answers"][0]["answer_start"]
    path = write_squad(tmp_path / "test.json", (CONTEXT, [blind, textual]))
    first, second = read_squad(path, training=False)
    assert (first.answers, first.answer_start) == ((), None)
    assert (second.answers, second.answer_start) == (("Ada",), None)
    with pytest.raises(InputError):
        read_squad(path, training=True)


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
    with pytest.raises(InputError):
        read_split(task, str(tmp_path), split)


def test_an_answer_of_a_development_split_needs_no_place(tmp_path):
    item = question("a", CONTEXT, "Ada")
    del item["answers"][0]["answer_start"]
    write_squad(tmp_path / "dev.json", (CONTEXT, [item]))
    (example,) = read_split(span_task(), str(tmp_path), "dev")
    assert (example.answers, example.answer_start) == (("Ada",), None)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    ("item", "named"),
    [
        (question("q7", CONTEXT, ("London", 24)), "q7"),
        (question("q7", CONTEXT, ("Ada", -3)), "q7"),
        (question("q7", CONTEXT, "Ada", ("Eve", 0)), "q7"),
        (question("q7", CONTEXT, (" ", 3)), "`text`"),
        (question("q7", CONTEXT, ("Ada", "0")), "`answer_start`"),
        ({"id": "q7", "answers": []}, "`question`"),
        (question(7, CONTEXT, "Ada"), "`id`"),
        (question("q7", CONTEXT, "Ada", is_impossible="no"), "`is_impossible`"),
        (question("a", CONTEXT, "London"), "question a"),
    ],
)
def test_errors_of_a_question(tmp_path, item, named, training):
    path = write_squad(tmp_path / "squad.json", (CONTEXT, [question("a", CONTEXT, "Ada"), item]))
    with pytest.raises(InputError) as error:
        read_squad(path, training=training)
    assert named in str(error.value)
