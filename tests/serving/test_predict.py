"""The client: its answers, their order and form; the command with files and standard input."""

import json
import os

import numpy as np
import pytest
import tensorflow as tf

from convbert.common.errors import InputError
from convbert.serving.description import read_description, signature_for
from convbert.serving.records import Record, source
from convbert.serving.streams import Lines
from tests import command_support
from tests.finetune.kinds_support import read_predictions

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
    tagged = [{"words": ["the", "city"]}, {"words": ["born"]}]
    rows = ask("tagging", "words", *tagged)
    assert [row["words"] for row in rows] == [row["words"] for row in tagged]
    assert [len(row["prediction"]) for row in rows] == [2, 1]
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
