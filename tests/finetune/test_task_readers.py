import json

import pytest

from errors import InputError
from finetune.kinds.tagging import TaggedExample
from finetune.kinds.texts import TextExample
from finetune.task import Task
from finetune.task_files import read_split, resolve_labels


def task_of(kind, file_format, columns, **fields):
    files = {split: f"{split}.{file_format}" for split in ("train", "dev", "test")}
    return Task(
        name="own", kind=kind, files=files, format=file_format, columns=columns,
        **{"metrics": ("accuracy",), "labels": ("bad", "good"), **fields},
    )  # fmt: skip


def read(folder, task, content, split="train"):
    """The examples of a split whose file has this content."""
    content = content if isinstance(content, bytes) else content.encode()
    (folder / task.files[split]).write_bytes(content)
    return read_split(task, str(folder), split)


COLUMNS = {"text_a": "review", "label": "stars"}
CSV = task_of("classification", "csv", COLUMNS)
TSV = task_of("classification", "tsv", COLUMNS)
JSONL = task_of("classification", "jsonl", COLUMNS)
NUMBERED = task_of("classification", "tsv", {"text_a": 0, "label": -1}, header=False)
SCORED = task_of("regression", "csv", COLUMNS, labels=(), label_range=(1.0, 5.0))


def test_csv_is_quoted_and_tsv_is_not(tmp_path):
    content = '\ufeffid , stars,review\r\n1,good,"a, ""b""\r\nc"\r\n\r\n2,bad,5" wide\r\n'
    assert [e.text_a for e in read(tmp_path, CSV, content)] == ['a, "b"\r\nc', '5" wide']
    content = 'stars\treview\ngood\t"a, ""b""\n\nbad\t\'b\n'
    assert [e.text_a for e in read(tmp_path, TSV, content)] == ['"a, ""b""', "'b"]
    content = "good text\t3\tgood\nbad text\t3\tbad"
    assert read(tmp_path, NUMBERED, content) == [
        TextExample("0", "good text", None, 1),
        TextExample("1", "bad text", None, 0),
    ]


def test_pairs_ids_and_hidden_labels(tmp_path):
    columns = {"text_a": "a", "text_b": "b", "label": "y", "id": "key"}
    task = task_of("classification", "jsonl", columns, labels=("true", "1"))
    rows = [{"key": 7, "a": "x", "b": "y", "y": True}, {"key": "k", "a": "x", "b": "y", "y": 1.0}]
    content = "\n".join(map(json.dumps, rows)) + "\n\n"
    assert read(tmp_path, task, content) == [
        TextExample("7", "x", "y", 0),
        TextExample("k", "x", "y", 1),
    ]
    hidden = [{"key": 8, "a": "x", "b": "y"}, {"key": 9, "a": "x", "b": "y", "y": None}]
    examples = read(tmp_path, task, "\n".join(map(json.dumps, hidden)), "test")
    assert [example.label for example in examples] == [None, None]
    labelled = read(tmp_path, CSV, "review,stars\nfine,good\nnot,\n", "test")
    assert [example.label for example in labelled] == [1, None]


def test_columns_of_one_split(tmp_path):
    task = task_of(
        "classification", "tsv", {"text_a": "review", "label": "stars"},
        per_split={"dev": {"columns": {"text_a": 1, "label": 0}, "header": False}},
    )  # fmt: skip
    assert read(tmp_path, task, "good\tfine\n", "dev") == [TextExample("0", "fine", None, 1)]
    assert read(tmp_path, task, "stars\treview\ngood\tfine\n") == [
        TextExample("0", "fine", None, 1)
    ]


def test_numbers_as_labels(tmp_path):
    examples = read(tmp_path, SCORED, "stars,review\n1,a\n 4.5 ,b\n5e0,c\n")
    assert [example.label for example in examples] == [1.0, 4.5, 5.0]


CONLL = task_of(
    "tagging", "conll", {"words": 0, "tags": -1}, labels=("B-X", "I-X", "O"),
    metrics=("token_accuracy",),
)  # fmt: skip
CONLLU = task_of(
    "tagging", "conllu", {"tags": "xpos"}, labels=(), metrics=("token_accuracy",)
)  # fmt: skip


def test_conll_columns(tmp_path):
    content = "-DOCSTART- -X- O\n\nJean NNP B-X\nPaul  NNP I-X\n\n \n# . O\n\n-DOCSTART- -X- O\n"
    expected = [TaggedExample("0", ("Jean", "Paul"), (0, 1)), TaggedExample("1", ("#",), (2,))]
    assert read(tmp_path, CONLL, content) == expected
    tabs = "New York\tB-X\r\n\r\na\u00a0b\tO"
    assert [e.words for e in read(tmp_path, CONLL, tabs)] == [("New York",), ("a\u00a0b",)]
    words_only = task_of(
        "tagging", "conll", {"words": 0, "tags": 1}, labels=("A", "B"),
        per_split={"test": {"columns": {"words": 0}}},
    )  # fmt: skip
    assert read(tmp_path, words_only, "a\nb\n", "test") == [TaggedExample("0", ("a", "b"), None)]


def test_tags_of_json_lines(tmp_path):
    task = task_of("tagging", "jsonl", {"words": "tokens", "tags": "ner"}, labels=("0", "1"))
    assert read(tmp_path, task, '{"tokens": ["a", "b"], "ner": [1, 0]}') == [
        TaggedExample("0", ("a", "b"), (1, 0))
    ]
    with pytest.raises(InputError, match=r"line 1: `tags` should be 2 tags. Received: \[1\]"):
        read(tmp_path, task, '{"tokens": ["a", "b"], "ner": [1]}')
    with pytest.raises(InputError, match="line 1: `words` should be a list of words"):
        read(tmp_path, task, '{"tokens": "a b", "ner": [1]}')
    with pytest.raises(InputError, match=r"line 1: `words` .*surrogate.* Received: '\\ud83d'"):
        read(tmp_path, task, '{"tokens": ["a", "\\ud83d"], "ner": [1, 0]}')
    (example,) = read(tmp_path, task, '{"tokens": ["\\ud83d\\ude00"], "ner": [1]}')
    assert example.words == ("\U0001f600",)  # a whole pair is a character


@pytest.mark.parametrize("tags", ["null", "3", '"AB"', "{}"])
def test_tags_that_are_no_list(tmp_path, tags):
    columns = {"words": "tokens", "tags": "ner"}
    content = f'{{"tokens": ["a", "b"], "ner": {tags}}}'
    collecting = task_of("tagging", "jsonl", columns, labels=())
    (tmp_path / "train.jsonl").write_text(content)
    with pytest.raises(InputError, match=r"train.jsonl, line 1: `tags` should be a list"):
        resolve_labels(collecting, str(tmp_path))
    known = task_of("tagging", "jsonl", columns, labels=("A", "B"))
    for split in ("train", "test")[: 1 if tags == "null" else 2]:  # in test splits null is hidden
        with pytest.raises(InputError, match=rf"{split}.jsonl, line 1: `tags` should be 2 tags"):
            read(tmp_path, known, content, split)


def test_tags_that_are_no_labels(tmp_path):
    task = task_of("tagging", "jsonl", {"words": "tokens", "tags": "ner"})
    with pytest.raises(InputError, match=r"line 1: the label should be one of .*: \['_'\]"):
        read(tmp_path, task, '{"tokens": ["a"], "ner": [["_"]]}', "test")


def test_collected_tags(tmp_path):
    rows = "1\ta\t_\tX\tNN\t_\t_\t_\t_\t_\n2\tb\t_\tX\t,\t_\t_\t_\t_\t_\n"
    (tmp_path / "train.conllu").write_text(rows, encoding="utf-8")
    task = resolve_labels(CONLLU, str(tmp_path))
    assert task.labels == (",", "NN")
    assert read_split(task, str(tmp_path), "train")[0].tags == (1, 0)


TEN = "\t_" * 8


@pytest.mark.parametrize(
    ("task", "content", "message"),
    [
        (CSV, "", "train.csv: the train split should hold examples. Received: none"),
        (CSV, "stars,review\n", "train.csv: the train split should hold examples"),
        (CSV, "stars,reviews\n", r"line 1: .*'review' for `text_a` \(did you mean 'reviews'\?\)"),
        (CSV, "stars,x\n", "line 1: .*'review' for `text_a`. Received: stars, x"),
        (CSV, "review,review,stars\n", "line 1: there should be one column 'review'"),
        (CSV, "stars,review\ngood,a,b\n", "line 2: should have 2 fields.*Received: 3"),
        (CSV, 'stars,review\ngood,"a\nb"\nbad\n', r"line 4: .*Received: 1 .*separated by commas\?"),
        (TSV, "stars\treview\ngood fine\n", r"line 2: .*Received: 1 .*separated by tabs\?"),
        (CSV, 'stars,review\ngood,a\nbad,"never closed\n\n', "line 3: the row that begins here"),
        (CSV, 'stars,review\ngood,"a" b\n', "line 2: the row that begins here .* Received"),
        (CSV, "stars,review\ngood, \n", "line 2: `text_a` should be .* not empty. Received: ' '"),
        (CSV, "stars,review\ngod,a\n", r"line 2: .*bad, good \(did you mean good\?\).*: 'god'"),
        (CSV, "stars,review\n,a\n", "line 2: the label should be one of bad, good. Received: ''"),
        (CSV, b"stars,review\ngood,caf\xe9\n", r"line 2: the file should be UTF-8.*xe9' at byte 9"),
        (NUMBERED, "text\n", "train.tsv, line 1: the label should have a column of its own"),
        (NUMBERED, "text\tg\n", "train.tsv, line 1: the label should be one of"),
        (SCORED, "stars,review\nfive,a\n", "line 2: .*from 1 to 5 .*own.*Received: 'five'"),
        (SCORED, "stars,review\n0.5,a\n", "line 2: .*from 1 to 5.*Received: '0.5'"),
        (SCORED, "stars,review\nnan,a\n", "line 2: .*from 1 to 5.*Received: 'nan'"),
        (JSONL, '{"review": "a", "stars": "good"}\n{"revi', "line 2: should be one JSON object"),
        (JSONL, "[1]\n", r"line 1: should be one JSON object. Received: '\[1\]'"),
        (JSONL, '{"review": "a", "star": 1}', r"'stars' for `label` \(did you mean 'star'\?\)"),
        (JSONL, '{"review": 3, "stars": "bad"}', "line 1: `text_a` should be a text. Received: 3"),
        (JSONL, '{"review": "a", "stars": null}', "line 1: the label .* Received: None"),
        (JSONL, '{"review": "a \\ud83d b", "stars": "bad"}', r"line 1: `text_a` .*: '\\ud83d'"),
        (JSONL, '{"review": "a", "stars": "\\ude00"}', r"line 1: `label` .*: '\\ude00'"),
        (CONLL, "a O\nb X O\n", "line 2: should have 2 columns.*Received: 3"),
        (CONLL, "a O\n\nb Y\n", "line 3: the label should be one of B-X, I-X, O. Received: 'Y'"),
        (CONLL, "", "train.conll: the train split should hold examples"),
    ],
)
def test_mistakes_in_files(tmp_path, task, content, message):
    with pytest.raises(InputError, match=message) as caught:
        read(tmp_path, task, content)
    assert str(caught.value).startswith(str(tmp_path / "train."))


@pytest.mark.parametrize(
    ("columns", "content", "message"),
    [
        ({"tags": "upos"}, "1 a b\n", "line 1: should have the ten columns.*Received: 1"),
        ({"tags": "upos"}, f"x\ta{TEN}\n", "line 1: the id should be a number.*Received: 'x'"),
        ({"tags": "upos"}, f"1\t{TEN}\n", "line 1: `words` should not be empty"),
        ({"tags": "feats"}, f"1\ta{TEN}\n", "one of upos, xpos, deprel. Received: 'feats'"),
    ],
)
def test_mistakes_in_conllu(tmp_path, columns, content, message):
    with pytest.raises(InputError, match=message):
        read(tmp_path, task_of("tagging", "conllu", columns), content)


def test_conll_columns_have_numbers(tmp_path):
    task = task_of("tagging", "conll", {"words": 0, "tags": "ner"})
    with pytest.raises(InputError, match=r"that of `tags` should be one\. Received: 'ner'"):
        read(tmp_path, task, "a O\n")
    task = task_of("tagging", "conll", {"words": 0, "tags": 3})
    with pytest.raises(InputError, match="line 1: should have a column 3 for `tags`"):
        read(tmp_path, task, "a O\n")


def test_a_name_for_a_column_without_a_header(tmp_path):
    task = task_of("classification", "tsv", COLUMNS, header=False)
    with pytest.raises(InputError, match="needs the number of the column of `text_a`"):
        read(tmp_path, task, "a\tgood\n")
    task = task_of("classification", "tsv", {"text_a": 0, "label": 2}, header=False)
    with pytest.raises(InputError, match=r"one column 2 for `label`\. Received: 2 columns"):
        read(tmp_path, task, "a\tgood\n")


def test_ids_are_distinct(tmp_path):
    task = task_of("classification", "csv", {**COLUMNS, "id": "id"})
    with pytest.raises(InputError, match=r"line 4: .*train.csv, line 2 has the same.*'1'"):
        read(tmp_path, task, "id,stars,review\n1,good,a\n2,good,a\n1,bad,b\n")
