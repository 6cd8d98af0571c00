"""Vectors before fine-tuning: the sentences of answers, and their scores."""

import numpy as np
import pytest
from scipy import stats

from convbert.analysis import embeddings
from convbert.analysis.embeddings import answers_in_sentences
from convbert.serving.search import unit
from tests.finetune.kinds_support import rejects
from tests.finetune.squad_support import question, write_squad

TEXT = 'Ada lived in London. "Mary taught her!" St. 5 was a street (so e.g. maps say). It is gone.'
ASKED = [
    question("where", TEXT, "London", text="Where did Ada live?"),
    question("who", TEXT, "Mary", "street", text="Who taught Ada?"),
    question("what", TEXT, "gone", text="What is gone?"),
    question("never", TEXT, text="Who?", is_impossible=True),
]


def test_sentences_of_answers(tmp_path):
    path = write_squad(tmp_path / "q.json", (TEXT, ASKED), (TEXT, []))
    data = answers_in_sentences(path)
    assert [*data.documents.values()] == [
        "Ada lived in London.",
        '"Mary taught her!"',
        "St.",
        "5 was a street (so e.g. maps say).",
        "It is gone.",
    ]
    assert [*data.queries] == ["where", "who", "what"]
    texts = [{data.documents[name] for name in found} for found in data.relevant.values()]
    assert texts[0] == {"Ada lived in London."}
    assert texts[1] == {'"Mary taught her!"', "5 was a street (so e.g. maps say)."}
    assert texts[2] == {"It is gone."}
    with rejects("q.json"):
        answers_in_sentences(write_squad(tmp_path / "q.json", (TEXT, ASKED[3:])))


class Words:
    """Vectors of a text: how often it has each of some words, and 1."""

    words = ("Ada", "Mary", "street", "gone", "London")

    def embed(self, texts):
        rows = [[text.count(word) for word in self.words] + [1.0] for text in texts]
        return np.array(rows, np.float32)


def test_scores_are_their_definition(tmp_path, monkeypatch):
    monkeypatch.setattr(embeddings, "load", lambda *_, **__: Words())
    (tmp_path / "STS-B").mkdir()
    texts = ["Ada", "Ada Ada", "Mary", "Ada gone", "street"]
    lines = [f"{i}\tx\tx\tx\t{i}\tx\tx\tAda\t{text}\t{i}" for i, text in enumerate(texts)]
    header = (
        "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore"
    )
    (tmp_path / "STS-B" / "dev.tsv").write_text("\n".join([header, *lines]) + "\n")
    asked = [*ASKED[:1], {**ASKED[2], "question": "What?"}]
    write_squad(tmp_path / "q.json", (TEXT, asked))
    found = embeddings.embedding_scores("m", str(tmp_path), "q.json")
    a, b = (unit(Words().embed(of)) for of in (["Ada"] * 5, texts))
    expected = 100 * stats.spearmanr((a * b).sum(-1), range(5)).statistic
    assert found["similarity"] == pytest.approx(expected)
    # The first question finds its sentence, the only one with its word. The other has no word: its
    # sentence comes after the one without a word and two with one word, before that with two.
    assert found["search"] == pytest.approx(50.0 + 50.0 / np.log2(5))
    documents = Words().embed(answers_in_sentences(str(tmp_path / "q.json")).documents.values())
    variances = np.linalg.eigvalsh(np.cov(documents.T))
    assert found["first_component"] == pytest.approx(100 * variances[-1] / variances.sum())
    assert 0 < found["mean_cosine"] < 100
    assert found["similarity_whitened"] != found["similarity"]
