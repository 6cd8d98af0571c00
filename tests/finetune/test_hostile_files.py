"""Files that are not what they should be: each reader reads them, or names file, place and cause.

A table per reader: what is in the file -> None, or what the error says after the path.
"""

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
    if message is None:
        assert read(str(path)) == expected
        return
    with pytest.raises(InputError, match=f"^{path}{message}"):
        read(str(path))


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
        (TABLE + "good\n", ", line 4: should have 2 fields.*Received: 1 .*commas"),
        ("stars,review,review\ngood,a,b\n", ", line 1: .*'review' for `text_a`.*2 of that name"),
        ("stars|review\ngood|a\n", r", line 1: .*`text_a`\..*stars\|review .*`delimiter`"),
        ("stars;text\ngood;a\n", ", line 1: .*`text_a`.*stars;text .*semicolons.*`delimiter`"),
        ('{"stars": "good"}\n', ", line 1: "),
        ("", None),
    ],
    "tsv": [
        ("stars,review\ngood,a\n", r", line 1: .*`text_a`\. .*stars,review .*commas.*`delimiter`"),
        ("stars;review\ngood;a\n", r", line 1: .*`text_a`\. .*semicolons.*`delimiter`"),
        ("stars\treview\ngood,a\n", ", line 2: should have 2 fields.*tabs"),
        ("stars\treview\ngood\ta\x00b\n", None),
        ("stars\trev\x07iew\n", r", line 1: .*'rev\\x07iew'"),
        ("\t".join(f"column{i}" for i in range(999)), r", line 1: .*`text_a`.{,400}$"),
    ],
    "jsonl": [
        ('[{"stars": "good", "review": "a"},\n', ", line 1: .*not be in an array"),
        ('[{"stars": "good", "review": "a"}]', ", line 1: .*not be in an array"),
        ('{\n"stars": "good"\n}\n', ", line 1: .*on one line"),
        ("stars,review\n", ", line 1: should be one JSON object.*'stars,review'"),
        ("{}\n", ", line 1: .*key 'review' for `text_a`.*no keys"),
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
    read = READERS[reader][1]
    if message is None:
        read(str(path))
        return
    with pytest.raises(InputError, match=f"(?s)^{path}{message}"):
        read(str(path))


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


def test_a_task_without_a_delimiter_is_described_as_before(tmp_path):
    assert "delimiter" not in load_task(write_task(tmp_path)).to_json()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"delimiter": ";;"}, "`delimiter` should be one character.*Received: ';;'"),
        ({"delimiter": '"'}, "`delimiter` should be one character"),
        ({"delimiter": "\n"}, "`delimiter` should be one character"),
        ({"delimiter": 3}, "`delimiter` should be a text"),
        (
            {"delimiter": ";", "files": {"train": "train.jsonl", "dev": "dev.jsonl"}},
            "`delimiter` should be given for tables.*jsonl",
        ),
        ({"files": {"train": "a.csv", "dev": "dev.tsv"}}, "of one format.*a.csv, dev.tsv"),
        ({"files": {"train": "a.json", "dev": "b.json"}}, "`format`.*tsv, csv, jsonl.*'a.json'"),
        ({"files": {"train": "a.csv.gz", "dev": "b.csv"}}, "`format`.*'a.csv.gz'"),
        ({"kind": "tagging", "columns": {"words": 0, "tags": 1}}, "`format`.*conll.*'train.csv'"),
        ({"kind": "clasification", "files": {"train": "x"}}, "`kind` should be one of"),
        ({"columns": {"text_a": "review", "label": "review"}}, "different.*'review' for both"),
        ({"format": "tfds"}, "`tfds` should name the dataset.*DATASET@SPLIT.*'train.csv'"),
        ({"name": ".."}, "`name`.*Received: '..'"),
        ({"name": "a\nb"}, "`name`"),
        ({"name": ""}, "`name` should be a text"),
        ({"name": None}, "`name` should be a text"),
    ],
)
def test_declarations(tmp_path, changes, message):
    path = write_task(tmp_path, **changes)
    with pytest.raises(InputError, match=f"(?s)^{path}: .*{message}"):
        load_task(path)


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


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "train.csv: the train split should hold examples.*the file is empty"),
        (b"\xef\xbb\xbf\r\n\n", "train.csv: the train split should hold examples.*is empty"),
        (b"stars,review\n", "train.csv: the train split should hold examples.*column names"),
        (b"stars,review\n,a\n", "train.csv, line 2: the label should not be empty"),
    ],
)
def test_what_holds_no_labels(tmp_path, content, message):
    """Labels are collected before examples are read: the cause is not that there are too few."""
    (tmp_path / "train.csv").write_bytes(content)
    with pytest.raises(InputError, match=message):
        resolve_labels(load_task(write_task(tmp_path)), "")


def test_a_folder_is_named_once(tmp_path):
    with pytest.raises(InputError, match=rf"train.csv: .* should be in {tmp_path}\. Received"):
        resolve_labels(load_task(write_task(tmp_path)), str(tmp_path))


def test_a_label_that_is_a_list(tmp_path):
    files = {"train": "train.jsonl", "dev": "dev.jsonl"}
    (tmp_path / "train.jsonl").write_text('{"stars": ["good"], "review": "a"}\n')
    with pytest.raises(InputError, match=r"line 1: the label should be a text.*\['good'\]"):
        resolve_labels(load_task(write_task(tmp_path, files=files)), "")


def test_a_label_that_the_training_split_lacks(tmp_path):
    (tmp_path / "train.csv").write_text(TABLE)
    (tmp_path / "dev.csv").write_text("stars,review\nugly,a\n")
    task = resolve_labels(load_task(write_task(tmp_path)), "")
    with pytest.raises(
        InputError, match=r"dev\.csv, line 2: .*bad, good, .*training split.*'ugly'"
    ):
        read_split(task, "", "dev")


def test_hundreds_of_labels_are_not_all_listed(tmp_path):
    rows = "".join(f"label{i},a\n" for i in range(500))
    (tmp_path / "train.csv").write_text("stars,review\n" + rows)
    (tmp_path / "dev.csv").write_text("stars,review\nugly,a\n")
    task = resolve_labels(load_task(write_task(tmp_path)), "")
    with pytest.raises(InputError, match="460 others") as caught:
        read_split(task, "", "dev")
    assert len(str(caught.value)) < 1000


def test_a_decimal_comma(tmp_path):
    (tmp_path / "train.csv").write_text("stars;review\n4,5;a\n")
    task = load_task(write_task(tmp_path, kind="regression", label_range=[1, 5]))
    with pytest.raises(InputError, match=r"train\.csv, line 2: .*decimal point.*Received: '4,5'"):
        read_split(task, "", "train")


def test_a_folder_in_place_of_a_file(tmp_path):
    (tmp_path / "train.csv").mkdir()
    with pytest.raises(
        InputError, match=r"train.csv: the train split.*train.csv, which is a folder"
    ):
        resolve_labels(load_task(write_task(tmp_path)), "")


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


def test_spaces_around_columns_are_no_part_of_them(tmp_path):
    assert conll(tmp_path, " a  B-X \nb\tO \n c\tO\u00a0\n\t\n \t \nd O\n") == [
        (("a", "b", "c"), (0, 2, 2)),
        (("d",), (2,)),
    ]


def test_docstart_ends_a_sentence_and_is_none(tmp_path):
    content = "-DOCSTART- -X- O\nJean N B-X\n-DOCSTART- O\nruns V O\n\n-DOCSTART-\n\n"
    assert conll(tmp_path, content) == [(("Jean",), (0,)), (("runs",), (2,))]


def test_no_scheme_is_converted(tmp_path):
    content = "a I-X\nb B-X\nc O\n"
    assert conll(tmp_path, content) == [(("a", "b", "c"), (1, 0, 2))]


@pytest.mark.parametrize("tags", [1, 3, -1])
def test_a_test_split_without_a_column_of_tags(tmp_path, tags):
    columns = {"words": 0, "tags": tags}
    assert conll(tmp_path, "a\nb\n", "test", columns=columns) == [(("a", "b"), None)]
