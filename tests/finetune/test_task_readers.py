"""Readers of tables, JSON lines, CoNLL and treebanks: what they read, and what they reject."""

import contextlib
import dataclasses
import gzip
import json

import pandas as pd
import pytest

from convbert.common.errors import InputError
from convbert.finetune import declaration
from convbert.finetune.declaration import load_task
from convbert.finetune.kinds.tagging import TaggedExample
from convbert.finetune.kinds.texts import TextExample
from convbert.finetune.readers.conll import read_conll, read_conllu
from convbert.finetune.readers.questions import read_squad
from convbert.finetune.readers.tables import Table, read_jsonl, read_table
from convbert.finetune.readers.treebank import files_of, read_treebank
from convbert.finetune.task_files import read_split, resolve_labels
from tests.finetune.kinds_support import rejects, task_of


def own(kind, file_format, columns, **fields):
    fields = {"labels": ("bad", "good"), "test": ("test",), **fields}
    return task_of(kind, format=file_format, columns=columns, **fields)


def read(folder, task, content, split="train"):
    content = content if isinstance(content, bytes) else content.encode()
    (folder / task.files[split]).write_bytes(content)
    return read_split(task, str(folder), split)


COLUMNS = {"text_a": "review", "label": "stars"}
CSV = own("classification", "csv", COLUMNS)
TSV = own("classification", "tsv", COLUMNS)
IDENTIFIED = own("classification", "csv", {**COLUMNS, "id": "id"})
JSONL = own("classification", "jsonl", COLUMNS)
NUMBERED = own("classification", "tsv", {"text_a": 0, "label": -1}, header=False)
SCORED = own("regression", "csv", COLUMNS, labels=(), label_range=(1.0, 5.0))


def test_csv_is_quoted_and_tsv_is_not(tmp_path):
    content = '\ufeffid , stars,review\r\n1,good,"a, ""b""\r\nc"\r\n\r\n2,bad,5" wide\r\n'
    assert [e.text_a for e in read(tmp_path, CSV, content)] == ['a, "b"\r\nc', '5" wide']
    content = 'stars\treview\ngood\t"a, ""b""\n\nbad\t\'b\n'
    assert [e.text_a for e in read(tmp_path, TSV, content)] == ['"a, ""b""', "'b"]
    content = "good text\t3\tgood\nbad text\t3\tbad"
    expected = [("0", "good text", None, 1), ("1", "bad text", None, 0)]
    assert read(tmp_path, NUMBERED, content) == [TextExample(*row) for row in expected]


def test_pairs_ids_and_hidden_labels(tmp_path):
    columns = {"text_a": "a", "text_b": "b", "label": "y", "id": "key"}
    task = own("classification", "jsonl", columns, labels=("True", "1"))
    rows = [{"key": 7, "a": "x", "b": "y", "y": True}, {"key": "k", "a": "x", "b": "y", "y": 1.0}]
    content = "\n".join(map(json.dumps, rows)) + "\n\n"
    expected = [TextExample("7", "x", "y", 0), TextExample("k", "x", "y", 1)]
    assert read(tmp_path, task, content) == expected
    hidden = [{"key": 8, "a": "x", "b": "y"}, {"key": 9, "a": "x", "b": "y", "y": None}]
    examples = read(tmp_path, task, "\n".join(map(json.dumps, hidden)), "test")
    assert [example.label for example in examples] == [None, None]
    labelled = read(tmp_path, CSV, "review,stars\nfine,good\nnot,\n", "test")
    assert [example.label for example in labelled] == [1, None]


CONLL = own("tagging", "conll", {"words": 0, "tags": -1}, labels=("B-X", "I-X", "O"))


def test_conll_columns(tmp_path):
    content = "-DOCSTART- -X- O\n\nJean NNP B-X\nPaul  NNP I-X\n\n \n# . O\n\n-DOCSTART- -X- O\n"
    expected = [TaggedExample("0", ("Jean", "Paul"), (0, 1)), TaggedExample("1", ("#",), (2,))]
    assert read(tmp_path, CONLL, content) == expected
    tabs = "New York\tB-X\r\n\r\na b\tO"
    assert [e.words for e in read(tmp_path, CONLL, tabs)] == [("New York",), ("a b",)]
    layout = {"test": {"columns": {"words": 0}}}
    words_only = own("tagging", "conll", {"words": 0, "tags": 1}, per_split=layout)
    assert read(tmp_path, words_only, "a\nb\n", "test") == [TaggedExample("0", ("a", "b"), None)]


def test_collected_tags(tmp_path):
    rows = "1\ta\t_\tX\tNN\t_\t_\t_\t_\t_\n2\tb\t_\tX\t,\t_\t_\t_\t_\t_\n"
    (tmp_path / "train.conllu").write_text(rows, encoding="utf-8")
    task = resolve_labels(own("tagging", "conllu", {"tags": "xpos"}, labels=()), str(tmp_path))
    assert task.labels == (",", "NN")
    assert read_split(task, str(tmp_path), "train")[0].tags == (1, 0)


def test_collected_labels_are_in_the_order_of_numbers(tmp_path):
    """So the second of two labels, whose F1 is measured, is the positive one."""
    columns = {"text_a": "a", "label": "y"}
    (tmp_path / "train.csv").write_text("a,y\nx,10\nx,1\nx,-1\nx,9\nx,b\n")
    task = resolve_labels(own("classification", "csv", columns, labels=()), str(tmp_path))
    assert task.labels == ("-1", "1", "9", "10", "b")


SEVERAL = {"text_a": "text", "label": "topics"}
TOPICS = own("multi_label", "jsonl", SEVERAL, labels=("film", "music", "sport"))
LISTED = [("a", ["sport", "film"]), ("b", []), ("c", ["music", "sport"])]


def topics(*rows):
    return "".join(json.dumps(dict(zip(("text", "topics"), row))) + "\n" for row in rows)


@pytest.mark.parametrize(
    ("ending", "content"),
    [("csv", "text,topics\na,sport|film\nb,\nc, music | sport \n"), ("jsonl", topics(*LISTED))],
)
def test_several_labels_are_lists_or_cells(tmp_path, ending, content):
    (tmp_path / f"train.{ending}").write_text(content)
    task = resolve_labels(own("multi_label", ending, SEVERAL, labels=()), str(tmp_path))
    assert task.labels == TOPICS.labels
    found = [task.plugin.gold(task, x) for x in read_split(task, str(tmp_path), "train")]
    assert found == [["film", "sport"], [], ["music", "sport"]]
    if ending == "csv":  # pandas reads an empty cell as NaN
        table = Table("table", pd.read_csv(tmp_path / "train.csv"))
        own_rows = read_split(task, {"train": table}, "train")
        assert [task.plugin.gold(task, x) for x in own_rows] == found


SCORED_LINES = dataclasses.replace(SCORED, format="jsonl", files=JSONL.files)
TAGGED = own("tagging", "jsonl", {"words": "tokens", "tags": "ner"}, labels=("0", "1"))


@pytest.mark.parametrize(
    ("task", "content", "named"),
    [
        (CSV, "stars,review\n", "train"),
        (CSV, "stars;review\ngood;a\n", "should have columns with commas"),
        (IDENTIFIED, "id,stars,review\n1,good,a\n2,good,a\n1,bad,b\n", "'1'"),
        (CSV, "stars,review\ngood, \n", "line 2: `text_a`"),
        (CSV, "stars,review\ngod,a\n", "line 2"),
        (SCORED, "stars,review\nnan,a\n", "label_range"),
        (SCORED_LINES, f'{{"review": "a", "stars": {"9" * 400}}}', "label_range"),
        (JSONL, '{"review": 3, "stars": "bad"}', "`text_a`"),
        (JSONL, '{"review": "a", "stars": ["good"]}', "line 1"),
        (TAGGED, '{"tokens": ["a", "b"], "ner": [1]}', "`tags`"),
        (TAGGED, '{"tokens": ["a", "b"], "ner": "AB"}', "`tags`"),
        (TAGGED, '{"tokens": "a b", "ner": [1]}', "`words`"),
        (TAGGED, '{"tokens": ["a", ""], "ner": [1, 1]}', "`words`"),
        (CONLL, "a O\nb O\n\nc B-X\nd Y\n", "line 4: labels"),
        (TOPICS, topics(LISTED[0], ("b", ["sport", "sprot"])), "line 2"),
        (TOPICS, topics(LISTED[0], ("b", 3)), "line 2"),
        (TOPICS, topics(LISTED[0], ("b", [None])), "line 2"),
    ],
)
def test_mistakes_in_files(tmp_path, task, content, named):
    with rejects(f"{tmp_path}/train.{task.format}", named):
        read(tmp_path, task, content)


POS = """*x*x*x*x*x*
======================================

[ The/DT fund/NN ]
rose/VBD 3\\/4/CD ,/,
[ targeting/VBG|NN equipment/NN ]

[ that/WDT ]
sells/VBZ (/( US$/$ )/) ./.

''/''

``/`` No/DT ./. ''/''
[ Next/JJ ]
======================================
[ A/DT heading/NN ]
"""


def test_pos_files(tmp_path):
    (tmp_path / "a.pos").write_text(POS)
    rows = list(read_treebank(str(tmp_path / "a.pos")))
    pairs = [zip(row["words"], row["tags"]) for _, row in rows]
    assert [" ".join(map("_".join, own)) for own in pairs] == [
        "The_DT fund_NN rose_VBD 3/4_CD ,_, targeting_VBG equipment_NN that_WDT sells_VBZ (_( "
        "US$_$ )_) ._. ''_''",
        "``_`` No_DT ._. ''_'' Next_JJ",
        "A_DT heading_NN",
    ]
    assert str(rows[1][0]) == f"{tmp_path / 'a.pos'}, line 13"
    (tmp_path / "b.pos").write_text("[ The/DT fund ]\n")  # a word without a tag
    with pytest.raises(InputError):
        list(read_treebank(str(tmp_path / "b.pos")))


def test_splits_are_lists_and_sections(tmp_path):
    wsj = tmp_path / "wsj"
    for number in range(25):
        folder = wsj / f"{number:02}" if number % 2 else wsj
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"wsj_{number:02}07.pos").write_text(f"[ word{number}/NN ] ./.\n")
    task = load_task("ptb")
    labelled = resolve_labels(task, str(tmp_path))
    assert labelled.labels == (".", "NN")
    for split, numbers in zip(task.splits, (range(19), range(19, 22), range(22, 25))):
        for place in (tmp_path, wsj):
            found = read_split(labelled, str(place), split)
            assert [x.words for x in found] == [(f"word{number}", ".") for number in numbers]
    (wsj / "train.files").write_text("# mine\nwsj_00*.pos\n01/wsj_0107.pos\n")
    found = read_split(labelled, str(wsj), "train")
    assert [x.words[0] for x in found] == ["word0", "word1"]
    (wsj / "dev.files").write_text("\nnothing.pos\n")
    with pytest.raises(InputError):
        read_split(labelled, str(wsj), "dev")
    (wsj / "03" / "wsj_0307.pos").unlink()
    with pytest.raises(InputError):
        files_of(str(wsj) + "@00-18")


TABLE = "stars,review\ngood,fine film\nbad,poor film\n"
WORDS = "Jean NNP B-X\nruns V O\n\nThey P O\n"
TEN = "1\ta\t_\tX\t_\t_\t_\t_\t_\t_\n2\tb\t_\tY\t_\t_\t_\t_\t_\t_\n"
QUESTION = {"id": "q7", "question": "Who?", "answers": [{"text": "Ada", "answer_start": 0}]}
SQUAD = {"data": [{"paragraphs": [{"context": "Ada was in London.", "qas": [QUESTION]}]}]}
TASK = {"kind": "classification", "files": {"train": "a.csv", "dev": "b.csv"}, "columns": COLUMNS}
# Reader -> how it reads a file.
READERS = {
    "csv": lambda path: list(read_table(path, True, COLUMNS)),
    "jsonl": lambda path: list(read_jsonl(path, COLUMNS)),
    "conll": lambda path: list(read_conll(path, {"words": 0, "tags": -1})),
    "conllu": lambda path: list(read_conllu(path, "upos")),
    "squad": lambda path: list(read_squad(path)),
    "declaration": declaration.read,
}
CORRECT = {
    "csv": TABLE,
    "jsonl": '{"stars": "good", "review": "fine"}\n{"stars": "bad", "review": "poor"}\n',
    "conll": WORDS,
    "conllu": TEN,
    "squad": json.dumps(SQUAD),
    "declaration": json.dumps(TASK, indent=2),
}
# Files with the line or field that the error names (None: they are read).
CASES = {
    "csv": {
        TABLE + 'good,"never closed\nbad,x\n': "line 4",
        TABLE + 'good,"a\nb"\nbad\n': "line 6",
        "stars,review,review\ngood,a,b\n": "text_a",
        "stars;review\ngood;a\n": "commas",
    },
    "jsonl": {
        '[{"stars": "good", "review": "a"}]': "line 1",
        '{"stars": "good", "review": "a"}\n{"revi': "line 2",
        "{}\n": "review",
        '{"review": "a \\ud83d b", "stars": ""}': "line 1",
        '{"review": "a", "stars": "\\ud83d\\ude00"}': None,  # a whole pair is a character
    },
    "conll": {
        "Jean B-X\nx y O\n": "line 2",
        **{"Jean\nruns\n": "tags", "Jean\t\u00a0\n": "tags", "\tO\n": "words"},
    },
    "conllu": {TEN.replace("\t", " "): "line 1", TEN.replace("1\ta", "1\t "): "words"},
    "squad": {
        "[" * 100_000: "",
        json.dumps(SQUAD).replace("id", "identifier"): "`id`",
        '{"data": [{"id": "1", "context": "x"}]}': "`paragraphs`",
    },
    "declaration": {"": "", "[]": "", '{"kind": "span",\n}': "line 2", "{}": "kind"},
}
# The damaged bytes of a text, and whether they are read all the same.
DAMAGE = {
    "byte order mark": (lambda text: b"\xef\xbb\xbf" + text.encode(), True),
    "UTF-16, little endian": (lambda text: b"\xff\xfe" + text.encode("utf-16-le"), False),
    "carriage returns before line feeds": (lambda text: text.replace("\n", "\r\n").encode(), True),
    "UTF-16 without a mark": (lambda text: text.encode("utf-16-le"), False),
    "gzip": (lambda text: gzip.compress(text.encode()), False),
    "Latin-1": (lambda text: (text.rstrip("}]\n") + "é").encode("latin-1"), False),
}


@pytest.mark.parametrize("reader", READERS)
def test_texts(tmp_path, reader):
    path = tmp_path / "the.file"
    for text, named in CASES[reader].items():
        path.write_text(text, encoding="utf-8", newline="")
        with contextlib.nullcontext() if named is None else rejects(str(path), named):
            READERS[reader](str(path))


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("reader", READERS)
def test_bytes(tmp_path, reader, damage):
    read, text, path = READERS[reader], CORRECT[reader], tmp_path / "the.file"
    path.write_text(text, encoding="utf-8")
    expected = read(str(path))
    damaged, is_read = DAMAGE[damage]
    path.write_bytes(damaged(text))
    if is_read:
        assert read(str(path)) == expected
    else:
        with rejects(str(path)):
            read(str(path))


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
