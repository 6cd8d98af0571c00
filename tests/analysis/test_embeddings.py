"""Vectors before fine-tuning: the sentences of answers, and scores of a released model."""

import math

from convbert.analysis.embeddings import answers_in_sentences, embedding_scores
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


def test_scores_of_a_model(tmp_path):
    (tmp_path / "STS-B").mkdir()
    lines = [
        f"{i}\tmain\tx\tx\t{i}\tx\tx\tThe array.\tThe {w}.\t{i}" for i, w in enumerate("abcde")
    ]
    header = (
        "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore"
    )
    (tmp_path / "STS-B" / "dev.tsv").write_text("\n".join([header, *lines]) + "\n")
    write_squad(tmp_path / "q.json", (TEXT, ASKED))
    found = embedding_scores("tiny", str(tmp_path), "q.json")
    assert len(found) == 6
    assert all(math.isfinite(value) for value in found.values())
    assert 0 < found["search"] <= 100 >= found["mean_cosine"] > 0
    assert found["search_whitened"] > 0
