"""Files that are not what they should be: each reader reads them, or names the file and line."""

import gzip
import json

import pytest

from finetune import declaration
from finetune.readers.conll import read_conll, read_conllu
from finetune.readers.tables import read_jsonl, read_table
from finetune.squad.examples import read_squad
from tests.finetune.kinds_support import rejects

COLUMNS = {"text_a": "review", "label": "stars"}
TABLE = "stars,review\ngood,fine film\nbad,poor film\n"
WORDS = "Jean NNP B-X\nruns V O\n\nThey P O\n"
TEN = "1\ta\t_\tX\t_\t_\t_\t_\t_\t_\n2\tb\t_\tY\t_\t_\t_\t_\t_\t_\n"
QUESTION = {"id": "q7", "question": "Who?", "answers": [{"text": "Ada", "answer_start": 0}]}
SQUAD = {"data": [{"paragraphs": [{"context": "Ada was in London.", "qas": [QUESTION]}]}]}
TASK = {"kind": "classification", "files": {"train": "a.csv", "dev": "b.csv"}, "columns": COLUMNS}


# Reader -> how it is read, a correct file, and others with the line or field that the error names
# (None: they are read).
READERS = {
    "csv": (
        lambda path: list(read_table(path, True, COLUMNS)),
        TABLE,
        {
            TABLE + 'good,"a\rb"\n': None,  # a carriage return in a file that has line feeds
            TABLE + "good,a\rb\n": "line 4",
            TABLE + 'good,"never closed\nbad,x\n': "line 4",
            TABLE + 'good,"a" b\n': "line 4",
            TABLE + 'good,"a\nb"\nbad\n': "line 6",
            "stars,review,review\ngood,a,b\n": "text_a",
            "stars;review\ngood;a\n": "delimiter",
        },
    ),
    "tsv": (
        lambda path: list(read_table(path, False, COLUMNS)),
        TABLE.replace(",", "\t"),
        {"stars\treview\ngood,a\n": "line 2", "stars\treview\ngood\ta\x00\rb\n": None},
    ),
    "numbered": (
        lambda path: list(read_table(path, False, {"text_a": 1, "label": -2}, header=False)),
        "good\tfine\nbad\tpoor\n",
        {"good\n": "line 1"},
    ),
    "jsonl": (
        lambda path: list(read_jsonl(path, COLUMNS)),
        '{"stars": "good", "review": "fine"}\n{"stars": "bad", "review": "poor"}\n',
        {
            '[{"stars": "good", "review": "a"}]': "line 1",
            '{"stars": "good", "review": "a"}\n{"revi': "line 2",
            "[" * 100_000: "line 1",
            "{}\n": "review",
            '{"review": "a \\ud83d b", "stars": ""}': "line 1",
            '{"review": "a", "stars": "\\ud83d\\ude00"}': None,  # a whole pair is a character
        },
    ),
    "conll": (
        lambda path: list(read_conll(path, {"words": 0, "tags": -1})),
        WORDS,
        {
            "Jean B-X\nx y O\n": "line 2",
            "Jean\nruns\n": "tags",
            "Jean\t\u00a0\n": "tags",
            "\tO\n": "words",
        },
    ),
    "conllu": (
        lambda path: list(read_conllu(path, "upos")),
        TEN,
        {
            TEN.replace("\t", " "): "line 1",
            TEN.replace("1\ta", "1\t "): "words",
        },
    ),
    "squad": (
        lambda path: read_squad(path, training=True),
        json.dumps(SQUAD),
        {
            "": "",
            "[" * 100_000: "",
            json.dumps(SQUAD).replace("id", "identifier"): "`id`",
            json.dumps(SQUAD).replace('[{"text', '{"text').replace("0}]", "0}"): "`answers`",
            '{"data": [{"id": "1", "context": "x"}]}': "`paragraphs`",
        },
    ),
    "declaration": (
        declaration.read,
        json.dumps(TASK, indent=2),
        {"": "", "[]": "", '{"kind": "span",\n}': "line 2", "{}": "kind"},
    ),
}
# The damaged bytes of a text, and whether they are read all the same.
DAMAGE = {
    "byte order mark": (lambda text: b"\xef\xbb\xbf" + text.encode(), True),
    "UTF-16, little endian": (lambda text: b"\xff\xfe" + text.encode("utf-16-le"), True),
    "UTF-16, big endian": (lambda text: b"\xfe\xff" + text.encode("utf-16-be"), True),
    "UTF-32": (lambda text: text.encode("utf-32"), True),
    "carriage returns before line feeds": (lambda text: text.replace("\n", "\r\n").encode(), True),
    "UTF-16 without a mark": (lambda text: text.encode("utf-16-le"), False),
    "UTF-16 that is cut": (lambda text: text.encode("utf-16")[:-1], False),
    "binary": (lambda text: bytes(range(256)), False),
    "gzip": (lambda text: gzip.compress(text.encode()), False),
    "Latin-1": (lambda text: (text.rstrip("}]\n") + "é").encode("latin-1"), False),
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("reader", READERS)
def test_bytes(tmp_path, reader, damage):
    read, text, _ = READERS[reader]
    path = tmp_path / "the.file"
    path.write_text(text, encoding="utf-8")
    expected = read(str(path))
    damaged, is_read = DAMAGE[damage]
    path.write_bytes(damaged(text))
    if is_read:
        assert read(str(path)) == expected
    else:
        with rejects(str(path)):
            read(str(path))


@pytest.mark.parametrize("reader", READERS)
def test_texts(tmp_path, reader):
    read, _, cases = READERS[reader]
    path = tmp_path / "the.file"
    for text, named in cases.items():
        path.write_text(text, encoding="utf-8", newline="")
        if named is None:
            read(str(path))
            continue
        with rejects(str(path), named):
            read(str(path))
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(OSError) as missing:
            read(str(path))
        assert missing.value.filename == str(path)


@pytest.mark.parametrize(
    ("read", "field"),
    [
        (lambda path: read_table(path, False, COLUMNS, header=False), "text_a"),
        (lambda path: read_conll(path, {"words": 0, "tags": "ner"}), "tags"),
        (lambda path: read_conll(path, {"words": 0, "tags": 9}), "tags"),
    ],
)
def test_columns_that_a_format_cannot_have(tmp_path, read, field):
    (tmp_path / "the.file").write_text(WORDS)
    with rejects(f"`{field}`"):
        list(read(str(tmp_path / "the.file")))


@pytest.mark.parametrize("space", ["\u00a0", "\u202f", "\u3000", "\u0085", "\x0b"])
def test_only_spaces_and_tabs_separate_columns(tmp_path, space):
    words = [f"10{space}000", f"{space}", "x"]
    for separator in (" ", "   ", "\t", " \t"):
        (tmp_path / "a.conll").write_text("".join(f"{word}{separator}O\n" for word in words))
        ((_, row),) = read_conll(str(tmp_path / "a.conll"), {"words": 0, "tags": -1})
        assert row["words"] == words
    (tmp_path / "a.conll").write_text("a\nb\n")  # a test split, whose tags are hidden
    for tags in (1, 3, -1):
        columns = {"words": 0, "tags": tags}
        ((_, row),) = read_conll(str(tmp_path / "a.conll"), columns, tagged=False)
        assert (row["words"], row["tags"]) == (["a", "b"], None)
