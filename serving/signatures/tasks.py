"""Signatures of fine-tuned models by kind of task."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from convbert.data.text.choices import CHOICE_SETTINGS, lay_out_choices
from convbert.data.text.windows import best_answers, context_windows, ranked_spans
from convbert.data.text.words import lay_out_words, split_words
from convbert.model.heads.linear_chain import ChainScores, negative_log_likelihood, viterbi
from convbert.model.heads.task import NO_OPTION
from convbert.serving.signatures.network import Network, token_ids
from convbert.serving.signatures.signature import TEXT, TRUNCATED, Signature, Tensor, Tensors

_OF_LABELS = {"scores": Tensor("float32", "BL"), "probabilities": Tensor("float32", "BL")}


def classification(network: Network) -> dict[str, Signature]:
    """Returns `serving_default` and `token_ids` of a classification task."""
    names = tf.constant(network.task.labels)

    def answer(predictions: Tensors) -> Tensors:
        logits = predictions["logits"]
        return {
            "label": tf.gather(names, tf.argmax(logits, axis=-1)),
            "scores": logits,
            "probabilities": tf.nn.softmax(logits),
        }

    outputs = {"label": Tensor("string", "B"), **_OF_LABELS}
    return _of_texts(network, "to its label", answer, outputs)


def _of_texts(
    network: Network,
    what: str,
    answer: Callable[[Tensors], Tensors],
    outputs: dict[str, Tensor],
    single: bool = False,
) -> dict[str, Signature]:
    """Returns `serving_default` and `token_ids` of a task on texts or pairs, or on `single` texts.

    `what` names the result for descriptions; `answer` maps the head's predictions to `outputs`.
    """
    task = network.task
    pairs = "text_b" in task.columns_of(task.train) and not single
    lay_out = network.layout.pair if pairs else network.layout.single

    def of_texts(*texts):
        sequences = lay_out(*texts)
        features = network.features(sequences.ids, sequences.segment_ids)
        predictions = network.predict(features, network.lengths(features))
        return {**answer(predictions), "truncated": sequences.truncated}

    default = Signature(
        f"a {'pair of texts' if pairs else 'text'} {what}",
        of_texts,
        {"text": TEXT, "text_pair": TEXT} if pairs else {"text": TEXT},
        {**outputs, "truncated": TRUNCATED},
    )
    raw = token_ids(network, lambda features: answer(network.predict(features)), outputs)
    return {"serving_default": default, "token_ids": raw}


def multi_label(network: Network) -> dict[str, Signature]:
    """Returns `serving_default` and `token_ids` of a multi-label task."""

    def answer(predictions: Tensors) -> Tensors:
        logits = predictions["logits"]
        shares = tf.sigmoid(logits)
        return {"chosen": logits >= 0.0, "scores": logits, "probabilities": shares}

    outputs = {"chosen": Tensor("bool", "BL"), **_OF_LABELS}
    return _of_texts(network, "to its labels", answer, outputs)


def regression(network: Network) -> dict[str, Signature]:
    """Returns `serving_default` and `token_ids` of a regression task."""
    low, high = network.task.label_range

    def answer(predictions: Tensors) -> Tensors:
        share = tf.cast(predictions["score"], tf.float64)
        return {"score": tf.cast(low + (high - low) * share, tf.float32)}

    return _of_texts(network, "to its score", answer, {"score": Tensor("float32", "B")})


def embedding(network: Network) -> dict[str, Signature]:
    """Returns `serving_default`, `similarity` and `token_ids` of text embeddings."""
    outputs = {"embedding": Tensor("float32", "BD")}
    own = _of_texts(network, "to its vector", lambda vectors: vectors, outputs, single=True)
    of_text = own["serving_default"].function

    def of_pair(text, text_pair):
        found = of_text(tf.concat([text, text_pair], 0))
        (a, b), cut = (tf.split(x, 2) for x in (found["embedding"], found["truncated"]))
        return {"similarity": tf.reduce_sum(a * b, -1), "truncated": cut[0] | cut[1]}

    pair = Signature(
        "two texts to the cosine of their vectors",
        of_pair,
        {"text": TEXT, "text_pair": TEXT},
        {"similarity": Tensor("float32", "B"), "truncated": TRUNCATED},
    )
    return {**own, "similarity": pair}


_CHOICE = {
    "choice": Tensor("int32", "B"),
    "option": Tensor("string", "B"),
    "scores": Tensor("float32", "BC"),
    "probabilities": Tensor("float32", "BC"),
    "num_options": Tensor("int32", "B"),
    "truncated": TRUNCATED,
}


def multiple_choice(network: Network) -> dict[str, Signature]:
    """Returns `serving_default` of a multiple-choice task."""
    task, hparams = network.task, network.model.hparams
    settings = {name: getattr(hparams, name) for name in CHOICE_SETTINGS}
    has_question = "question" in task.columns_of(task.train) or task.format == "race"

    def choose(context, *texts):
        options = texts[-1]
        question = texts[0] if has_question else tf.zeros_like(context)
        B, C = tf.unstack(tf.shape(options))
        sequences = lay_out_choices(network.layout, context, question, options, **settings)
        features = network.features(sequences.ids, sequences.segment_ids)
        scores = network.predict(features, network.lengths(features))["score"]
        present = options != ""
        any_option = tf.reduce_any(present, axis=1)
        scores = tf.where(present, tf.reshape(scores, [B, C]), NO_OPTION)
        # One more, which is chosen if there is no option.
        padded = tf.pad(scores, [[0, 0], [0, 1]], constant_values=2 * NO_OPTION)
        best = tf.argmax(padded, axis=1, output_type=tf.int32)
        text = tf.gather(tf.pad(options, [[0, 0], [0, 1]]), best, batch_dims=1)
        probabilities = tf.where(present, tf.nn.softmax(scores), 0.0)
        return {
            "choice": tf.where(any_option, best, -1),
            "option": text,
            "scores": scores,
            "probabilities": probabilities,
            "num_options": _number_of(present),
            "truncated": tf.reduce_any(tf.reshape(sequences.truncated, [B, C]), axis=1),
        }

    inputs = {
        "context": TEXT,
        **({"question": TEXT} if has_question else {}),
        "options": Tensor("string", "BC"),
    }
    about = "a context, " + "a question " * has_question + "and options to the best option"
    return {"serving_default": Signature(about, choose, inputs, _CHOICE)}


def reranking(network: Network) -> dict[str, Signature]:
    """Returns `serving_default` of a reranking task."""

    def score(query, candidates):
        B, N = tf.unstack(tf.shape(candidates))
        queries = tf.reshape(tf.tile(query[:, None], [1, N]), [-1])
        sequences = network.layout.pair(queries, tf.reshape(candidates, [-1]))
        features = network.features(sequences.ids, sequences.segment_ids)
        scores = network.predict(features, network.lengths(features))["score"]
        present = candidates != ""
        scores = tf.where(present, tf.reshape(scores, [B, N]), NO_OPTION)
        return {
            "scores": scores,
            "order": tf.argsort(scores, direction="DESCENDING", stable=True),
            "num_candidates": _number_of(present),
            "truncated": tf.reduce_any(tf.reshape(sequences.truncated, [B, N]), axis=1),
        }

    inputs = {"query": TEXT, "candidates": Tensor("string", "BN")}
    outputs = {
        "scores": Tensor("float32", "BN"),
        "order": Tensor("int32", "BN"),
        "num_candidates": Tensor("int32", "B"),
        "truncated": TRUNCATED,
    }
    about = "a query and candidates to their scores"
    return {"serving_default": Signature(about, score, inputs, outputs)}


def _number_of(present: tf.Tensor) -> tf.Tensor:
    """Returns one more than the last place where bool [B, N] is true, or 0: int32 [B]."""
    places = tf.where(present, tf.range(1, tf.shape(present)[1] + 1), 0)
    return tf.reduce_max(tf.pad(places, [[0, 0], [0, 1]]), axis=1)


_SPAN = {
    "answer": Tensor("string", "B"),
    "start": Tensor("int32", "B"),
    "end": Tensor("int32", "B"),
    "score": Tensor("float32", "B"),
    "null_score": Tensor("float32", "B"),
    "truncated": TRUNCATED,
}


def span(network: Network) -> dict[str, Signature]:
    """Returns `serving_default` of a span task."""
    hparams, version_2 = network.model.hparams, network.task.version_2

    def of_context(question, context):
        windows = context_windows(
            network.layout,
            question,
            context,
            max_query_length=hparams.max_query_length,
            doc_stride=hparams.doc_stride,
        )
        features = network.features(windows.ids, windows.segment_ids)
        predictions = network.predict(features, network.lengths(features))
        best = best_answers(
            ranked_spans(windows.places, predictions, hparams.max_answer_length),
            windows.places,
            predictions["answerable_logit"],
            tf.size(context),
            answerable_classifier=hparams.answerable_classifier,
        )
        answered = best.found
        if version_2:
            answered &= best.null_score <= hparams.qa_na_threshold
        length = tf.where(answered, best.char_end - best.char_start, 0)
        first = tf.where(answered, best.char_start, 0)
        return {
            "answer": tf.strings.substr(context, first, length, unit="UTF8_CHAR"),
            "start": tf.where(answered, best.char_start, -1),
            "end": tf.where(answered, best.char_end, -1),
            "score": tf.cast(best.score, tf.float32),
            "null_score": tf.cast(best.null_score, tf.float32),
            "truncated": windows.truncated,
        }

    about = "a question to its answer in a context"
    inputs = {"question": TEXT, "context": TEXT}
    return {"serving_default": Signature(about, of_context, inputs, _SPAN)}


_WORDS = Tensor("string", "BW")
_TAGGED = {
    "words": _WORDS,
    "tags": _WORDS,
    "num_words": Tensor("int32", "B"),
    "truncated": TRUNCATED,
}


def tagging(network: Network) -> dict[str, Signature]:
    """Returns `serving_default` and `words` of a tagging task.

    With a CRF head, tags are the best path of the whole sentence, and `score` its log probability.
    """
    names = tf.constant(network.task.labels)
    chained = getattr(network.model.hparams, "head", None) == "crf"
    of_tokens = "emissions" if chained else "tags"

    def tags_of(words: tf.RaggedTensor, width: tf.Tensor | None = None) -> Tensors:
        sequences = lay_out_words(network.layout, words)
        features = network.features(sequences.ids, sequences.segment_ids)
        S = tf.shape(features["input_ids"])[1]
        predicted = network.predict(features, network.lengths(features), {of_tokens: S})
        places = tf.stack([sequences.sequence, sequences.position], -1)
        of_words = words.with_values(tf.gather_nd(predicted[of_tokens], places))
        own = {}
        if chained:
            of_words, own["score"] = _best_paths(network, of_words)
        tags = words.with_values(tf.gather(names, of_words.values))
        shape = None if width is None else tf.stack([words.nrows(), width])
        return {
            "words": words.to_tensor("", shape=shape),
            "tags": tags.to_tensor("", shape=shape),
            "num_words": tf.cast(words.row_lengths(), tf.int32),
            "truncated": sequences.truncated,
            **own,
        }

    def of_text(text):
        return tags_of(split_words(text))

    def of_words(words):
        """Takes [B, W]; an empty string before the last word is a word without pieces."""
        return tags_of(_without_padding(words), tf.shape(words, out_type=tf.int64)[1])

    outputs = {**_TAGGED, **({"score": Tensor("float32", "B")} if chained else {})}
    about = "a sentence to its words and their tags"
    return {
        "serving_default": Signature(about, of_text, {"text": TEXT}, outputs),
        "words": Signature("a list of words to their tags", of_words, {"words": _WORDS}, outputs),
    }


def _without_padding(words: tf.Tensor) -> tf.RaggedTensor:
    """Removes empty strings after the last word: string [B, W] -> [B, (words)]."""
    return tf.RaggedTensor.from_tensor(words, tf.cast(_number_of(words != ""), tf.int64))


def _best_paths(network: Network, emissions: tf.RaggedTensor) -> tuple[tf.RaggedTensor, tf.Tensor]:
    """Maps [B, (words), L] to tag indices, int32 [B, (words)], and log probabilities [B]."""
    L = len(network.task.labels)
    lengths = tf.cast(emissions.row_lengths(), tf.int32)
    W = tf.maximum(emissions.bounding_shape(1), 1)
    padded = emissions.to_tensor(0.0, shape=tf.stack([emissions.nrows(), W, L]))
    padded = tf.ensure_shape(padded, [None, None, L])
    chain = ChainScores(**{n: tf.constant(x) for n, x in network.model.constants.items()})
    tags, alone = viterbi(padded, lengths, chain), tf.zeros_like(lengths, tf.bool)
    path, words = tags.to_tensor(shape=tf.shape(padded)[:2]), tf.maximum(lengths, 1)
    score = -negative_log_likelihood(tf.nn.log_softmax(padded), path, words, chain, alone)
    return tags, tf.where(lengths > 0, score, 0.0)
