"""Retrieval data in BEIR's layout: reading, searches, scores."""

import json
import types

import numpy as np
import pytest
from sklearn.metrics import ndcg_score

import convbert
from convbert.serving import beir
from convbert.serving.search import unit
from tests.command_support import import_command
from tests.finetune.kinds_support import rejects
from tests.serving.support import pretrained

DOCUMENTS = {
    "d1": {"title": "Ada", "text": "Ada lived in London."},
    "d2": {"title": "", "text": "Mary taught Ada."},
    "d3": {"text": "The river flows to the sea."},
    "q1": {"text": "Where did Ada live?"},  # as the query itself
}
QUERIES = {"q1": "Where did Ada live?", "q2": "Where does the river flow?", "q3": "no judgement"}
GRADES = [("q1", "d1", 2), ("q1", "d2", 1), ("q2", "d3", 1), ("q2", "d1", 0)]


def write(folder, documents=DOCUMENTS, queries=QUERIES, grades=GRADES):
    def lines(rows):
        return "".join(json.dumps({"_id": name, **row}) + "\n" for name, row in rows)

    documents = documents.items() if isinstance(documents, dict) else documents
    (folder / "corpus.jsonl").write_text(lines(documents))
    (folder / "queries.jsonl").write_text(lines((n, {"text": x}) for n, x in queries.items()))
    (folder / "qrels").mkdir(exist_ok=True)
    rows = [("query-id", "corpus-id", "score"), *grades]
    (folder / "qrels" / "test.tsv").write_text("".join("\t".join(map(str, r)) + "\n" for r in rows))
    return str(folder)


def test_reading(tmp_path):
    data = beir.read(write(tmp_path))
    assert data.documents["d1"] == "Ada Ada lived in London."
    assert list(data.queries) == ["q1", "q2"]
    empty = {**DOCUMENTS, "d9": {"text": ""}}
    assert beir.read(write(tmp_path, documents=empty)).documents["d9"] == ""
    assert data.relevant == {"q1": {"d1": 2.0, "d2": 1.0}, "q2": {"d3": 1.0}}


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"documents": {}}, ["corpus.jsonl"]),
        ({"grades": []}, ["test.tsv"]),
        ({"grades": [("q1", "d1", 0)]}, ["test.tsv", "'q1'"]),
        ({"grades": [("q1", "d9", 1)]}, ["line 2", "'d9'"]),
        ({"grades": [("q1", "d1", "much")]}, ["line 2", "much"]),
        ({"grades": [("q1", "d1", 1), ("q1", "d1", 2)]}, ["line 3", "'d1'"]),
        ({"documents": [("d1", {"text": "a"})] * 2}, ["corpus.jsonl, line 2", "'d1'"]),
        ({"documents": {"d1": {"text": ["x"]}}}, ["corpus.jsonl, line 1"]),
        ({"queries": {"q1": " "}}, ["queries.jsonl, line 1"]),
    ],
)
def test_wrong_files_are_named(tmp_path, changes, named):
    with rejects(*named):
        beir.read(write(tmp_path, **changes))


def test_scores_are_their_definition():
    draw = np.random.default_rng(0)
    names = [f"d{i}" for i in range(300)]
    relevant = {
        f"q{i}": {str(n): float(draw.integers(1, 4)) for n in draw.choice(names, 7, replace=False)}
        for i in range(20)
    }
    data = beir.DataSet(dict.fromkeys(names, ""), dict.fromkeys(relevant, ""), relevant)
    found = [draw.permutation(names)[:100].tolist() for _ in relevant]
    for (_, row), grades, own in zip(beir.scores(data, found).iterrows(), relevant.values(), found):
        gold = [grades.get(name, 0.0) for name in names]
        ranks = [-own.index(name) if name in own else -1000.0 for name in names]
        assert row["nDCG@10"] == pytest.approx(100 * ndcg_score([gold], [ranks], k=10))
        first = min((own.index(name) for name in grades if name in own), default=99)
        assert row["MRR@10"] == pytest.approx(100 / (1 + first) if first < 10 else 0.0)
        assert row["recall@100"] == pytest.approx(100 * len({*grades} & {*own}) / 7)
    # What is not found scores nothing.
    data = beir.DataSet({"d1": "a", "d2": "b"}, {"q1": "?"}, {"q1": {"d1": 1.0}})
    for found, expected in (([], 0.0), (["d2"], 0.0), (["d2", "d1"], 100.0 / np.log2(3))):
        assert beir.scores(data, [found])["nDCG@10"].iloc[0] == pytest.approx(expected)
    assert beir.by_words(data) == [[]]
    with rejects("words"):
        beir.by_words(beir.DataSet({"d1": "."}, {"q1": "?"}, {"q1": {"d1": 1.0}}))


def test_searches_and_their_table(tmp_path):
    data = beir.read(write(tmp_path))
    words = beir.by_words(data)
    assert [row[0] for row in words] == ["d1", "d3"]
    assert "q1" not in words[0]
    assert words[1] == ["d3", "q1"]  # the others share no word
    model = convbert.load("tiny")
    embedded = (unit(model.embed([*of.values()])) for of in (data.queries, data.documents))
    vectors = beir.by_vectors(data, *embedded)
    assert [{*row} for row in vectors] == [{"d1", "d2", "d3"}, {*DOCUMENTS}]
    asked = []

    def predict(rows):  # a reranker that prefers short texts
        asked.extend(rows)
        orders = [np.argsort([len(text) for text in texts]) for _, texts in rows]
        return [types.SimpleNamespace(order=order) for order in orders]

    ordered = beir.reranked(data, vectors, types.SimpleNamespace(predict=predict))
    assert ordered[0] == ["d2", "d1", "d3"]
    assert asked[0] == ("Where did Ada live?", [data.documents[name] for name in vectors[0]])
    data.documents["d1"] = ""
    beir.reranked(data, vectors, types.SimpleNamespace(predict=predict))
    assert all(text for _, texts in asked[-2:] for text in texts)  # as models need it
    table = beir.summary({"BM25": beir.scores(data, words)})
    assert table.loc["BM25", "MRR@10"] == "100.0"
    assert table.shape == (1, 3)


def test_the_command(tmp_path, capsys, monkeypatch):
    command, known = import_command(monkeypatch, "convbert.serving.retrieval")
    more = {f"e{i}": {"text": f"Number {i} is not {i + 1}."} for i in range(140)}
    known(["retrieval", "--model=tiny", f"--data_dir={write(tmp_path, DOCUMENTS | more)}"])
    command.main([])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines[2:]] == ["BM25", "vectors", "vectors, whitened"]
    pretrained(tmp_path / "model")
    flags = [f"--data_dir={write(tmp_path)}", "--max_seq_length=4"]
    known(["retrieval", f"--model={tmp_path / 'model'}", *flags])
    command.main([])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("4 documents, 2 queries")
    assert lines.pop(1).startswith("4 documents are longer")
    assert [line.split()[0] for line in lines[2:]] == ["BM25", "word", "vectors"]
