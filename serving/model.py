"""Models for Python programs and notebooks, from texts to arrays; see `convbert`."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import tensorflow as tf
import tensorflow_text  # noqa: F401  (its ops are in the graph)

from convbert.common import plugins as plugin_files
from convbert.common.errors import InputError, reason
from convbert.common.files import as_path, read_bytes
from convbert.serving.client import Answers, Ask, Client
from convbert.serving.description import (
    check_digest,
    inputs_of,
    is_exported,
    litert_file,
    read_description,
    released,
)
from convbert.serving.export import describe
from convbert.serving.litert import load_signatures
from convbert.serving.load import (
    PRETRAINING,
    ServedModel,
    load_model_directory,
    signatures,
    word_vectors,
)
from convbert.serving.metrics import Evaluation, evaluate
from convbert.serving.records import WORD_LIST, are_words, is_one_row, records
from convbert.serving.search import Found, as_int8, check_lengths, nearest, unit
from convbert.serving.signatures.signature import Signature
from convbert.serving.trusted import GRAPH_FILE, LARGEST_GRAPH, computing_only

EMBEDDING = "embedding"  # the kind, and its output


class Model:
    """A model that takes texts, created by `load`.

    `texts` is any iterable of texts, which returns `Answers`; a single text returns one answer.
    If the model takes several texts per row, a row is a tuple of texts in the order of `inputs()`,
    or a mapping, and a DataFrame has a column for each. `progress` shows a bar: by default in a
    terminal or notebook, after two seconds.

    All methods raise InputError for texts of wrong types, for no texts, and if the model does not
    support the method. `description` is the content of `model.json`, see docs/serving.md.
    """

    def __init__(self, description: dict[str, Any], graph_of: Callable[[str], Ask], kept: Any):
        """`graph_of` makes the graph of a signature; `kept` holds the weights."""
        self.description = description
        self._graph_of, self._kept = functools.cache(graph_of), kept

    def __repr__(self) -> str:
        return f"<{self.kind} model; signatures: {', '.join(self.signatures)}>"

    @property
    def kind(self) -> str:
        """The kind of its task, or "pretraining"."""
        return self.description["kind"]

    @property
    def labels(self) -> list[str]:
        """The labels of its task, in the order of `probabilities`; [] if it has none."""
        return list(self.description["labels"])

    @property
    def signatures(self) -> list[str]:
        """The names of the signatures that take texts, for `ask`."""
        found = self.description["signatures"].items()
        return [name for name, item in found if "input_ids" not in item["inputs"]]

    def inputs(self, signature: str = "serving_default") -> list[str]:
        """Returns the names of a signature's texts, in the order of tuples."""
        return list(inputs_of(self.description, signature).names)

    def embed(
        self,
        texts: Any,
        *,
        pooling: str | None = None,
        dimensions: int | None = None,
        precision: str = "float32",
        progress: bool | None = None,
    ) -> np.ndarray:
        """Returns float32 vectors of texts [n, D], or of a single text, [D].

        A model of kind embedding has unit vectors of its own pooling. Of others, `pooling` is
        "mean" (of the hidden states, the default), "pooled", the vector that heads read, or, of a
        model directory, "words": the mean [n, E] of the word vectors of all pieces.
        `dimensions` returns the first elements only, at unit length. Vectors of `precision` "int8"
        have another norm, see `serving.search.as_int8`, and take a quarter of the memory.
        """
        if precision not in ("float32", "int8"):
            raise InputError(f"`precision` should be float32 or int8. Received: {precision!r}")
        signature, output = self.embedding_output(pooling)
        if pooling not in (None, "mean", "pooled", "words"):
            raise InputError(f"`pooling` should be mean, pooled or words. Received: {pooling!r}")
        if pooling == "words":
            vectors = self._word_vectors(texts)
        else:
            vectors = getattr(self.ask(signature, texts, only=(output,), progress=progress), output)
        vectors = vectors if dimensions is None else unit(vectors, dimensions)
        return as_int8(vectors) if precision == "int8" else vectors

    def embedding_output(self, pooling: str | None = None) -> tuple[str, str]:
        """Returns the signature and the output of `embed`."""
        if self.kind == EMBEDDING and pooling is None:
            return "serving_default", EMBEDDING
        return "embeddings", pooling or "mean"

    def _word_vectors(self, texts: Any) -> np.ndarray:
        model, inputs = self._kept, self.client("embeddings").inputs
        if not isinstance(model, ServedModel):
            raise InputError("`pooling` words should be for a model directory. Received: an export")
        one = is_one_row(texts, inputs)
        asked = [row.values["text"] for row in records([texts] if one else texts, inputs)]
        vectors = word_vectors(model, asked)
        return vectors[0] if one else vectors

    def similarity(self, a: Any, b: Any, **options: Any) -> np.ndarray:
        """Returns the cosines of all texts `a` with all texts `b`, float32 [n, m].

        `a` and `b` may be vectors [., D] instead; `options` are those of `embed`.
        """
        first, second = (self._vectors(texts, options) for texts in (a, b))
        check_lengths(first, second)
        return first @ second.T

    def search(self, queries: Any, corpus: Any, k: int = 10, **options: Any) -> Found:
        """Returns the k nearest texts of a corpus for each query, by cosine.

        `corpus` may be its vectors, `embed(corpus)`, for more than one search; `options` are those
        of `embed`. See `serving.search.nearest`.
        """
        return nearest(self._vectors(queries, options), self._vectors(corpus, options), k)

    def _vectors(self, texts: Any, options: dict[str, Any]) -> np.ndarray:
        """Returns unit vectors [n, D] of texts, or of vectors."""
        several = isinstance(texts, (list, tuple, pd.Series))
        first = next(iter(texts), "") if several else texts
        found = None
        if isinstance(first, (int, float, np.number, list, tuple, np.ndarray)):
            with contextlib.suppress(ValueError):  # of lists of words
                found = np.asarray([*texts] if several else texts)
        if found is None or found.dtype.kind not in "fi":
            found = self.embed(texts, **options)
        return unit(np.atleast_2d(found), options.get("dimensions"))

    def predict(self, texts: Any, *, progress: bool | None = None) -> Any:
        """Returns a fine-tuned model's answers; see docs/serving.md, "Signatures", for the fields.

        A tagger's texts may be lists of words.
        """
        if self.kind == PRETRAINING:
            raise self._lacking("predict")
        signature = "serving_default"
        if not isinstance(texts, (str, bytes, Mapping, tuple, np.ndarray, pd.Series, pd.DataFrame)):
            texts = list(texts) if np.iterable(texts) else texts
        if WORD_LIST in self.description["signatures"]:
            words = inputs_of(self.description, WORD_LIST)
            signature = WORD_LIST if are_words(texts, words) else signature
        return self.ask(signature, texts, progress=progress)

    def fill_mask(self, texts: Any, *, progress: bool | None = None) -> Any:
        """Returns the ten most probable pieces for each [MASK]: `candidates`, `probabilities`."""
        return self.ask("masked_tokens", texts, progress=progress)

    def replaced(self, texts: Any, *, progress: bool | None = None) -> Any:
        """Returns the `pieces` of texts and the `probabilities` that each was replaced."""
        return self.ask("replaced_tokens", texts, progress=progress)

    def score(self, texts: Any, *, progress: bool | None = None) -> Any:
        """Returns `score` of texts, by the model's method, with `num_pieces` and `num_words`."""
        return self.ask("score", texts, progress=progress)

    def continue_text(self, texts: Any, *, progress: bool | None = None, **options: Any) -> Any:
        """Continues texts with a causal language model: `continuation`, `pieces`, `log_probs`.

        Options: num_tokens, temperature, top_k, seed; see docs/serving.md.
        """
        return self.ask("continue_text", texts, options=options, progress=progress)

    def evaluate(
        self,
        data: str | os.PathLike | pd.DataFrame,
        *,
        metrics: list[str] | None = None,
        progress: bool | None = None,
    ) -> Evaluation:
        """Evaluates on a labelled file or table; see `serving.metrics.evaluate`."""
        return evaluate(self, data, metrics=metrics, progress=progress)

    def ask(
        self,
        signature: str,
        texts: Any,
        *,
        options: dict[str, Any] | None = None,
        only: Sequence[str] | None = None,
        progress: bool | None = None,
    ) -> Any:
        """Calls one of `signatures`; its outputs, without padding, are the fields of the answers.

        `options` are the same for all texts; `only` names the outputs to return.
        """
        client = self.client(signature, options)
        names = list(client.outputs if only is None else only)
        if not names or not {*names} <= {*client.outputs}:
            known = ", ".join(client.outputs)
            raise InputError(f"`only` should be names among {known}. Received: {only!r}")
        one = is_one_row(texts, client.inputs)
        asked = records([texts] if one else texts, client.inputs)
        columns = client.columns(asked, names, progress)
        of_labels = [name for name in names if client.outputs[name][1:] == "L"]
        index = texts.index if isinstance(texts, (pd.Series, pd.DataFrame)) else None
        answers = Answers(columns, self.labels, of_labels, index)
        return answers[0] if one else answers

    def client(
        self, signature: str = "serving_default", options: dict[str, Any] | None = None
    ) -> Client:
        """Returns the client of a signature, with values for its other inputs than texts."""
        if signature not in self.signatures:
            raise self._lacking(signature)
        client = Client(self.description, signature, self._graph_of(signature), options)
        client.kept = self._kept  # graphs do not keep it alive
        return client

    def _lacking(self, what: str) -> InputError:
        known = f"It is of kind {self.kind}; texts go to {', '.join(self.signatures) or 'none'}"
        return InputError(f"{what!r} is not supported, see docs/serving.md. {known}")


def load(
    path: str | os.PathLike,
    *,
    plugins: Sequence[str] = (),
    max_seq_length: int | None = None,
    scoring_method: str | None = None,
    trust: bool = False,
) -> Model:
    """Loads a model for texts.

    Args:
        path: a model directory, or a folder of fine-tuned runs, whose best run is loaded; or
            what export_savedmodel.py wrote: the folder of a SavedModel, or a LiteRT file; or
            "tiny" or "tiny-word-order", which come with the project: see released/README.md.
        plugins: Python files or modules to import first.
        max_seq_length: of a model directory; by default as in training.
        scoring_method: of `Model.score`; see docs/serving.md.
        trust: loads a SavedModel whatever its graph does, see `serving.trusted`.

    InputError if there is no model, the arguments do not fit the model, or a SavedModel has other
    operations than exports of this project.
    """
    path = released(as_path("path", path))
    if plugins:
        plugin_files.imported(plugins)  # not recorded, as no training depends on them
    settings = {"max_seq_length": max_seq_length, "scoring_method": scoring_method}
    given: dict[str, Any] = {n: value for n, value in settings.items() if value is not None}
    if not is_exported(path):
        model = load_model_directory(path, **given)
        asked = signatures(model)
        return Model(describe(model, asked, path), lambda name: _traced(asked[name]), model)
    if given:
        raise InputError(f"{path}: {', '.join(given)} should be set when a model is exported")
    description = read_description(path)
    if tflite := litert_file(path):
        asked = load_signatures(tflite)
        return Model(description, lambda name: _traced(asked[name]), asked)
    file = os.path.join(path, GRAPH_FILE)
    content = read_bytes(file, LARGEST_GRAPH)
    check_digest(file, content, description)
    with contextlib.nullcontext(path) if trust else computing_only(path, content) as folder:
        try:
            saved = tf.saved_model.load(folder)
        except Exception as error:  # files are cut, or a graph is not what it says
            message = f"{path}: the SavedModel cannot be loaded ({reason(error)})"
            raise InputError(message) from error
    return Model(description, saved.signatures.__getitem__, saved)


def _traced(signature: Signature) -> Ask:
    graph, names = signature.trace(), list(signature.inputs)
    # In their order: given by name, TensorFlow first composes an error, in 0.2 ms, and drops it.
    return lambda **inputs: graph(*(inputs[name] for name in names))
