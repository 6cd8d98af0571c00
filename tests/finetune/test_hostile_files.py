"""Files that are not what they should be: each reader reads them, or names file, place and cause.

A table per reader: what is in the file -> None, or what the error says after the path.
"""

import contextlib
import gzip
import json

import pytest

from errors import InputError
from finetune import declaration
from finetune.catalogue import load_task, load_tasks
from finetune.declaration import parse
from finetune.readers.conll import read_conll, read_conllu
from finetune.readers.tables import read_jsonl, read_table
from finetune.squad.examples import read_squad
from finetune.task_files import read_split, resolve_labels

COLUMNS = {"text_a": "review", "label": "stars"}
TABLE = "stars,review\ngood,fine film\nbad,poor film\n"
WORDS = "Jean NNP B-X\nruns V O\n\nThey P O\n"
TEN = "1\ta\t_\tX\t_\t_\t_\t_\t_\t_\n2\tb\t_\tY\t_\t_\t_\t_\t_\t_\n"
CONTEXT = "Ada was in London."
QUESTION = {"id": "q7", "question": "Who?", "answers": [{"text": "Ada", "answer_start": 0}]}
TASK = {
    "kind": "classification",
    "files": {"train": "train.csv", "dev": "dev.csv"},
    "columns": COLUMNS,
}


def squad(**changes):
    question = {key: value for key, value in (QUESTION | changes).items() if value is not None}
    return json.dumps({"data": [{"paragraphs": [{"context": CONTEXT, "qas": [question]}]}]})


# Reader -> a correct file, how it is read.
READERS = {
    "csv": (TABLE, lambda path: list(read_table(path, True, COLUMNS))),
    "tsv": (TABLE.replace(",", "\t"), lambda path: list(read_table(path, False, COLUMNS))),
    "numbered": (
        "good\tfine\nbad\tpoor\n",
        lambda path: list(read_table(path, False, {"text_a": 1, "label": -2}, header=False)),
    ),
    "jsonl": (
        '{"stars": "good", "review": "fine"}\n{"stars": "bad", "review": "poor"}\n',
        lambda path: list(read_jsonl(path, COLUMNS)),
    ),
    "conll": (WORDS, lambda path: list(read_conll(path, {"words": 0, "tags": -1}))),
    "conllu": (TEN, lambda path: list(read_conllu(path, "upos"))),
    "squad": (squad(), lambda path: read_squad(path, training=True)),
    "declaration": (json.dumps(TASK, indent=2), declaration.read),
}
BINARY, COMPRESSED = ", line 1: .*text in UTF-8.*NUL bytes", ": .*text in UTF-8.*"
# Damage -> the damaged bytes of a text; what the error says, None where it is read all the same.
DAMAGE = {
    "byte order mark": (lambda text: b"\xef\xbb\xbf" + text.encode(), None),
    "UTF-16, little endian": (lambda text: b"\xff\xfe" + text.encode("utf-16-le"), None),
    "UTF-16, big endian": (lambda text: b"\xfe\xff" + text.encode("utf-16-be"), None),
    "UTF-32": (lambda text: text.encode("utf-32"), None),
    "carriage returns before line feeds": (lambda text: text.replace("\n", "\r\n").encode(), None),
    "UTF-16 without a mark": (lambda text: text.encode("utf-16-le"), BINARY),
    "UTF-16 that is cut": (lambda text: text.encode("utf-16")[:-1], ": .*UTF-16.* after line"),
    "binary": (lambda text: bytes(range(256)), BINARY),
    "zeros": (lambda text: bytes(5000), BINARY),
    "gzip": (lambda text: gzip.compress(text.encode()), COMPRESSED + "gzip"),
    "Excel": (lambda text: b"PK\x03\x04\x14\x00\x06\x00", COMPRESSED + "Excel"),
    "Latin-1": (
        lambda text: (text.rstrip("}]\n") + "é").encode("latin-1"),
        r", line \d+: the file should be UTF-8\. Received: b'.xe9' at byte \d+",
    ),
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("reader", READERS)
def test_bytes(tmp_path, reader, damage):
    text, read = READERS[reader]
    path = tmp_path / "the.file"
    path.write_text(text, encoding="utf-8")
    expected = read(str(path))
    damaged, message = DAMAGE[damage]
    path.write_bytes(damaged(text))
    raised = pytest.raises(InputError, match=f"^{path}{message}")
    with raised if message else contextlib.nullcontext():
        assert read(str(path)) == expected


@pytest.mark.parametrize("reader", READERS)
def test_a_folder_and_no_file(tmp_path, reader):
    read = READERS[reader][1]
    for path, reason in ((tmp_path, "directory"), (tmp_path / "none", "No such file")):
        with pytest.raises(InputError, match=f"^{path}: cannot be read .*{reason}"):
            read(str(path))


@pytest.mark.parametrize(
    "reader", [name for name in READERS if name not in ("squad", "declaration")]
)
def test_carriage_returns_alone(tmp_path, reader):
    text, read = READERS[reader]
    (tmp_path / "the.file").write_text(text.replace("\n", "\r"), newline="")
    with pytest.raises(InputError, match=r"the\.file: each line should end in a line feed"):
        read(str(tmp_path / "the.file"))


CASES = {
    "csv": [
        # a carriage return in a text of a file that has line feeds
        (TABLE + 'good,"a\rb"\n', None),
        (TABLE + "good,a\rb\n", ", line 4: .*a carriage return outside"),
        (TABLE + 'good,"never closed\nbad,x\n', ", line 4: .*never closed"),
        (TABLE + 'good,"a" b\n', ", line 4: .*separated by commas"),
        (TABLE + 'good,"a\nb",c\n', ", line 4: should have 2 fields.* 3 .*line 5.*quotation mark"),
        (TABLE + 'good,"a\nb"\nbad\n', ", line 6: should have 2 fields.*Received: 1 .*commas"),
        ("stars,reviews\n", ", line 1: .*'review' for `text_a`.*Did you mean `reviews`"),
        ("stars,review,review\ngood,a,b\n", ", line 1: .*'review' for `text_a`.*2 of that name"),
        ("stars|review\ngood|a\n", r", line 1: .*`text_a`\..*stars\|review .*`delimiter`"),
        ("stars;text\ngood;a\n", ", line 1: .*`text_a`.*stars;text .*semicolons.*`delimiter`"),
        ('{"stars": "good"}\n', ", line 1: "),
        ("", None),
    ],
    "tsv": [
        ("stars,review\ngood,a\n", r", line 1: .*`text_a`\. .*stars,review .*commas.*`delimiter`"),
        ("stars\treview\ngood,a\n", ", line 2: should have 2 fields.*tabs"),
        ("stars\treview\ngood\ta\x00b\n", None),
        ("stars\trev\x07iew\n", r", line 1: .*'rev\\x07iew'"),
        ("\t".join(f"column{i}" for i in range(999)), r", line 1: .*`text_a`.{,400}$"),
    ],
    "numbered": [
        ("good\n", ", line 1: .*column 1 for `text_a`. Received: 1 columns"),
    ],
    "jsonl": [
        ('[{"stars": "good", "review": "a"},\n', ", line 1: .*not be in an array"),
        ('[{"stars": "good", "review": "a"}]', ", line 1: .*not be in an array"),
        ('{"stars": "good", "review": "a"}\n{"revi', ", line 2: should be one JSON object"),
        ('{\n"stars": "good"\n}\n', ", line 1: .*on one line"),
        ("stars,review\n", ", line 1: should be one JSON object.*'stars,review'"),
        ("{}\n", ", line 1: .*key 'review' for `text_a`.*no keys"),
        ('{"review": "a", "star": 1}', ", line 1: .*'stars' for `label`.*`star`"),
        ('{"review": "a \\ud83d b", "stars": ""}', r", line 1: `text_a` .*: '\\ud83d'"),
        ('{"review": "a", "stars": ["\\ude00"]}', r", line 1: `label` .*: '\\ude00'"),
        ('{"review": "a", "stars": "\\ud83d\\ude00"}', None),  # a whole pair is a character
    ],
    "conll": [
        ("Jean B-X\nx y O\n", ", line 2: should have 2 columns.*Received: 3, 'x y O'"),
        ("Jean\nruns\n", ", line 1: `words` and `tags` should be different columns"),
        ("Jean,B-X\nruns,O\n", ", line 1: `words` and `tags` should be different columns"),
        ("Jean\t\n", ", line 1: `tags` should not be empty"),
        ("Jean\t\u00a0\n", ", line 1: `tags` should not be empty"),
        ("\tO\n", ", line 1: `words` should not be empty"),
    ],
    "conllu": [
        (TEN.replace("\t", " "), ", line 1: should have the ten columns.*separated by tabs"),
        (TEN.replace("1\ta", "x\ta"), ", line 1: the id should be a number.*Received: 'x'"),
        (TEN.replace("1\ta", "1\t "), ", line 1: `words` should not be empty"),
        (TEN.replace("1\ta", "1\ta\u00a0b"), None),
    ],
    "squad": [
        ("", ", line 1: not JSON .*empty"),
        ("{}\n{}", ", line 2: not JSON"),
        (squad(answers=[{"text": "London", "answer_start": 3}]), ", question q7: .* 3 .* at 11"),
        (squad(answers=[{"text": "Rome", "answer_start": 3}]), ", question q7: .*occurs nowhere"),
        (squad(id=None), r", data\[0\].paragraphs\[0\].qas\[0\]: `id`"),
        (squad(answers={"text": ["Ada"]}), ", question q7: `answers` should be a list"),
        ('{"data": [{"id": "1", "context": "x"}]}', r", data\[0\]: `paragraphs`"),
        ("[" * 100_000, ": .*too deep"),
    ],
    "declaration": [
        ("", ", line 1: not JSON .*empty"),
        ("[]", ": should be a JSON object"),
        ('{"kind": "span",}', ", line 1: not JSON"),
        ("{}", ": .*the key 'kind'"),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("reader", "text", "message"),
    [(name, text, message) for name, cases in CASES.items() for text, message in cases],
)
def test_texts(tmp_path, reader, text, message):
    path = tmp_path / "the.file"
    path.write_text(text, encoding="utf-8", newline="")
    raised = pytest.raises(InputError, match=f"(?s)^{path}{message}")
    with raised if message else contextlib.nullcontext():
        READERS[reader][1](str(path))


@pytest.mark.parametrize(
    ("read", "field"),
    [
        (lambda path: read_table(path, False, COLUMNS, header=False), "text_a"),
        (lambda path: read_conll(path, {"words": 0, "tags": "ner"}), "tags"),
        (lambda path: read_conll(path, {"words": 0, "tags": 9}), "tags"),
        (lambda path: read_conllu(path, "feats"), "tags"),
    ],
)
def test_columns_that_a_format_cannot_have(tmp_path, read, field):
    (tmp_path / "the.file").write_text(WORDS)
    with pytest.raises(InputError, match=f"^{tmp_path / 'the.file'}.*`{field}`"):
        list(read(str(tmp_path / "the.file")))


# ---------------------------------------------------------------- tables with other delimiters


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (TABLE.replace(",", ";"), "semicolons"),
        (TABLE.replace(",", "\t"), "tabs"),
        ('"stars";"review"\r\n"good";"fine film"\r\nbad;poor film\r\n', "semicolons"),
        ("\ufeff\n stars ; review \ngood;fine film\nbad;poor film", "semicolons"),
    ],
)
def test_a_csv_with_other_delimiters_is_read_and_said_so_once(tmp_path, capsys, content, name):
    path = tmp_path / "train.csv"
    path.write_text(content, encoding="utf-8", newline="")
    for _ in range(2):
        rows = [row for _, row in read_table(str(path), True, COLUMNS)]
        assert rows == [
            {"text_a": "fine film", "label": "good"},
            {"text_a": "poor film", "label": "bad"},
        ]
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"warning: {path}: read as separated by {name}")
    assert '"delimiter"' in line


def test_commas_are_not_taken_for_something_else(tmp_path, capsys):
    path = tmp_path / "train.csv"
    path.write_text("stars,review,a;b\ngood,fine;film,x\n")
    assert [row for _, row in read_table(str(path), True, COLUMNS)] == [
        {"text_a": "fine;film", "label": "good"}
    ]
    assert capsys.readouterr().err == ""


def write_task(folder, **changes):
    (folder / "own.json").write_text(json.dumps(TASK | changes))
    return str(folder / "own.json")


@pytest.mark.parametrize(
    ("changes", "content"),
    [
        ({"delimiter": ";"}, TABLE.replace(",", ";")),
        ({"delimiter": "|"}, TABLE.replace(",", "|")),
        ({"delimiter": "|", "format": "tsv"}, TABLE.replace(",", "|").replace("fine", '"fine')),
        (
            {"delimiter": ";", "header": False, "columns": {"text_a": 1, "label": 0}},
            "good;fine film\nbad;poor film\n",
        ),
    ],
)
def test_a_declared_delimiter(tmp_path, capsys, changes, content):
    (tmp_path / "train.csv").write_text(content)
    task = load_task(write_task(tmp_path, labels=["bad", "good"], **changes))
    first, second = read_split(task, "", "train")
    assert (first.text_a.removeprefix('"'), first.label, second.label) == ("fine film", 1, 0)
    assert capsys.readouterr().err == ""
    assert parse(json.loads(json.dumps(task.to_json())), "task") == task


def test_a_task_without_a_name_has_the_files_or_the_folders(tmp_path):
    assert load_task(write_task(tmp_path)).name == "own"
    folder = tmp_path / "reviews"
    folder.mkdir()
    (folder / ".json").write_text(json.dumps(TASK))
    assert load_task(str(folder / ".json")).name == "reviews"
    with pytest.raises(InputError, match=f"Received: '{folder}', a folder"):
        load_task(str(folder))


def test_two_tasks_of_one_name(tmp_path):
    """Their results would be in one folder."""
    paths = []
    for name in ("films", "books"):
        (tmp_path / name).mkdir()
        paths.append(str(tmp_path / name / "task.json"))
        (tmp_path / name / "task.json").write_text(json.dumps(TASK))
    assert [task.name for task in load_tasks([paths[0], "cola", paths[0]])] == [
        *("task", "cola", "task")
    ]
    with pytest.raises(InputError, match=rf"^{paths[1]}: .*`name`.*'task', as {paths[0]} has"):
        load_tasks(paths)


# ---------------------------------------------------------------- splits


def read_all(task):
    task = resolve_labels(task, "")
    return [read_split(task, "", split) for split in ("train", "dev")]


MANY = "".join(f"label{i},a\n" for i in range(500))
JSONL = {"files": {"train": "train.jsonl", "dev": "dev.jsonl"}}
SCORES = {"kind": "regression", "label_range": [1, 5]}


@pytest.mark.parametrize(
    ("changes", "train", "dev", "message"),
    [
        # Labels are collected before examples are read: the cause is not that there are too few.
        ({}, "", "", "train.csv: .*train split.*the file is empty"),
        ({}, "\ufeff\r\n\n", "", "train.csv: .*train split.*is empty"),
        ({}, "stars,review\n", "", "train.csv: .*train split.*column names"),
        ({}, "stars,review\n,a\n", "", "train.csv, line 2: the label .*empty"),
        ({}, "stars,review\n1,a\n", "", "train.csv: .*two labels"),
        (JSONL, '{"stars": ["good"], "review": "a"}\n', "", r"train.jsonl, line 1: .*\['good'\]"),
        ({}, TABLE, "stars,review\nugly,a\n", "dev.csv, line 2: .*bad, good, .*split.*'ugly'"),
        (
            {},
            "stars,review\n" + MANY,
            "stars,review\nugly,a\n",
            "dev.csv, line 2: .{,600}460 others",
        ),
        (SCORES, "stars;review\n4,5;a\n", "", "train.csv, line 2: .*decimal point.*: '4,5'"),
    ],
)
def test_splits(tmp_path, changes, train, dev, message):
    task = load_task(write_task(tmp_path, **changes))
    for split, content in (("train", train), ("dev", dev)):
        (tmp_path / task.files[split]).write_text(content, encoding="utf-8", newline="")
    with pytest.raises(InputError, match=f"^{tmp_path}/{message}"):
        read_all(task)


def test_a_folder_in_place_of_a_file(tmp_path):
    task = load_task(write_task(tmp_path))
    with pytest.raises(InputError, match=rf"train.csv: .* should be in {tmp_path}\. Received"):
        resolve_labels(task, str(tmp_path))  # which is named once
    (tmp_path / "train.csv").mkdir()
    with pytest.raises(InputError, match=r"train\.csv: .*train\.csv, which is a folder"):
        resolve_labels(task, "")


@pytest.mark.parametrize(("name", "what"), [("nowhere", "no such folder"), ("own.json", "a file")])
def test_a_data_dir_that_is_none(tmp_path, name, what):
    """It was passed over where the files lie beside the declaration."""
    (tmp_path / "train.csv").write_text(TABLE)
    task = load_task(write_task(tmp_path))
    with pytest.raises(InputError, match=f"{name}: --data_dir.*own.*{what}"):
        resolve_labels(task, str(tmp_path / name))


# ---------------------------------------------------------------- CoNLL


def conll(folder, content, split="train", **changes):
    folder.joinpath(f"{split}.conll").write_text(content, encoding="utf-8", newline="")
    declared = {
        "kind": "tagging",
        "files": {name: f"{name}.conll" for name in ("train", "dev", "test")},
        "columns": {"words": 0, "tags": -1},
        "labels": ["B-X", "I-X", "O"],
        **changes,
    }
    (folder / "own.json").write_text(json.dumps(declared))
    task = load_task(str(folder / "own.json"))
    return [(example.words, example.tags) for example in read_split(task, "", split)]


@pytest.mark.parametrize("space", ["\u00a0", "\u202f", "\u2009", "\u3000", "\u0085", "\x0b"])
def test_only_spaces_and_tabs_separate_columns(tmp_path, space):
    words = (f"10{space}000", f"{space}", "x")
    for separator in (" ", "   ", "\t", " \t"):
        content = "".join(
            f"{word}{separator}{tag}\n" for word, tag in zip(words, ["B-X", "I-X", "O"])
        )
        assert conll(tmp_path, content) == [(words, (0, 1, 2))]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (  # spaces around columns
            " a  B-X \nb\tO \n c\tO\u00a0\n\t\n \t \nd O\n",
            [(("a", "b", "c"), (0, 2, 2)), (("d",), (2,))],
        ),
        (  # which ends a sentence
            "-DOCSTART- -X- O\nJean N B-X\n-DOCSTART- O\nruns V O\n\n-DOCSTART-\n\n",
            [(("Jean",), (0,)), (("runs",), (2,))],
        ),
        ("a I-X\nb B-X\nc O\n", [(("a", "b", "c"), (1, 0, 2))]),  # no scheme is converted
    ],
)
def test_conll_sentences(tmp_path, content, expected):
    assert conll(tmp_path, content) == expected


@pytest.mark.parametrize("tags", [1, 3, -1])
def test_a_test_split_without_a_column_of_tags(tmp_path, tags):
    columns = {"words": 0, "tags": tags}
    assert conll(tmp_path, "a\nb\n", "test", columns=columns) == [(("a", "b"), None)]
