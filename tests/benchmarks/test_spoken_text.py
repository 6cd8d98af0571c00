"""Text as speech recognisers write it."""

import pytest

from tests.command_flags import import_command
from tests.command_support import run


@pytest.fixture
def module(monkeypatch):
    return import_command(monkeypatch, "benchmarks.spoken_text")[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It's 'the' Dogs\u2019 end -- isn\u2019t it?", "it's the dogs end isn't it"),
        ("Caf\u00e9, na\u00efve; (LUB) 2019\u201320", "cafe naive lub 2019 20"),
        ("snake_case \u201cquoted\u201d rock'n'roll", "snake case quoted rock'n'roll"),
        ("...", ""),
    ],
)
def test_punctuation_goes_and_apostrophes_inside_words_stay(module, text, expected):
    assert module.spoken(text) == expected


def test_lines_are_cut_into_sentences_and_short_ones_left_out(module):
    line = 'He was born in 1.5 hours. "They left early!" Who? It ended: Nobody came back.'
    found = ["he was born in 1 5 hours", "they left early", "it ended", "nobody came back"]
    assert list(module.sentences(line, 1)) == [*found[:2], "who", *found[2:]]
    assert list(module.sentences(line, 3)) == [found[0], found[1], found[3]]


def test_the_command_writes_a_corpus(tmp_path):
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("A first one, here.\nMore of it is here.\n\nNo\n\nThe other document.\n")
    flags = [f"--corpus={corpus}", f"--output={tmp_path}/spoken.txt"]
    done = run("-m", "benchmarks.spoken_text", *flags)
    assert done.returncode == 0, done.stderr
    expected = "a first one here\nmore of it is here\n\nthe other document\n\n"
    assert (tmp_path / "spoken.txt").read_text() == expected
