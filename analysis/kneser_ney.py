"""The n-gram baseline of language models: interpolated modified Kneser-Ney smoothing.

    python -m analysis.kneser_ney --train ptb.train.txt --heldout ptb.valid.txt

Files have one sentence per line, words parted by whitespace; each sentence is predicted by itself,
its `<eos>` too. Chen and Goodman 1998, Section 3: of n-grams below the highest order it is counted
after how many different words they stand, but of those at the beginning of a sentence, how often
they do; each order has three discounts from its counts of counts, and is interpolated with the one
below, unigrams with 1 / V. Words that are not in the training text are `<unk>`.
"""

from __future__ import annotations

import library_logs  # noqa: F401  TensorFlow reads the environment when it is imported

# isort: split
import argparse
import collections
import math
import sys
from collections.abc import Iterable, Iterator, Sequence

import storage
from errors import InputError, main_with_clear_errors

BEGIN, END, UNKNOWN = "<s>", "<eos>", "<unk>"
_FALLBACK = (0.5, 1.0, 1.5)  # of texts too small to have counts of counts, as KenLM's

Gram = tuple[str, ...]


class KneserNey:
    """An n-gram model of sentences.

    Args:
        sentences: the words of each, without their ends.
        order: n.

    Attributes:
        vocabulary: what can be predicted: the words of the sentences, `<eos>` and `<unk>`.
    """

    def __init__(self, sentences: Iterable[Sequence[str]], order: int = 5) -> None:
        if order < 1:
            raise InputError(f"`order` should be at least 1. Received: {order}")
        self.order = order
        counts = adjusted_counts(sentences, order)
        self.vocabulary = {gram[0] for gram in counts[1]} | {UNKNOWN}
        # Of an n-gram, its discounted share; of a context, what it leaves to the order below.
        self._shares: dict[Gram, float] = {}
        self._left: dict[Gram, float] = {}
        for n in range(1, order + 1):
            self._add_order(counts.pop(n))

    def _add_order(self, counts: collections.Counter[Gram]) -> None:
        discounts = modified_discounts(counts.values())
        totals: collections.Counter[Gram] = collections.Counter()
        left: collections.Counter[Gram] = collections.Counter()
        for gram, count in counts.items():
            totals[gram[:-1]] += count
            left[gram[:-1]] += discounts[min(count, 3) - 1]
        for gram, count in counts.items():
            self._shares[gram] = (count - discounts[min(count, 3) - 1]) / totals[gram[:-1]]
        for context, total in totals.items():
            self._left[context] = left[context] / total

    def probability(self, word: str, context: Sequence[str]) -> float:
        """p(word | the last order - 1 words of the context).

        Args:
            word: one of `vocabulary`.
            context: the words before, from `<s>` on where the sentence begins.
        """
        context = tuple(context)[max(0, len(context) - self.order + 1) :]
        p = 1.0 / len(self.vocabulary)
        for first in range(len(context), -1, -1):
            known = context[first:]
            if known not in self._left:  # nor is any longer one
                break
            p = self._shares.get((*known, word), 0.0) + self._left[known] * p
        return p

    def losses(self, sentence: Sequence[str]) -> Iterator[float]:
        """Yields -log p of the words of a sentence and of its end."""
        context = [BEGIN]
        for word in (*sentence, END):
            word = word if word in self.vocabulary else UNKNOWN
            yield -math.log(self.probability(word, context[1 - self.order :]))
            context.append(word)


def adjusted_counts(
    sentences: Iterable[Sequence[str]], order: int
) -> dict[int, collections.Counter[Gram]]:
    """What Kneser-Ney smoothing takes for the counts of n-grams, for each n up to `order`.

    Of the highest order the counts; of a lower one the number of different words before the n-gram,
    or where `<s>` begins it, which has none before it, its count. `<s>` itself is not predicted.
    """
    counts = {n: collections.Counter() for n in range(1, order + 1)}
    for sentence in sentences:
        words = (BEGIN, *sentence, END)
        for n in range(1, order):  # their counts at the beginning of sentences
            if len(words) >= n:
                counts[n][words[:n]] += 1
        counts[order].update(words[i : i + order] for i in range(len(words) - order + 1))
    for n in range(order - 1, 0, -1):
        counts[n].update(gram[1:] for gram in counts[n + 1])
    del counts[1][(BEGIN,)]
    return counts


def modified_discounts(counts: Iterable[int]) -> tuple[float, float, float]:
    """What is taken from counts of 1, of 2, and of 3 or more; Equation 17 of Chen and Goodman."""
    n = collections.Counter(count for count in counts if count <= 4)
    if not all(n[k] for k in range(1, 5)):
        return _FALLBACK
    y = n[1] / (n[1] + 2 * n[2])
    found = tuple(k - (k + 1) * y * n[k + 1] / n[k] for k in (1, 2, 3))
    return found if all(0 <= d <= k for k, d in zip((1, 2, 3), found)) else _FALLBACK


def read_sentences(path: str) -> list[list[str]]:
    """The words of each line of a file, blank lines too; InputError where there is none."""
    if not storage.isfile(path):
        raise InputError(f"{path}: there is no such file")
    with storage.open(path, "rb") as file:
        text = file.read().decode("utf-8", errors="replace")
    return [line.split() for line in text.removesuffix("\n").split("\n")]


def perplexity(model: KneserNey, sentences: Iterable[Sequence[str]]) -> tuple[float, int, int]:
    """exp of the mean loss; the number of words, ends included; how many are `<unk>`."""
    total, count, unknown = 0.0, 0, 0
    for sentence in sentences:
        losses = list(model.losses(sentence))
        total, count = total + math.fsum(losses), count + len(losses)
        unknown += sum(word == UNKNOWN or word not in model.vocabulary for word in sentence)
    return math.exp(total / count), count, unknown


def main(argv: list[str]) -> None:
    """Prints the perplexity of a text."""
    parser = argparse.ArgumentParser(prog="python -m analysis.kneser_ney")
    parser.add_argument("--train", required=True, help="Text to count, a sentence per line.")
    parser.add_argument("--heldout", required=True, help="Text to measure on.")
    parser.add_argument("--order", type=int, default=5, help="Length of the longest n-grams.")
    arguments = parser.parse_args(argv[1:])
    heldout = read_sentences(arguments.heldout)
    model = KneserNey(read_sentences(arguments.train), arguments.order)
    value, count, unknown = perplexity(model, heldout)
    print(
        f"{arguments.heldout}: perplexity {value:.2f} of {count:,} words ({END} per line counts as"
        f" one, {unknown / count:.2%} {UNKNOWN}); modified Kneser-Ney, order {arguments.order},"
        f" {len(model.vocabulary):,} words, sentences by themselves"
    )


if __name__ == "__main__":
    main_with_clear_errors(main)(sys.argv)
