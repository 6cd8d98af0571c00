"""The warning about marks that are no accents."""

import pytest

from data.corpus import open_corpus
from data.text_checks import warn_of_stripped_marks

ENGLISH = "An ordinary line of text in a language whose accents are few, as in café or naïve.\n"


@pytest.mark.parametrize(
    ("text", "script"),
    [
        ("हिन्दी भाषा में लिखा हुआ पाठ", "DEVANAGARI"),
        ("ที่นี่มีหนังสือหลายเล่ม", "THAI"),
        ("ひらがなとカタカナがあります", "KATAKANA-HIRAGANA"),
        (ENGLISH * 3 + "हिन्दी भाषा में", "DEVANAGARI"),
        (ENGLISH * 200 + "हिन्दी", None),
        ("Größere Häuser, Übungen, élève, Ångström, Tiếng Việt", None),
        ("русский ёлка, ελληνική γλώσσα, 中文 한국어", None),
        ("שָׁלוֹם اَلسَّلَامُ", None),
    ],
)
def test_marks_that_are_no_accents(tmp_path, capsys, text, script):
    (tmp_path / "text.txt").write_text(text, encoding="utf-8")
    warn_of_stripped_marks(open_corpus(str(tmp_path), "text"))
    printed = capsys.readouterr().err
    if script is None:
        assert printed == ""
    else:
        assert script in printed
        assert "--nostrip_accents" in printed
