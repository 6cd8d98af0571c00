"""Reading files in the format of SQuAD: what is in them, and what is wrong with them."""

import pytest

from errors import InputError
from finetune.squad.examples import QuestionExample, read_squad
from finetune.task_files import read_split
from tests.finetune.kinds_support import task_of
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


@pytest.mark.parametrize("version_2", [False, True])
@pytest.mark.parametrize("split", ["train", "dev"])
def test_only_test_splits_may_have_questions_without_answers(tmp_path, split, version_2):
    task = task_of("span", version_2=version_2, test=("test",))
    blind, textual = question("a", CONTEXT), question("b", CONTEXT, "Ada")
    del blind["answers"], textual["answers"][0]["answer_start"]
    for name, items in ((split, [textual, blind]), ("test", [textual, question("q7", CONTEXT)])):
        write_squad(tmp_path / f"{name}.squad", (CONTEXT, items))
    found = read_split(task, str(tmp_path), "test")
    assert [(x.answers, x.answer_start) for x in found] == [(("Ada",), None), ((), None)]
    with pytest.raises(InputError):
        read_split(task, str(tmp_path), split)
    write_squad(tmp_path / f"{split}.squad", (CONTEXT, [textual]))
    if split == "train":
        with pytest.raises(InputError):
            read_split(task, str(tmp_path), split)
    else:
        (example,) = read_split(task, str(tmp_path), split)
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
