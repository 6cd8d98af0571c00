"""Rows of files as the inputs of a signature, and what a wrong row gets."""

import json

import pytest

from errors import InputError
from serving.records import Inputs, read_records, source
from tests.serving.support import task

PAIR = Inputs(["text", "text_pair"], task("classification", True).to_json())
SINGLE = Inputs(["text"], task("classification").to_json())
WORDS = Inputs(["words"], task("tagging").to_json(), ["words"])
PRETRAINED = Inputs(["text"], None)
NUMBERED = Inputs(["text"], {"columns": {"text_a": -1, "label": 0}, "header": False})


def read(inputs, content, file_format=None, header=None, path="my.file"):
    content = content if isinstance(content, bytes) else content.encode()
    lines = content.splitlines(keepends=True)
    return list(read_records(source(path, lines, file_format), inputs, header))


def values(*arguments, **settings):
    return [tuple(record.values.values()) for record in read(*arguments, **settings)]


def test_lines_are_texts():
    records = read(SINGLE, "\ufeffthe city\r\n\nwho?")
    assert [record.values for record in records] == [{"text": t} for t in ("the city", "", "who?")]
    assert [record.id for record in records] == ["0", "1", "2"]
    assert records[2].where == "my.file, line 3"
    assert values(PRETRAINED, "a\n{b\n") == [("a",), ("{b",)]
    assert values(SINGLE, '{"text": "a"}\n', "lines") == [('{"text": "a"}',)]
    assert read(SINGLE, b"") == []


@pytest.mark.parametrize(
    "names", [("text", "text_pair"), ("review", "reply"), ("review", "text_pair")]
)
def test_columns_have_the_names_of_the_signature_or_of_the_task(names):
    first, second = names
    assert values(PAIR, f"{second}\tx\t{first}\nb\tc\ta\n", "tsv") == [("a", "b")]
    assert values(PAIR, f'{second},"{first}"\n"b, ""c""\nd",a\n', "csv") == [("a", 'b, "c"\nd')]
    assert values(PAIR, json.dumps({second: "b", first: "a", "n": 1})) == [("a", "b")]


def test_the_signatures_name_goes_first():
    assert values(SINGLE, "review\ttext\na\tb\n", "tsv") == [("b",)]


def test_the_delimiter_of_the_tasks_declaration():
    table = {**task("classification").to_json(), "format": "csv", "delimiter": "|"}
    assert values(Inputs(["text"], table), "x|review\na|b\n", path="my.csv") == [("b",)]
    assert values(Inputs(["text"], table), "x\treview\na\tb\n", "tsv") == [("b",)]


def test_tables_without_a_header():
    assert values(PAIR, "a\tb\tc\n", "tsv", header=False) == [("a", "b")]
    assert values(NUMBERED, "yes\ta\nno\tb\n", "tsv") == [("a",), ("b",)]
    assert values(NUMBERED, "x,text\nno,b\n", "csv", header=True) == [("b",)]


def test_ids():
    assert [r.id for r in read(SINGLE, "id\ttext\nq7\ta\n", "tsv")] == ["q7"]
    assert [r.id for r in read(SINGLE, '{"id": 3, "text": "a"}\n{"text": "b"}')] == ["3", "1"]


def test_word_lists():
    content = '{"tokens": ["the", "city"]}\n\n{"tokens": ["who?"], "upos": ["A"]}\n'
    assert values(WORDS, content) == [(["the", "city"],), (["who?"],)]


def test_inputs_are_the_columns_of_their_role():
    """As of a kind from outside, one of whose inputs is a list of texts."""
    columns = {"context": "story", "choices": "ends", "label": "right"}
    inputs = Inputs(["context", "choices"], {"columns": columns, "header": True}, ["choices"])
    content = '{"story": "a", "ends": ["b", "c"], "right": 1}\n'
    assert values(inputs, content) == [("a", ["b", "c"])]
    untagged = {"columns": {"words": "tokens"}, "header": True}
    assert values(Inputs(["text"], untagged), "the city\n") == [("the city",)]
    with pytest.raises(InputError):
        read(inputs, '{"story": "a", "ends": "b"}\n')


def test_bytes_that_are_not_utf8_are_replaced():
    """As the graph does it: see test_predict.py."""
    assert values(SINGLE, b"a\n\xffb\xe4\xb8\n") == [("a",), ("\ufffdb\ufffd",)]
    assert values(SINGLE, b"text\n\xff b\n", "tsv") == [("\ufffd b",)]
    assert values(SINGLE, b'text\n"\xff, b"\n', "csv") == [("\ufffd, b",)]
    assert values(SINGLE, b'{"text": "\xff \\u00e9"}\n') == [("\ufffd é",)]


@pytest.mark.parametrize(
    ("file_format", "content", "expected"),
    [
        ("tsv", b"text\tid\na\tx\nb\nc\td\te\nf\ty\n", ["x", 1, 2, "y"]),
        ("csv", b"text,id\na,x\nb\nf,y\n", ["x", 1, "y"]),
        (
            "jsonl",
            b'{\n\n{"text": "a", "id": 7}\n[]\n{"id": 8}\n{"text": 1, "id": 9}\n{"text": "b"}\n',
            [0, "7", 2, 3, 9, "5"],
        ),
        # The first line that can be read says that keys are the task's.
        ("jsonl", b'{"review": \n{"review": "a"}\n', [0, "1"]),
    ],
)
def test_wrong_rows_may_be_left_out(file_format, content, expected):
    """Ids of all rows in their order; of those rejected, as numbers."""
    found = []

    def rejected(identity, error):
        assert "my.file, line" in str(error)
        found.append(int(identity))

    lines = content.splitlines(keepends=True)
    for record in read_records(source("my.file", lines, file_format), SINGLE, None, rejected):
        found.append(record.id)
    assert found == expected


def test_quotes_that_do_not_end_are_never_passed_over():
    lines = [b"text\n", b'"a\n', b"b\n"]
    with pytest.raises(InputError):
        list(read_records(source("my.csv", lines), SINGLE, None, lambda *_: None))


@pytest.mark.parametrize(
    ("path", "line", "expected"),
    [
        ("a.tsv", b"", "tsv"),
        ("a.CSV", b"{}", "csv"),
        ("a.txt", b"a", "lines"),
        ("a.txt", b'{"text": "a"}', "jsonl"),
        ("a.jsonl", b"x", "jsonl"),
        ("standard input", b'{"text": "a"}', "jsonl"),
        ("standard input", b"[1] a note", "lines"),
        ("a.conll", b"EU NNP B-ORG", "conll"),
        ("a.conllu", b"# sent_id = 1", "conllu"),
    ],
)
def test_the_format_is_of_the_extension_or_the_first_line(path, line, expected):
    assert source(path, [line]).format == expected
    assert source(path, [line], "csv").format == "csv"


def test_conll_files_are_read_as_words():
    content = "-DOCSTART- O\n\nThe DT O\ncity NN A\n\nwho? WP O\n"
    expected = [(["The", "city"],), (["who?"],)]
    assert values(WORDS, content, path="test.conll") == values(WORDS, content, "conll") == expected
    own = {**task("tagging").to_json(), "columns": {"words": 2, "tags": -1}}
    third = Inputs(["words"], own, ["words"])
    assert values(third, "1 x The A\n", "conll") == [(["The"],)]
    lines = ["# sent_id = s1", "1-2\tdont" + "\t_" * 8, "1\tdo\tdo\tAUX" + "\t_" * 6, ""]
    (record,) = read(WORDS, "\n".join(lines), "conllu")
    assert (record.id, record.values) == ("s1", {"words": ["do"]})


@pytest.mark.parametrize(
    ("inputs", "file_format", "content", "place", "named"),
    [
        (PAIR, "lines", b"a\n", "", "text, text_pair"),
        (SINGLE, "conll", b"a b\n", "", "text"),
        (WORDS, "conll", b"a b\na\n", ", line 2", "columns"),
        (SINGLE, "tsv", b"id\treviw\na\tb\n", ", line 1", "review"),
        (PRETRAINED, "tsv", b"id\treviw\na\tb\n", ", line 1", "`text`"),
        (PAIR, "tsv", b"text\ttext\ttext_pair\n", ", line 1", "'text'"),
        (PAIR, "tsv", b"text\ttext_pair\na\tb\nc\n", ", line 3", ""),
        (SINGLE, "csv", b'text\n"a\n', ", line 2", ""),
        (SINGLE, "jsonl", b'{"txt": "a"}\n', ", line 1", "review"),
        (SINGLE, "jsonl", b'{"text": "a"}\n{"text"}\n', ", line 2", ""),
        (SINGLE, "jsonl", b'{"text": "a"}\n{"txt": "a"}\n', ", line 2", "'text'"),
        (SINGLE, "jsonl", b'{"text": "a"}\n{"text": null}\n', ", line 2", "`text`"),
        (SINGLE, "jsonl", b"[" * 200_000, ", line 1", ""),
        (SINGLE, "jsonl", b'{"text": 3}\n', ", line 1", "`text`"),
        (SINGLE, "jsonl", b'{"text": "\\ud800"}\n', ", line 1", ""),
        (WORDS, "jsonl", b'{"words": "the"}\n', ", line 1", "`words`"),
        (WORDS, "jsonl", b'{"words": ["the", ""]}\n', ", line 1", "`words`"),
    ],
)
def test_wrong_rows_are_named(inputs, file_format, content, place, named):
    with pytest.raises(InputError) as error:
        read(inputs, content, file_format)
    assert str(error.value).startswith(f"my.file{place}: ")
    assert named in str(error.value)


@pytest.mark.parametrize(
    ("content", "file_format", "read", "first"),
    [
        (b"\n\na\nb\n", None, 3, b"a\n"),
        (b'{"words": ["a"]}\n{}\n', None, 1, b'{"words": ["a"]}\n'),
        (b"", None, 0, b""),
    ],
)
def test_the_row_to_choose_a_signature_by(content, file_format, read, first):
    """No more is read than it takes, and all lines are still there."""
    lines = content.splitlines(keepends=True)
    left = iter(lines)
    found = source("my.file", left, file_format)
    assert found.first == first
    rest = list(left)
    assert len(lines) - read == len(rest)
    if file_format is None:
        assert [*found.lines, *rest] == lines
