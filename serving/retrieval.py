"""Scores search by a model's vectors, also whitened, beside BM25 and means of its word vectors.

    convbert retrieval --model my_results/questions --data_dir scifact --reranker my_results/ranking

Prints means over the queries, with 95 % intervals.
"""

from __future__ import annotations

import convbert.common.startup  # TensorFlow reads the environment when it is imported

# isort: split
from absl import app, flags

from convbert.common.errors import InputError, main_with_clear_errors
from convbert.common.files import as_path, check_there

FLAGS = flags.FLAGS
flags.DEFINE_string("model", None, "Model directory, folder of runs, or exported model.")
flags.DEFINE_string("data_dir", None, "Folder of corpus.jsonl, queries.jsonl, qrels/SPLIT.tsv.")
flags.DEFINE_string("split", "test", "Name of the file in qrels.")
flags.DEFINE_integer("max_seq_length", None, "Of a model directory. Default: as in training.")
flags.DEFINE_list("plugins", [], "Python files or modules to import first, comma-separated.")
flags.DEFINE_bool("trust", False, "Load a SavedModel whatever its graph does.")
flags.DEFINE_string("reranker", None, "Model of kind reranking, for the documents found.")


def main(_: list[str]) -> None:
    """Reads the data, searches and prints a table of scores."""
    convbert.common.startup.keep_memory()
    check_there("--data_dir", FLAGS.data_dir)
    from convbert.serving import beir  # imports TensorFlow, which takes seconds
    from convbert.serving.description import is_exported, released
    from convbert.serving.model import load
    from convbert.serving.search import unit, whitening

    data = beir.read(FLAGS.data_dir, FLAGS.split)
    own = {"plugins": FLAGS.plugins, "max_seq_length": FLAGS.max_seq_length}
    model = load(FLAGS.model, **own, trust=FLAGS.trust)
    reranker = load(FLAGS.reranker, trust=FLAGS.trust) if FLAGS.reranker else None
    if reranker and reranker.kind != "reranking":
        raise InputError(f"--reranker should be of kind reranking. Received: {reranker.kind}")
    texts = [[*of.values()] for of in (data.queries, data.documents)]
    found = {"BM25": beir.by_words(data)}
    if not is_exported(released(as_path("--model", FLAGS.model))):
        words = [unit(model.embed(of, pooling="words")) for of in texts]
        found["word vectors"] = beir.by_vectors(data, *words)
    signature, output = model.embedding_output()
    answers = [model.ask(signature, of, only=(output, "truncated")) for of in texts]
    vectors = [unit(getattr(of, output)) for of in answers]
    found["vectors"] = beir.by_vectors(data, *vectors)
    # With fewer documents than dimensions, whitening would make all of them equally distant.
    if len(data.documents) > vectors[1].shape[1]:
        white = whitening(vectors[1])
        found["vectors, whitened"] = beir.by_vectors(data, *(white(of) for of in vectors))
    if reranker:
        found |= {f"{n}, reranked": beir.reranked(data, x, reranker) for n, x in found.items()}
    print(f"{len(data.documents):,} documents, {len(data.queries):,} queries of {FLAGS.split}")
    if cut := int(answers[1].truncated.sum()):
        print(f"{cut:,} documents are longer than the model reads, and were cut for its vectors")
    table = beir.summary({name: beir.scores(data, own) for name, own in found.items()})
    print(table.to_string())


if __name__ == "__main__":
    flags.mark_flags_as_required(["model", "data_dir"])
    app.run(main_with_clear_errors(main))
