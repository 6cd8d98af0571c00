"""One interface from sentences to log scores, whichever model scores them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from data.tokenization import batches
from errors import InputError, reason
from pretrain.objectives import choose
from scoring.models import is_exported, method_of
from serving.client import load_saved_model
from serving.load import load
from signatures.network import Network
from signatures.scoring import score


class SentenceScore(NamedTuple):
    """The score of a sentence.

    Attributes:
        score: natural logarithm, by the scorer's method; higher is better. Not divided by length.
        num_pieces: word pieces that it is the sum of.
        num_words: words between whitespace.
    """

    score: float
    num_pieces: int
    num_words: int


class Scorer:
    """Scores sentences; `open_scorer` makes it.

    Attributes:
        method: how; see docs/scoring.md.
        num_unknown: pieces of all sentences so far that were [UNK], as no piece of the vocabulary
            fits their word.
    """

    def __init__(self, ask: Callable[..., dict[str, tf.Tensor]], method: str):
        self._ask, self.method, self.num_unknown = ask, method, 0

    def scores(
        self,
        sentences: Sequence[str],
        where: Callable[[int], str] = "sentences[{}]".format,
        *,
        allow_no_pieces: bool = False,
    ) -> list[SentenceScore]:
        """The scores of any number of sentences of any length, in their order.

        Sentences of similar length are computed together; a score does not depend on the others.

        Args:
            sentences: texts.
            where: what errors call the sentence of a number, from 0.
            allow_no_pieces: score 0 instead of an error for a sentence without word pieces.
        """
        if isinstance(sentences, str):  # whose characters would be scored
            raise TypeError("`sentences` should be a list of texts. Received: a text")
        found: list[SentenceScore | None] = [None] * len(sentences)
        order = sorted(range(len(sentences)), key=lambda number: len(sentences[number]))
        for part in batches(order, lambda number: len(sentences[number])):
            for number, values in zip(part, self._part([sentences[number] for number in part])):
                if not values.num_pieces and not allow_no_pieces:
                    raise InputError(
                        f"{where(number)}: a sentence to score should have at least one word piece."
                        f" Received: {sentences[number]!r}"
                    )
                found[number] = values
        return found

    def _part(self, sentences: list[str]) -> list[SentenceScore]:
        texts = tf.constant([text.encode("utf-8", "replace") for text in sentences])
        try:
            outputs = {name: value.numpy() for name, value in self._ask(text=texts).items()}
        except tf.errors.OpError as error:
            raise InputError(f"the model cannot score the sentences ({reason(error)})") from error
        self.num_unknown += int(outputs["num_unknown"].sum())
        columns = [outputs[name].tolist() for name in SentenceScore._fields]
        return [SentenceScore(*row) for row in zip(*columns)]


def open_scorer(path: str, method: str | None = None, **options: Any) -> Scorer:
    """The scorer of a model.

    Args:
        path: a model directory of pre-training, or a SavedModel of export_savedmodel.py.
        method: the name of a method, see docs/scoring.md; by default the first that the model's
            objective offers and its checkpoint has the networks for, or the one that was exported.
        **options: of a model directory, `precision` and `max_seq_length` of `serving.load.load`.
    """
    name = method_of(path, method)
    if is_exported(path):
        if given := [option for option, value in options.items() if value is not None]:
            raise InputError(f"`{given[0]}` should be left out, as {path} is a SavedModel")
        return Scorer(load_saved_model(path).signatures["score"], name)
    model = load(path, scoring_method=method, **options)
    if model.scoring is None:
        choose((), method, path)  # says so
    return Scorer(score(Network(model)).trace(), model.scoring_method.name)
