"""Rows of files as the inputs of a signature, and what a wrong row gets."""

import pytest

from convbert.serving.records import Inputs, is_one_row, read_records, source
from tests.finetune.kinds_support import rejects
from tests.serving.support import task


def of_columns(names, columns, lists=(), header=True):
    """Inputs of a signature of a task that declares these columns."""
    return Inputs(names, {"columns": columns, "header": header}, lists)


PAIR = Inputs(["text", "text_pair"], task("classification", True).to_json())
SINGLE = Inputs(["text"], task("classification").to_json())
WORDS = Inputs(["words"], task("tagging").to_json(), ["words"])
PRETRAINED = Inputs(["text"], None)
NUMBERED = of_columns(["text"], {"text_a": -1, "label": 0}, header=False)
UNTAGGED = of_columns(["text"], {"words": "tokens"})
# Of a kind from outside, one of whose inputs is a list of texts.
OUTSIDE = of_columns(["context", "choices"], {"context": "story", "choices": "ends"}, ["choices"])
BY_NUMBER = of_columns(["text"], {"text_a": 1, "label": 0})  # in files with a header
CHOICES = ["context", "question", "options"]
LISTED = Inputs(CHOICES, task("multiple_choice").to_json(), ["options"])


def read(inputs, content, file_format=None, path="my.file"):
    content = content if isinstance(content, bytes) else content.encode()
    lines = content.splitlines(keepends=True)
    return list(read_records(source(path, lines, file_format), inputs))


def values(*arguments, **settings):
    return [tuple(record.values.values()) for record in read(*arguments, **settings)]


def test_lines_are_texts():
    records = read(SINGLE, "\ufeffthe city\r\n\nwho?")
    assert [record.values for record in records] == [{"text": t} for t in ("the city", "", "who?")]
    assert [record.id for record in records] == ["0", "1", "2"]
    assert str(records[2].where) == "my.file, line 3"


@pytest.mark.parametrize(
    ("inputs", "file_format", "content", "expected"),
    [
        (PRETRAINED, None, "a\n{b\n", [("a",), ("{b",)]),
        (SINGLE, "lines", '{"text": "a"}\n', [('{"text": "a"}',)]),
        (SINGLE, None, "", []),
        (BY_NUMBER, "csv", "verdict,text\nyes,a\n", [("a",)]),
        (BY_NUMBER, "csv", "stars,review\nyes,a\n", [("a",)]),
        # Columns have the names of the signature, which go first, or of the task.
        (PAIR, "tsv", "text_pair\tx\ttext\nb\tc\ta\n", [("a", "b")]),
        (PAIR, "tsv", "reply\tx\treview\nb\tc\ta\n", [("a", "b")]),
        (PAIR, "csv", 'text_pair,"review"\n"b, ""c""\nd",a\n', [("a", 'b, "c"\nd')]),
        (PAIR, None, '{"text_pair": "b", "review": "a", "n": 1}', [("a", "b")]),
        (SINGLE, "tsv", "review\ttext\na\tb\n", [("b",)]),
        (NUMBERED, "tsv", "yes\ta\nno\tb\n", [("a",), ("b",)]),
        (WORDS, None, '{"tokens": ["a", "b"]}\n\n{"tokens": ["c"]}', [(["a", "b"],), (["c"],)]),
        (OUTSIDE, None, '{"story": "a", "ends": ["b", "c"], "right": 1}\n', [("a", ["b", "c"])]),
        (UNTAGGED, None, "the city\n", [("the city",)]),
        (LISTED, None, '{"story": "c", "asked": "q", "ends": ["x"]}', [("c", "q", ["x"])]),
        # Bytes that are not UTF-8 are replaced, as the graph does it: see test_spans.py.
        (SINGLE, None, b"a\n\xffb\xe4\xb8\n", [("a",), ("\ufffdb\ufffd",)]),
        (SINGLE, "csv", b'text\n"\xff, b"\n', [("\ufffd, b",)]),
    ],
)
def test_values_of_rows(inputs, file_format, content, expected):
    assert values(inputs, content, file_format) == expected


@pytest.mark.parametrize(
    ("inputs", "rows", "one"),
    [
        (SINGLE, "a", True),
        (SINGLE, ("a",), False),
        (PAIR, {"text": "a", "text_pair": "b"}, True),
        (PAIR, ("a", "b"), True),
        (PAIR, ["a", "b"], False),
        (PAIR, (("a", "b"), ("c", "d")), False),  # as many pairs as there are inputs
        (PAIR, ({"text": "a", "text_pair": "b"},) * 2, False),
        (WORDS, (["the", "city"],), False),
        (LISTED, ("c", "q", ("x", "y")), True),
        (LISTED, (("c", "q", ["x"]),) * 3, False),
    ],
)
def test_one_row_or_several(inputs, rows, one):
    assert is_one_row(rows, inputs) == one


def test_ids():
    assert [r.id for r in read(SINGLE, "id\ttext\nq7\ta\n", "tsv")] == ["q7"]
    assert [r.id for r in read(SINGLE, '{"id": 3, "text": "a"}\n{"text": "b"}')] == ["3", "1"]


@pytest.mark.parametrize(
    ("path", "line", "expected"),
    [
        *(("a.tsv", b"", "tsv"), ("a.CSV", b"{}", "csv"), ("a.txt", b"a", "lines")),
        *(("a.txt", b'{"text": "a"}', "jsonl"), ("a.jsonl", b"x", "jsonl")),
        ("standard input", b'{"text": "a"}', "jsonl"),
        ("standard input", b"[1] a note", "lines"),
    ],
)
def test_the_format_is_of_the_extension_or_the_first_line(path, line, expected):
    assert source(path, [line]).format == expected
    assert source(path, [line], "csv").format == "csv"


@pytest.mark.parametrize(
    ("inputs", "file_format", "content", "place", "named"),
    [
        (PAIR, "lines", b"a\n", "", "text, text_pair"),
        (SINGLE, "tsv", b"id\treviw\na\tb\n", ", line 1", "review"),
        (PAIR, "tsv", b"text\ttext\ttext_pair\n", ", line 1", "'text'"),
        (PAIR, "tsv", b"text\ttext_pair\na\tb\nc\n", ", line 3", ""),
        (SINGLE, "csv", b'text\n"a\n', ", line 2", ""),
        (SINGLE, "jsonl", b'{"text": "a"}\n{"text"}\n', ", line 2", ""),
        (SINGLE, "jsonl", b'{"text": "a"}\n{"txt": "a"}\n', ", line 2", "'text'"),
        (SINGLE, "jsonl", b'{"text": "a"}\n{"text": null}\n', ", line 2", "`text`"),
        (SINGLE, "jsonl", b"[" * 200_000, ", line 1", ""),
        (SINGLE, "jsonl", b'{"text": "\\ud800"}\n', ", line 1", ""),
        (WORDS, "jsonl", b'{"words": "the"}\n', ", line 1", "`words`"),
        (WORDS, "jsonl", b'{"words": ["the", ""]}\n', ", line 1", "`words`"),
    ],
)
def test_wrong_rows_are_named(inputs, file_format, content, place, named):
    with rejects(f"my.file{place}: ", named):
        read(inputs, content, file_format)
