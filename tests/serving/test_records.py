"""Rows of files as the inputs of a signature, and what a wrong row gets."""

import json

import pytest

from errors import InputError
from serving.records import Inputs, infer_format, peek, read_records
from tests.serving.support import task

PAIR = Inputs(["text", "text_pair"], task("classification", True).to_json())
SINGLE = Inputs(["text"], task("classification").to_json())
WORDS = Inputs(["words"], task("tagging").to_json(), ["words"])
PRETRAINED = Inputs(["text"], None)
TAGGED = Inputs(["text"], task("tagging").to_json())
NUMBERED = Inputs(["text"], {"columns": {"text_a": -1, "label": 0}, "header": False})


def read(inputs, content, file_format=None, header=None, path="my.file"):
    content = content if isinstance(content, bytes) else content.encode()
    lines = content.splitlines(keepends=True)
    return list(read_records(path, lines, inputs, file_format, header))


def values(*arguments, **settings):
    return [tuple(record.values.values()) for record in read(*arguments, **settings)]


def test_lines_are_texts():
    records = read(SINGLE, "\ufeffthe city\r\n\nwho?")
    assert [record.values for record in records] == [{"text": t} for t in ("the city", "", "who?")]
    assert [record.id for record in records] == ["0", "1", "2"]
    assert records[2].where == "my.file, line 3"
    assert values(PRETRAINED, "a\n{b\n") == [("a",), ("{b",)]
    assert read(SINGLE, b"") == []


def test_json_contradicts_a_guess_of_lines_only():
    content = 'oops\n{"text": "a"}\n'
    with pytest.raises(InputError, match="line 2: should be a text, as the first line is one"):
        read(SINGLE, content)
    assert values(SINGLE, content, "lines") == [("oops",), ('{"text": "a"}',)]
    with pytest.raises(InputError, match=r"my\.txt, line 2"):
        read(SINGLE, content, path="my.txt")


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


def test_columns_between_semicolons():
    content = 'review;reply\n"a; b";c\n'
    assert values(PAIR, content, "csv") == [("a; b", "c")]
    table = {**task("classification").to_json(), "format": "csv", "delimiter": "|"}
    assert values(Inputs(["text"], table), "x|review\na|b\n", path="my.csv") == [("b",)]
    assert values(Inputs(["text"], table), "x\treview\na\tb\n", "tsv") == [("b",)]
    assert values(PRETRAINED, "x;text\na;b\n", path="my.csv") == [("b",)]


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
    with pytest.raises(InputError, match=r"my\.file, line 1: `choices`"):
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
    for record in read_records("my.file", lines, SINGLE, file_format, None, rejected):
        found.append(record.id)
    assert found == expected


def test_quotes_that_do_not_end_are_never_passed_over():
    with pytest.raises(InputError, match="line 2: the row that begins here"):
        list(
            read_records(
                "my.file", [b"text\n", b'"a\n', b"b\n"], SINGLE, "csv", None, lambda *_: None
            )
        )


def test_formats_are_inferred():
    for path, line, inputs, expected in (
        ("a.tsv", b"", SINGLE, "tsv"),
        ("a.CSV", b"{}", SINGLE, "csv"),
        ("a.txt", b"a", SINGLE, "lines"),
        ("a.txt", b'{"text": "a"}', SINGLE, "jsonl"),
        ("a.jsonl", b"x", SINGLE, "jsonl"),
        ("standard input", b'{"text": "a"}', SINGLE, "jsonl"),
        ("standard input", b"[1] a note", SINGLE, "lines"),
        ("standard input", b"[MASK] {a}", SINGLE, "lines"),
        ("a.json", b'[{"text": "a"}]', PAIR, "json"),
        ("a.txt", b' [ "a",', SINGLE, "json"),
        ("a.json", b"[\r\n", SINGLE, "json"),
        ("a.conll", b"EU NNP B-ORG", WORDS, "conll"),
        ("a.conllu", b"# sent_id = 1", WORDS, "conllu"),
        ("a.txt", b"the born", TAGGED, "lines"),  # the task has no such tag
        ("a.txt", b"the A", SINGLE, "lines"),  # which is no tagger
    ):
        assert infer_format(path, line, inputs) == expected
    for inputs, line in ((PAIR, b"a\tb"), (WORDS, b"a b")):
        with pytest.raises(InputError, match="--format should say"):
            infer_format("standard input", line, inputs)


@pytest.mark.parametrize(
    ("inputs", "line"),
    [
        (SINGLE, b"{'text': 'a'}\n"),
        (SINGLE, b"{not json\n"),
        (SINGLE, b"{\n"),
        (TAGGED, b"the DT A\n"),
        (TAGGED, b"the\tDT\n"),
        (TAGGED, b"-DOCSTART- -X- O\n"),
        (TAGGED, b"# sent_id = 3\n"),
    ],
)
def test_what_looks_like_another_format_is_no_text(inputs, line):
    for path in ("my.txt", "standard input"):
        with pytest.raises(InputError, match=f"{path}: the first line .*--format"):
            read(inputs, b"\n" + line + b"\n", path=path)
    assert values(inputs, line, "lines") == [(line.decode().strip(),)]


@pytest.mark.parametrize("file_format", [None, "lines", "csv", "jsonl", "json"])
@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
@pytest.mark.parametrize("path", ["my.txt", "my.csv", "standard input"])
def test_other_encodings_are_named(path, encoding, file_format):
    for order in ("le", "be"):
        content = "\ufefftext,id\na,b\n".encode(f"{encoding}-{order}")
        with pytest.raises(InputError, match=f"{path}: .*{encoding.upper()}"):
            read(SINGLE, content, file_format, path=path)


def test_sentences_of_words_contradict_a_guess_of_lines():
    content = "The city\nwho was born?\n \nA\n"
    lines = content.encode().splitlines(keepends=True)
    for rejected in (None, lambda *_: None):  # which --skip_errors does not answer
        with pytest.raises(InputError, match=r"my\.txt, line 3: .*--format"):
            list(read_records("my.txt", lines, TAGGED, rejected=rejected))
    expected = [(text,) for text in content.splitlines()]
    assert values(TAGGED, content, "lines") == values(SINGLE, content) == expected


def test_blank_lines_around_the_texts_of_a_tagger():
    content = "\nthe city\nwho was born?\n\n\n"
    assert len(read(TAGGED, content)) == 5


def test_json_arrays():
    content = '\ufeff[\n {"review": "a", "id": 7},\n\n {"review": "b]"}\n]\n'
    records = read(SINGLE, content, path="my.json")
    assert [(r.id, r.values["text"]) for r in records] == [("7", "a"), ("1", "b]")]
    assert [record.where for record in records] == ["my.json, item 1", "my.json, item 2"]
    assert values(PRETRAINED, '["a", "b, c"]') == [("a",), ("b, c",)]
    assert values(PAIR, '[{"text": "a", "text_pair": "b"}]') == [("a", "b")]
    assert values(WORDS, '[{"tokens": ["the", "city"]}]') == [(["the", "city"],)]
    assert values(SINGLE, " [ ] ", "json") == []


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
        (SINGLE, "tsv", b"id\treviw\na\tb\n", ", line 1", "'text' or 'review' .*`reviw`"),
        (PRETRAINED, "tsv", b"id\treviw\na\tb\n", ", line 1", "`text`. Received: id"),
        (PAIR, "tsv", b"text\ttext\ttext_pair\n", ", line 1", "'text'"),
        (PAIR, "tsv", b"text\ttext_pair\na\tb\nc\n", ", line 3", "2 fields"),
        (SINGLE, "csv", b'text\n"a\n', ", line 2", ""),
        (SINGLE, "jsonl", b'{"txt": "a"}\n', ", line 1", "'text' or 'review' for `text`"),
        (SINGLE, "jsonl", b'{"text": "a"}\n{"text"}\n', ", line 2", "JSON"),
        (SINGLE, "jsonl", b'{"text": "a"}\n{"txt": "a"}\n', ", line 2", "'text'"),
        (SINGLE, "jsonl", b'{"text": "a"}\n{"text": null}\n', ", line 2", "`text`"),
        (SINGLE, "jsonl", b"[" * 200_000, ", line 1", "JSON"),
        (SINGLE, "jsonl", b'{"text": ' + b"9" * 5000 + b"}", ", line 1", "JSON"),
        (SINGLE, "jsonl", b'{"text": 3}\n', ", line 1", "`text`"),
        (SINGLE, "jsonl", b'{"text": "\\ud800"}\n', ", line 1", "`text`"),
        (WORDS, "jsonl", b'{"words": "the"}\n', ", line 1", "`words`"),
        (WORDS, "jsonl", b'{"words": ["the", ""]}\n', ", line 1", "`words`"),
        (SINGLE, None, b'[\n{"text": "a"},\n{"txt": "b"}]', ", item 2", "'text'"),
        (SINGLE, None, b'["a",\n["b"]]', ", item 2", "JSON"),
        (SINGLE, None, b'[{"text": "\\ud800"}]', ", item 1", "`text`"),
        (SINGLE, None, b'[{"text": "a"}\n {"text": "b"}]', "", "line 2"),
        (SINGLE, None, b'[{"text": "a"},\n{"text": ', "", "line 2"),
        (SINGLE, None, b'["a"]\n\n["b"]', "", "line 3"),
        (SINGLE, "json", b'{"text": "a"}', "", "JSON array"),
        (SINGLE, "json", b"[" * 200_000, "", "JSON array"),
    ],
)
def test_wrong_rows_are_named(inputs, file_format, content, place, named):
    with pytest.raises(InputError, match=f"^my.file{place}: .*{named}"):
        read(inputs, content, file_format)


@pytest.mark.parametrize(
    ("content", "file_format", "read", "sample"),
    [
        (b"\n\na\nb\n", None, 3, b"a\n"),
        (b'oops\n{"words": ["a"]}\n{}\n', "jsonl", 2, b'{"words": ["a"]}\n'),
        (b"oops\n" * 9, "jsonl", 5, b"oops\n"),
        (b'[\n {"words": ["a"]},\n {}]\n', None, 3, b'{"words": ["a"]}'),
        (b"[{]\n", "json", 1, b"[{]\n"),
        (b"", None, 0, b""),
    ],
)
def test_the_row_to_choose_a_signature_by(content, file_format, read, sample):
    """No more is read than it takes, and all lines are still there."""
    lines = content.splitlines(keepends=True)
    left = iter(lines)
    found, row = peek(left, file_format, 5)
    assert row == sample
    assert len(lines) - read == len(rest := list(left))
    assert [*found, *rest] == lines
