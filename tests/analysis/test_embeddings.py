"""Vectors before fine-tuning: the sentences of answers, and their scores."""

import numpy as np
import pytest
from scipy import stats

import convbert
from convbert.analysis import embeddings
from convbert.analysis.embeddings import answers_in_sentences
from convbert.serving.search import unit
from tests.finetune.kinds_support import rejects
from tests.finetune.squad_support import question, write_squad
from tests.finetune.test_task_official import STS
from tests.serving.support import pretrained

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
    expected = ["Ada lived in London.", '"Mary taught her!"', "St."]
    expected += ["5 was a street (so e.g. maps say).", "It is gone."]
    assert [*data.documents.values()] == expected
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


def write_pairs(folder, texts):
    """Writes STS-B's training and development sets: "Ada" with each text, scores from 0."""
    lines = [f"{i}\tx\tx\tx\t{i}\tx\tx\tAda\t{text}\t{i}" for i, text in enumerate(texts)]
    header = "\t".join((*STS, "score"))
    (folder / "STS-B").mkdir()
    for split in ("train", "dev"):
        (folder / "STS-B" / f"{split}.tsv").write_text("\n".join([header, *lines]) + "\n")


def test_scores_are_their_definition(tmp_path, monkeypatch):
    monkeypatch.setattr(embeddings, "load", lambda *_, **__: Words())
    texts = ["Ada", "Ada Ada", "Mary", "Ada gone", "street"]
    write_pairs(tmp_path, texts)
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


def test_scores_of_layers(tmp_path):
    """The last layer's are those of `Model.embed`; words have no context."""
    write_pairs(tmp_path, ["Ada", "Mary", "street", "the street"])
    write_squad(tmp_path / "q.json", (TEXT, ASKED))
    folder = tmp_path / "model"
    pretrained(folder, overrides={"num_hidden_layers": 2})
    found = embeddings.layer_scores(folder, str(tmp_path), "q.json")
    model = convbert.load(folder)
    scorer = embeddings.Scorer(str(tmp_path), "q.json")
    L = model.description["encoder"]["num_hidden_layers"]
    for name, pooling in (("words", "words"), (f"layer_{L}", "mean")):
        vectors = scorer.vectors(lambda texts, of=pooling: model.embed(texts, pooling=of))
        for score, value in scorer.scores(vectors).items():
            assert found[f"{name} {score}"] == pytest.approx(value, abs=1e-3)
    assert len(found) == 4 * (1 + L)
    generator = embeddings.layer_scores(folder, str(tmp_path), "q.json", network="generator")
    assert generator["words search"] == found["words search"]  # of the same embeddings
    assert generator != found


def test_tables_to_fine_tune_on(tmp_path):
    write_pairs(tmp_path, ["Ada", "Mary"])
    write_squad(tmp_path / "q.json", (TEXT, ASKED))
    same, pairs, scores = (
        embeddings.training_table(name, str(tmp_path), "q.json")
        for name in ("simcse", "pairs", "scores")
    )
    assert pairs.iloc[0].tolist() == ["Where did Ada live?", "Ada lived in London."]
    assert len(pairs) == 3
    assert scores["label"].tolist() == [0.0, 1.0]
    assert same["text_a"].tolist() == same["text_b"].tolist()
    documents = answers_in_sentences(tmp_path / "q.json").documents.values()
    assert {*same["text_a"]} == {"Ada", "Mary", *documents}
    with rejects("simcse", "later"):
        embeddings.training_table("later", str(tmp_path), "q.json")


@pytest.mark.slow  # needs half a minute: fine-tunes
def test_scores_after_fine_tuning(tmp_path, monkeypatch):
    monkeypatch.setitem(embeddings._TUNING, "train_batch_size", 4)
    write_pairs(tmp_path, ["Ada", "Mary", "street", "the street"])
    write_squad(tmp_path / "q.json", (TEXT, ASKED))
    folder, files = tmp_path / "model", (str(tmp_path), "q.json")
    pretrained(folder)
    before = embeddings.embedding_scores(folder, *files, 24)
    for after in ("simcse", "pairs", "scores"):
        found = embeddings.embedding_scores(folder, *files, 24, after, "q.json")
        assert {*found} == {*before}
        assert found["mean_cosine"] != before["mean_cosine"]
