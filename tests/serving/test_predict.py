"""Answers and scores of rows, and rows of files: the client, `Model.evaluate`, their commands."""

import dataclasses
import json
import os

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

import convbert
from convbert.common.errors import InputError
from convbert.finetune import declaration
from convbert.finetune.kinds.base import Predicted
from convbert.finetune.task_files import read_split
from convbert.serving.description import read_description, signature_for
from convbert.serving.records import Inputs, Record, is_one_row, read_records, source
from convbert.serving.streams import Lines
from tests import command_support
from tests.finetune.kinds_support import read_predictions, rejects
from tests.model_support import slow_but
from tests.serving.conftest import SEARCH, TASKS
from tests.serving.support import evaluated, fine_tuned, labelled, task, write_labelled

DRAW = np.random.default_rng(0)
TEXTS = [" ".join(DRAW.choice(["the", "city", "was", "born", "1995"], n)) for n in range(40)]


def records(*rows):
    return [Record(f"line {i}", str(i), row) for i, row in enumerate(rows)]


def test_answers_are_in_the_order_of_the_rows_and_those_of_the_signature(saved, monkeypatch):
    monkeypatch.setattr("convbert.serving.client._ROWS", 16)  # three requests
    client = saved.model("classification").client()
    rows = [{"text": text} for text in np.random.default_rng(1).permutation(TEXTS).tolist()]
    found = client.rows(records(*rows))
    signature = saved.loaded("classification").signatures["serving_default"]
    expected = signature(text=tf.constant([row["text"] for row in rows]))
    assert [row["id"] for row in found] == [str(i) for i in range(40)]
    labels = [label.decode() for label in expected["label"].numpy()]
    assert [row["prediction"] for row in found] == labels
    assert [row["truncated"] for row in found] == expected["truncated"].numpy().tolist()
    shares = [list(row["probabilities"].values()) for row in found]
    np.testing.assert_allclose(shares, expected["probabilities"], rtol=0, atol=2e-6)
    assert list(found[0]["probabilities"]) == ["bad", "fair", "good"]
    assert client.rows([]) == []


@pytest.mark.slow  # exports models of several kinds
def test_the_forms_of_answers(saved, tmp_path):
    def ask(name, signature, *rows):
        return saved.model(name).client(signature).rows(records(*rows))

    (row,) = ask("regression", "serving_default", {"text": "a", "text_pair": "b"})
    assert set(row) == {"id", "prediction", "truncated"}
    assert isinstance(row["prediction"], float)
    rows = ask("tagging", "words", {"words": ["the", "city"]}, {"words": ["born"]})
    found = [(row["words"], len(row["prediction"])) for row in rows]
    assert found == [(["the", "city"], 2), (["born"], 1)]
    assert ask("tagging", "serving_default", {"text": "the city"}) == rows[:1]
    path = tmp_path / "answers.jsonl"  # which can be read as fine-tuning's files are
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert [row["id"] for row in read_predictions(str(path))] == ["0", "1"]
    (row,) = ask("span", "serving_default", {"question": "who?", "context": "the city"})
    assert set(row) == {"id", "prediction", "start", "end", "score", "null_score", "truncated"}
    assert row["prediction"] == "the city"[row["start"] : row["end"]] != ""
    rows = ask("pretraining", "embeddings", {"text": "the city"}, {"text": "who was born?"})
    assert [len(row["pieces"]) for row in rows] == [4, 6]
    assert {len(row[name]) for row in rows for name in ("pooled", "mean")} == {16}
    assert "tokens" not in rows[0]
    options = {"context": "the city", "question": "", "options": ["ab", "born", "1995", "the"]}
    (row,) = ask("multiple_choice", "serving_default", options)
    assert list(row["probabilities"]) == ["A", "B", "C", "3"]  # more options than in training
    place = list(row["probabilities"]).index(row["prediction"])
    assert row["option"] == options["options"][place]


def test_lists_of_words_are_meant_for_their_signature(saved):
    lines = (b'{"tokens": ["a"]}', b'{"words": ["a"]}', b'{"text": "a"}', b"a word")
    tagging, span = (read_description(saved[kind]) for kind in ("tagging", "span"))
    found = [signature_for(tagging, source("rows", [line])) for line in lines]
    assert found == ["words"] * 2 + ["serving_default"] * 2
    assert signature_for(span, source("rows", [lines[1]])) == "serving_default"


def test_a_batch_that_cannot_be_answered_is_named(saved):
    client = saved.model("classification").client()

    def fail(**inputs):
        message = "Graph execution error:\n\nDetected at node a\nout of memory\nand more"
        raise tf.errors.ResourceExhaustedError(None, None, message)

    client._ask = fail
    with pytest.raises(InputError):
        client.rows(records({"text": "a"}, {"text": "b"}))


def test_files_that_cannot_be_read(tmp_path, monkeypatch):
    with pytest.raises(OSError, match="absent"):
        Lines(str(tmp_path / "absent"))
    with pytest.raises(IsADirectoryError):
        Lines(str(tmp_path))
    for encoding in ("utf-16-le", "utf-32-be"):
        (tmp_path / "rows").write_bytes("\ufefftext,id\na,b\n".encode(encoding))
        with Lines(str(tmp_path / "rows")) as rows, pytest.raises(InputError):
            list(rows.read())
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(InputError):
        Lines("-")


def run(*arguments, **options):
    return command_support.run("-m", "convbert.serving.predict", *arguments, **options)


def test_a_row_that_cannot_be_read_ends_it(saved, tmp_path):
    """An existing output stays until all rows are answered."""
    source, target = tmp_path / "rows.jsonl", tmp_path / "answers.jsonl"
    source.write_text('{"text": "a"}\n{"text": \n{"text": "b"}\n')
    target.write_text("mine")
    arguments = [f"--model={saved['classification']}", f"--input={source}", f"--output={target}"]
    done = run(*arguments, "--overwrite", status=1)
    assert f"{source}, line 2: " in done.stderr
    assert sorted(os.listdir(tmp_path)) == ["answers.jsonl", "rows.jsonl"]
    assert target.read_text() == "mine"


def test_the_command(saved, tmp_path):
    """A file of more rows than are held at a time, with a bar; the same from standard input."""
    source, target = tmp_path / "rows.tsv", tmp_path / "answers.jsonl"
    rows = [("id", "review"), *enumerate(TEXTS)]
    source.write_text("".join(f"{i}\t{text}\n" for i, text in rows))
    target.write_text("mine")
    model = f"--model={saved['classification']}"
    arguments = [model, f"--input={source}", f"--output={target}"]
    done = run(*arguments, status=1)
    assert f"{target}: --output should not exist yet, or --overwrite be given" in done.stderr
    assert target.read_text() == "mine"
    done = run(*arguments, "--overwrite")
    assert "100%" in done.stderr
    assert done.stdout == ""
    rows = read_predictions(str(target))
    assert [row["id"] for row in rows] == [str(i) for i in range(40)]
    piped = run(model, text="\n".join(TEXTS) + "\n")
    for line, row in zip(piped.stdout.splitlines(), rows, strict=True):
        answer = json.loads(line)
        shares = answer.pop("probabilities")
        assert shares == pytest.approx(row.pop("probabilities"), abs=1e-5)
        assert answer == row


def test_the_command_asks_any_signature(saved):
    model, options = f"--model={saved['pretraining']}", '--options={"num_tokens": 3}'
    line, lacks = [model, "--signature=masked_tokens"], "num_tokens"  # which this one lacks
    assert len(json.loads(run(*line, text="a [MASK]\n").stdout)["candidates"]) == 1
    assert lacks in run(*line, options, text="a\n", status=1).stderr


ROWS = pd.DataFrame(labelled(TASKS["classification"]()))


@pytest.mark.parametrize(
    "kind", slow_but(["classification"], ["classification", "tagging", "span", "multiple_choice"])
)
def test_scores_are_those_of_the_network(saved, tmp_path, kind):
    path = tmp_path / ("dev.json" if kind == "span" else "dev.jsonl")
    files = {"train": path.name, "dev": path.name}
    own = dataclasses.replace(TASKS[kind](), files=files, folders=(str(tmp_path),))
    write_labelled(path, own)
    found = saved.model(kind).evaluate(path)

    objective, hparams, words = saved.network(kind)
    examples = read_split(own, "", "dev")
    _, outputs, answers = evaluated(objective, own, examples, words, hparams)
    expected = own.plugin.score(Predicted(own, examples, answers, outputs))
    assert set(found.scores) == set(expected)
    for name in own.metrics:
        assert found.scores[name] == pytest.approx(expected[name], abs=1e-3), name


def test_a_table_scores_as_its_file(saved, tmp_path, monkeypatch):
    model, table = saved.model("classification"), ROWS
    path = tmp_path / "test.jsonl"
    table.to_json(path, orient="records", lines=True)
    metrics = ["accuracy", "macro_f1"]
    found = model.evaluate(table, metrics=metrics)
    assert found.scores == model.evaluate(path, metrics=metrics).scores
    assert list(found.scores) == metrics
    for extension, separator in (("csv", ","), ("tsv", "\t")):  # in place of JSON lines
        table.to_csv(tmp_path / f"test.{extension}", sep=separator, index=False)
        same = model.evaluate(tmp_path / f"test.{extension}", metrics=metrics)
        assert same.scores == found.scores
    declared = {
        **model.description["task"],
        "format": "tsv",
        "files": {"train": "a", "dev": "a.csv"},
    }
    monkeypatch.setitem(model.description, "task", declared)  # whatever its files are called
    table.to_csv(tmp_path / "test.csv", sep="\t", index=False)
    assert model.evaluate(tmp_path / "test.csv", metrics=metrics).scores == found.scores
    monkeypatch.setitem(declared, "header", False)  # of its files, not of tables
    for data in (table, path):
        assert model.evaluate(data, metrics=metrics).scores == found.scores
    right = model.predict(table).label == table["verdict"].to_numpy()
    assert found.scores["accuracy"] == pytest.approx(100.0 * np.mean(right))


def test_a_column_may_have_the_name_of_another_input(saved, monkeypatch):
    model, own = saved.model("pairs"), TASKS["pairs"]()
    table = pd.DataFrame(labelled(own))
    expected = model.evaluate(table).predicted.outputs["logits"]
    columns = {"text_a": "text_pair", "text_b": "text", "label": "verdict"}
    monkeypatch.setitem(model.description["task"], "columns", columns)
    renamed = table.rename(columns={"review": "text_pair", "reply": "text"})
    found = model.evaluate(renamed).predicted.outputs["logits"]
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_columns_may_be_those_of_splits_alone(tmp_path):
    own = TASKS["pairs"]()
    layout = {split: {"columns": own.columns} for split in own.splits}
    values = {**own.to_json(), "columns": {}, "per_split": layout}
    fine_tuned(tmp_path / "run", declaration.parse(values, "a test"))
    model, table = convbert.load(tmp_path / "run"), pd.DataFrame(labelled(own))
    write_labelled(tmp_path / "dev.jsonl", own)
    assert model.evaluate(table).scores == model.evaluate(tmp_path / "dev.jsonl").scores
    named, inputs = table[["reply", "review"]], [*zip(table["review"], table["reply"])]
    assert model.predict(named).label.tolist() == model.predict(inputs).label.tolist()


def test_the_command_that_evaluates(saved, tmp_path):
    path, model = tmp_path / "dev.jsonl", saved.directory("classification")
    write_labelled(path, TASKS["classification"]())
    line = ["convbert.serving.evaluate", f"--model={model}", f"--input={path}", "--json"]
    done = command_support.run("-m", *line)
    expected = saved.model("classification").evaluate(path).scores
    assert json.loads(done.stdout)["scores"] == pytest.approx(expected)


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table.drop(columns="verdict"),
        lambda table: table.assign(verdict="best"),
        lambda table: table.assign(verdict=None),
        lambda table: table.iloc[:0],
        lambda table: "/nowhere.jsonl",
    ],
)
def test_what_cannot_be_scored_is_an_error(saved, change):
    with pytest.raises((InputError, KeyError)):
        saved.model("classification").evaluate(change(ROWS))


def of_columns(names, columns, lists=(), header=True):
    return Inputs(names, {"columns": columns, "header": header}, lists)


PAIR = Inputs(["text", "text_pair"], task("classification", True).to_json())
SINGLE = Inputs(["text"], task("classification").to_json())
CROSSED = of_columns(["text", "text_pair"], {"text_a": "title", "text_b": "text"})
WORDS = Inputs(["words"], task("tagging").to_json(), ["words"])
NUMBERED = of_columns(["text"], {"text_a": -1, "label": 0}, header=False)
# Of a kind from outside, one of whose inputs is a list of texts.
OUTSIDE = of_columns(["context", "choices"], {"context": "story", "choices": "ends"}, ["choices"])
BY_NUMBER = of_columns(["text"], {"text_a": 1, "label": 0})  # in files with a header
OF_BOTH = of_columns(["text", "text_pair"], {"text_a": "title", "text_b": 2})
SIMCSE = [of_columns(["text", "text_pair"], {"text_a": of, "text_b": of}) for of in ("text", 0)]
SIMCSE[1].header = False
CHOICES = ["context", "question", "options"]
LISTED = Inputs(CHOICES, task("multiple_choice").to_json(), ["options"])


def read(inputs, content, file_format=None, path="my.file"):
    content = content if isinstance(content, bytes) else content.encode()
    lines = content.splitlines(keepends=True)
    return list(read_records(source(path, lines, file_format), inputs))


def values(*arguments, **settings):
    return [tuple(record.values.values()) for record in read(*arguments, **settings)]


def test_lines_are_texts_and_rows_have_ids():
    records = read(SINGLE, "\ufeffthe city\r\n\nwho?")
    assert [record.values for record in records] == [{"text": t} for t in ("the city", "", "who?")]
    assert [record.id for record in records] == ["0", "1", "2"]
    assert str(records[2].where) == "my.file, line 3"
    assert [r.id for r in read(SINGLE, "id\ttext\nq7\ta\n", "tsv")] == ["q7"]
    assert [r.id for r in read(SINGLE, '{"id": 3, "text": "a"}\n{"text": "b"}')] == ["3", "1"]


@pytest.mark.parametrize(
    ("inputs", "file_format", "content", "expected"),
    [
        (Inputs(["text"], None), None, "a\n{b\n", [("a",), ("{b",)]),
        (SINGLE, "lines", '{"text": "a"}\n', [('{"text": "a"}',)]),
        (SINGLE, None, "", []),
        (BY_NUMBER, "csv", "verdict,text\nyes,a\n", [("a",)]),
        (BY_NUMBER, "csv", "stars,review\nyes,a\n", [("a",)]),
        (BY_NUMBER, "csv", "text,id\na,7\n", [("a",)]),
        (OF_BOTH, "csv", "title,text,body\na,b,c\n", [("a", "c")]),
        (SIMCSE[0], None, '{"text": "a", "text_pair": "b"}', [("a", "b")]),
        (SIMCSE[1], "tsv", "a\tb\n", [("a", "b")]),
        # Columns have the names of the task, which go first if all are there, or of the signature.
        (CROSSED, "csv", "title,text\na,b\n", [("a", "b")]),
        (CROSSED, None, '{"title": "a", "text": "b", "text_pair": "c"}', [("a", "b")]),
        (CROSSED, None, '{"text": "a", "text_pair": "b"}', [("a", "b")]),
        (PAIR, "tsv", "text_pair\tx\ttext\nb\tc\ta\n", [("a", "b")]),
        (PAIR, "tsv", "reply\tx\treview\nb\tc\ta\n", [("a", "b")]),
        (PAIR, "csv", 'text_pair,"review"\n"b, ""c""\nd",a\n', [("a", 'b, "c"\nd')]),
        (PAIR, None, '{"text_pair": "b", "review": "a", "n": 1}', [("a", "b")]),
        (SINGLE, "tsv", "review\ttext\na\tb\n", [("a",)]),
        (NUMBERED, "tsv", "yes\ta\nno\tb\n", [("a",), ("b",)]),
        (WORDS, None, '{"tokens": ["a", "b"]}\n\n{"tokens": ["c"]}', [(["a", "b"],), (["c"],)]),
        (OUTSIDE, None, '{"story": "a", "ends": ["b", "c"], "right": 1}\n', [("a", ["b", "c"])]),
        (of_columns(["text"], {"words": "tokens"}), None, "the city\n", [("the city",)]),
        (LISTED, None, '{"story": "c", "asked": "q", "ends": ["x"]}', [("c", "q", ["x"])]),
        # Bytes that are not UTF-8 are replaced, as the graph does it: see test_answers.py.
        (SINGLE, None, b"a\n\xffb\xe4\xb8\n", [("a",), ("\ufffdb\ufffd",)]),
        (SINGLE, "csv", b'text\n"\xff, b"\n', [("\ufffd, b",)]),
    ],
)
def test_values_of_rows(inputs, file_format, content, expected):
    assert values(inputs, content, file_format) == expected


def test_a_column_is_not_two_inputs():
    with pytest.raises(InputError):
        read(CROSSED, '{"text": "the title is missing"}')


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
    with pytest.raises(InputError):
        source(f"{path}.gz", [line])


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


def test_texts_are_compared_without_negatives(tmp_path):
    own = SEARCH["embedding"]()
    fine_tuned(tmp_path, dataclasses.replace(own, columns={**own.columns, "negative": "wrong"}))
    table = pd.DataFrame({"asked": ["the city", "who?"], "reply": ["city", "born in"]})
    assert convbert.load(tmp_path).evaluate(table).scores["mrr"] >= 50
