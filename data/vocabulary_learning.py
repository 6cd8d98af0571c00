"""Learns a vocabulary from lines of text: of word pieces, of SentencePiece's pieces, or of words.

For word pieces, TensorFlow Text's learner (top-down WordPiece) is given counted words and a count
that a piece must reach. That count is searched for; what is then above the size wanted loses its
rarest pieces.
"""

from __future__ import annotations

import collections
import io
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import sentencepiece
import tensorflow as tf
from tensorflow_text.python.ops.bert_tokenizer import BasicTokenizer
from tensorflow_text.tools.wordpiece_vocab import wordpiece_tokenizer_learner_lib as learner

from convbert.common.errors import InputError
from convbert.data import sentencepiece_tokenization, tokenization
from convbert.data.vocabulary import SPECIAL_TOKENS, TOKENIZERS, Vocabulary

# The learner takes time in proportion to the distinct words, and rare ones decide little.
_MIN_LEARNER_WORDS = 50_000
_LEARNER_WORDS_PER_TOKEN = 4
# Characters beyond this share of the text become [UNK], and at most every fourth token is one.
_CHARACTER_COVERAGE = 0.9999
_TOKENS_PER_CHARACTER = 4
# The search is over when it has at most this many times the tokens wanted.
_SURPLUS = 1.1
_PAD, _, _CLS, _SEP, _MASK = TOKENIZERS["sentencepiece"]
_SENTENCEPIECE_OPTIONS: dict[str, Any] = {
    "model_type": "unigram",
    "character_coverage": 0.99995,
    # The ids of XLNet: <unk> 0, <s> 1, </s> 2, <cls> 3, <sep> 4, <pad> 5, <mask> 6, <eod> 7, ...
    "control_symbols": [_CLS, _SEP, _PAD, _MASK, "<eod>"],
    "user_defined_symbols": ["<eop>", *'.()"-–£€'],  # noqa: RUF001
    "hard_vocab_limit": False,  # fewer pieces where the text yields no more
    "max_sentence_length": 1 << 30,  # bytes; longer lines would be left out
    # Threads add up their counts in their order, so the number decides the last bits of scores.
    "num_threads": 16,
    "minloglevel": 2,
}


def learn_vocabulary(
    texts: Iterable[str],
    vocab_size: int | None,
    *,
    tokenizer: str = "wordpiece",
    do_lower_case: bool = True,
    strip_accents: bool = True,
) -> Vocabulary:
    """Learns a vocabulary, a function of the lines of text (of words: not of their order).

    It has `vocab_size` tokens, special ones and single characters included, or fewer where the
    texts do not yield as many; None: all words. InputError where the texts have no words, or
    `vocab_size` does not suit them.
    """
    switches: dict[str, Any] = {"do_lower_case": do_lower_case, "strip_accents": strip_accents}
    if tokenizer == "words":
        learned = _learn_words(texts, vocab_size, do_lower_case)
        return Vocabulary(tuple(learned), **switches, tokenizer=tokenizer)
    assert vocab_size is not None
    if tokenizer == "sentencepiece":
        return Vocabulary.of_model(_learn_sentencepiece(texts, vocab_size, **switches), **switches)
    learned = _learn_wordpiece(texts, vocab_size, **switches)
    return Vocabulary(tuple(learned), **switches, tokenizer=tokenizer)


def _learn_words(texts: Iterable[str], vocab_size: int | None, do_lower_case: bool) -> list[str]:
    """Special tokens, then words by falling count, ties by spelling; so cutoffs are ranks."""
    if do_lower_case:  # by the op that the tokenizer lower-cases by
        texts = _normalized(texts, lambda lines: tf.strings.lower(lines, encoding="utf-8"))
    counts = collections.Counter(word for line in texts for word in line.split())
    special = list(dict.fromkeys(TOKENIZERS["words"]))
    words = sorted(counts.keys() - {*special}, key=lambda word: (-counts[word], word))
    return [*special, *words][:vocab_size]


def _normalized(texts: Iterable[str], normalize: Callable[[tf.Tensor], tf.Tensor]) -> Iterator[str]:
    for batch in tokenization.batches(texts):
        yield from (line.decode() for line in normalize(tf.constant(batch, tf.string)).numpy())


def _learn_sentencepiece(texts: Iterable[str], vocab_size: int, **switches: bool) -> bytes:
    """A unigram model, with XLNet's options, of normalised text; the same on any machine."""
    found = _normalized(texts, lambda x: sentencepiece_tokenization.normalize(x, **switches))
    found = (line.replace("\0", "") for line in found)  # NUL is an error there
    # All of them first: an error in an iterator would end SentencePiece's reading in silence.
    lines = list(filter(None, found))
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=model,
            vocab_size=vocab_size,
            **_SENTENCEPIECE_OPTIONS,
        )
    except RuntimeError as error:
        raise InputError(
            f"`vocab_size` should suit the text. Received: {vocab_size}, of which SentencePiece"
            f" says: {' '.join(str(error).split())}"
        ) from error
    return model.getvalue()


# ---------------------------------------------------------------- word pieces


def _learn_wordpiece(texts: Iterable[str], vocab_size: int, **switches: bool) -> list[str]:
    """Special tokens, then single characters, then longer pieces; the order of texts is free."""
    # Most frequent first, ties by spelling: the learner's own ties follow the order it is given.
    counts = _count_words(texts, **switches)
    words = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    words = words[: max(_MIN_LEARNER_WORDS, _LEARNER_WORDS_PER_TOKEN * vocab_size)]
    if not words:
        raise InputError("A vocabulary must be learned from text with words. Received: none")
    return _trim(_search_pieces(words, vocab_size), vocab_size)


def _count_words(texts: Iterable[str], **switches: bool) -> collections.Counter[str]:
    """Counts what the tokenizer takes for words: between whitespace, punctuation and CJK."""
    basic_tokenizer = BasicTokenizer(lower_case=False)
    counts: collections.Counter[bytes] = collections.Counter()
    for batch in tokenization.batches(texts):
        lines = tokenization.normalize(tf.constant(batch), **switches)
        # The word tokenizer parts at ASCII whitespace only.
        lines = tf.strings.regex_replace(lines, r"\p{Z}", " ")
        counts.update(basic_tokenizer.tokenize(lines).flat_values.numpy().tolist())
    return collections.Counter({word.decode("utf-8"): count for word, count in counts.items()})


def _search_pieces(words: list[tuple[str, int]], vocab_size: int) -> list[str]:
    """Finds the count above which there are just enough pieces, by regula falsi.

    The library's own search bisects over all counts and learns anew at each step; as the number of
    pieces falls about with the square root of the count, a few steps do here.
    """
    alphabet = _alphabet_size(words, vocab_size)
    most = words[0][1]
    threshold = words[min(vocab_size, len(words)) - 1][1]
    enough, too_few = 0, most + 1  # the largest count that is, the smallest that is not
    best: list[str] = []
    while too_few - enough > 1:
        threshold = min(max(threshold, enough + 1), too_few - 1)
        tokens = learner.learn(
            words,
            vocab_size,
            list(SPECIAL_TOKENS),
            upper_thresh=threshold,  # equal bounds: no search in the library
            lower_thresh=threshold,
            max_unique_chars=alphabet,
        )
        tokens = _without_useless(tokens, words)
        if len(tokens) < vocab_size:
            too_few = threshold
            best = best if enough else max(best, tokens, key=len)
        else:
            enough, best = threshold, tokens
            if len(tokens) <= _SURPLUS * vocab_size:
                break
        threshold = round(threshold * (len(tokens) / vocab_size) ** 2)
    return best


def _alphabet_size(words: list[tuple[str, int]], vocab_size: int) -> int:
    """How many characters, the most frequent first, the vocabulary is to hold."""
    counts: collections.Counter[str] = collections.Counter()
    for word, count in words:
        for character in word:
            counts[character] += count
    covered, size = 0, 0
    for _, count in counts.most_common():
        if covered > _CHARACTER_COVERAGE * counts.total():
            break
        covered, size = covered + count, size + 1
    return max(1, min(size, vocab_size // _TOKENS_PER_CHARACTER))


def _without_useless(tokens: list[str], words: list[tuple[str, int]]) -> list[str]:
    """Drops ##c for each character c that only begins words, as punctuation and CJK do."""
    inner = {f"##{character}" for word, _ in words for character in word[1:]}
    return [t for t in tokens if len(t) != 3 or not t.startswith("##") or t in inner]


def _trim(tokens: list[str], vocab_size: int) -> list[str]:
    """Drops the rarest longer pieces; single characters stay, so that any word can be cut.

    The learner gives the special tokens, the single characters, then the pieces by falling count.
    """
    single = [len(token.removeprefix("##")) == 1 or token in SPECIAL_TOKENS for token in tokens]
    longer = [token for token, short in zip(tokens, single) if not short]
    dropped = set(longer[max(0, vocab_size - sum(single)) :])
    return [token for token in tokens if token not in dropped]
