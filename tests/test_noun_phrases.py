"""Noun phrases of the treebank's brackets."""

import pytest

from errors import InputError
from examples.noun_phrases import invalid_tags, tagged

POS = """
``/``
[ The/DT old/JJ man/NN ]
slept/VBD ./.
''/''
======================================

[ He/PRP ]
ate/VBD ./. [ Rain/NN ]
"""


def test_brackets_become_tags_and_quotation_marks_stay_in_their_sentence(tmp_path):
    path = tmp_path / "wsj_0001.pos"
    path.write_text(POS)
    first, second, third = "".join(tagged(str(path))).strip().split("\n\n")
    assert first.splitlines() == [
        *("`` O", "The B-NP", "old I-NP", "man I-NP", "slept O", ". O", "'' O"),
    ]
    assert second.splitlines() == ["He B-NP", "ate O", ". O"]
    assert third == "Rain B-NP"


def test_a_word_without_a_tag_is_named(tmp_path):
    (tmp_path / "wsj_0001.pos").write_text("a/DT\nword\n")
    with pytest.raises(InputError, match=r"line 2.*word"):
        list(tagged(str(tmp_path / "wsj_0001.pos")))


def test_tags_that_bio_does_not_have():
    tags = ["I-NP", "B-NP", "I-NP", "I-PP", "O", "I-NP"]
    assert list(invalid_tags(tags)) == [True, False, False, True, False, True]
