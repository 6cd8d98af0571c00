"""Learns a vocabulary of word pieces, SentencePiece pieces or words from lines of text.

For word pieces, TensorFlow Text's learner (top-down WordPiece) takes word counts and a minimum
count of pieces. The minimum count is searched for; the rarest pieces beyond the requested size are
removed.
"""

from __future__ import annotations

import collections
import io
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import sentencepiece
import tensorflow as tf
import tokenizers
from tensorflow_text.python.ops.bert_tokenizer import BasicTokenizer
from tensorflow_text.tools.wordpiece_vocab import wordpiece_tokenizer_learner_lib as learner

from convbert.common.errors import InputError
from convbert.data import sentencepiece_tokenization, tokenization
from convbert.data.vocabulary import LONGEST_WORD, SPECIAL_TOKENS, TOKENIZERS, Vocabulary

# The learner's time is proportional to the number of distinct words; rare ones matter little.
_MIN_LEARNER_WORDS = 50_000
_LEARNER_WORDS_PER_TOKEN = 4
# Characters beyond this share of the text become [UNK]; at most every fourth token is a character,
# unless most words are single characters, as in Chinese.
_CHARACTER_COVERAGE = 0.9999
_TOKENS_PER_CHARACTER = 4
# The learner's time grows with the cube of a word's length, and it skips words of more than 50
# characters. The cubic mean of German words is 13 over distinct words, and less over occurrences,
# which are counted; beyond 20, "words" are phrases, as in Thai.
_UNSPACED, _LONGEST = 20, 50
# The search ends at no more than this many times the requested tokens.
_SURPLUS = 1.1
_PAD, _, _CLS, _SEP, _MASK = TOKENIZERS["sentencepiece"]
_SENTENCEPIECE_OPTIONS: dict[str, Any] = {
    "model_type": "unigram",
    "character_coverage": 0.99995,
    # The ids of XLNet: <unk> 0, <s> 1, </s> 2, <cls> 3, <sep> 4, <pad> 5, <mask> 6, <eod> 7, ...
    "control_symbols": [_CLS, _SEP, _PAD, _MASK, "<eod>"],
    "user_defined_symbols": ["<eop>", *'.()"-–£€'],  # noqa: RUF001
    "hard_vocab_limit": False,  # allows fewer pieces for short texts
    "max_sentence_length": 1 << 30,  # bytes; longer lines would be skipped
    # The number of threads affects the order of sums, and so the last bits of scores.
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
    """Learns a vocabulary, as a function of the lines of text (for words: not of their order).

    It has `vocab_size` tokens, including special ones and single characters, or fewer if the texts
    do not yield as many; None: all words. InputError if the texts have no words, or `vocab_size`
    does not fit them.
    """
    switches: dict[str, Any] = {"do_lower_case": do_lower_case, "strip_accents": strip_accents}
    if tokenizer == "words":
        learned = _learn_words(texts, vocab_size, do_lower_case)
        return Vocabulary(tuple(learned), **switches, tokenizer=tokenizer)
    assert vocab_size is not None
    if tokenizer == "sentencepiece":
        return Vocabulary.of_model(_learn_sentencepiece(texts, vocab_size, **switches), **switches)
    if tokenizer == "bpe":
        return Vocabulary.of_bpe(_learn_bpe(texts, vocab_size))
    learned = _learn_wordpiece(texts, vocab_size, **switches)
    return Vocabulary(tuple(learned), **switches, tokenizer=tokenizer)


def _learn_words(texts: Iterable[str], vocab_size: int | None, do_lower_case: bool) -> list[str]:
    """Returns special tokens, then words by descending count and spelling: cutoffs are ranks.

    Words that `WordTokenizer` cannot look up are left out.
    """
    texts = (line.replace("\0", "") for line in texts)
    if do_lower_case:  # with the tokenizer's op
        texts = _normalized(texts, lambda lines: tf.strings.lower(lines, encoding="utf-8"))
    counts = collections.Counter(word for line in texts for word in line.split())
    special = list(dict.fromkeys(TOKENIZERS["words"]))
    found = [word for word in counts.keys() - {*special} if len(word.encode()) <= LONGEST_WORD]
    return [*special, *sorted(found, key=lambda word: (-counts[word], word))][:vocab_size]


def _normalized(texts: Iterable[str], normalize: Callable[[tf.Tensor], tf.Tensor]) -> Iterator[str]:
    for batch in tokenization.batches(texts):
        yield from (line.decode() for line in normalize(tf.constant(batch, tf.string)).numpy())


def _learn_sentencepiece(texts: Iterable[str], vocab_size: int, **switches: bool) -> bytes:
    """Learns a unigram model of normalised text with XLNet's options; the same on any machine."""
    found = _normalized(texts, lambda x: sentencepiece_tokenization.normalize(x, **switches))
    found = (line.replace("\0", "") for line in found)  # SentencePiece rejects NUL
    # Reads all lines first: SentencePiece would silently stop at an error in an iterator.
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
            f"`vocab_size` should fit the text. Received: {vocab_size}. SentencePiece's error:"
            f" {' '.join(str(error).split())}"
        ) from error
    return model.getvalue()


def _learn_bpe(texts: Iterable[str], vocab_size: int) -> bytes:
    """Learns a byte-level BPE of NFC text, as ModernBERT's, with a token for every byte.

    Its template, [CLS] A [SEP] B [SEP], is for Hugging Face's tokenizers.
    """
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    if vocab_size < (least := len(alphabet) + len(SPECIAL_TOKENS)):
        raise InputError(f"`vocab_size` should be at least {least} for bpe. Received: {vocab_size}")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.normalizer = tokenizers.normalizers.NFC()
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    # A mask stands for a piece with the space before it, as pieces of words have one.
    added = [tokenizers.AddedToken(of, lstrip=of == "[MASK]") for of in SPECIAL_TOKENS]
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=added, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(iter(texts), trainer)
    around = [(token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    template = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=around
    )
    tokenizer.post_processor = template
    return tokenizer.to_str().encode()


def _learn_wordpiece(texts: Iterable[str], vocab_size: int, **switches: bool) -> list[str]:
    """Returns special tokens, single characters, then longer pieces, for any order of texts."""
    # Most frequent first, ties by spelling: the learner breaks ties by the given order.
    counts = _count_words(texts, **switches)
    cubes = sum(count * min(len(word), _LONGEST) ** 3 for word, count in counts.items())
    if cubes > _UNSPACED**3 * counts.total():
        raise InputError(
            "The text seems to have no spaces between words, which word pieces are learned from."
            " Use --tokenizer sentencepiece --nostrip_accents, or give a vocabulary with --vocab"
        )
    words = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    words = words[: max(_MIN_LEARNER_WORDS, _LEARNER_WORDS_PER_TOKEN * vocab_size)]
    if not words:
        raise InputError("A vocabulary must be learned from text with words. Received: none")
    return _trim(_search_pieces(words, vocab_size), vocab_size)


def _count_words(texts: Iterable[str], **switches: bool) -> collections.Counter[str]:
    """Counts the tokenizer's words: split at whitespace, punctuation and CJK characters."""
    basic_tokenizer = BasicTokenizer(lower_case=False)
    counts: collections.Counter[bytes] = collections.Counter()
    for batch in tokenization.batches(texts):
        lines = tokenization.normalize(tf.constant(batch), **switches)
        # The word tokenizer splits at ASCII whitespace only.
        lines = tf.strings.regex_replace(lines, r"\p{Z}", " ")
        counts.update(basic_tokenizer.tokenize(lines).flat_values.numpy().tolist())
    return collections.Counter({word.decode("utf-8"): count for word, count in counts.items()})


def _search_pieces(words: list[tuple[str, int]], vocab_size: int) -> list[str]:
    """Finds the minimum count with just enough pieces, by regula falsi.

    The library's search bisects over all counts and learns again at each step. As the number of
    pieces falls roughly with the square root of the count, a few steps suffice here.
    """
    alphabet = _alphabet_size(words, vocab_size)
    inner = {f"##{character}" for word, _ in words for character in word[1:]}
    most = words[0][1]
    threshold = words[min(vocab_size, len(words)) - 1][1]
    enough, too_few = 0, most + 1  # the largest count with enough, the smallest with too few
    best: list[str] = []
    while too_few - enough > 1:
        threshold = min(max(threshold, enough + 1), too_few - 1)
        tokens = learner.learn(
            words,
            vocab_size,
            list(SPECIAL_TOKENS),
            upper_thresh=threshold,  # equal bounds disable the library's search
            lower_thresh=threshold,
            max_unique_chars=alphabet,
        )
        # Without ##c for characters that only begin words, such as punctuation and CJK.
        tokens = [t for t in tokens if len(t) != 3 or not t.startswith("##") or t in inner]
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
    """Returns the number of characters, most frequent first, for the vocabulary."""
    counts: collections.Counter[str] = collections.Counter()
    for word, count in words:
        for character in word:
            counts[character] += count
    covered = np.cumsum(sorted(counts.values(), reverse=True))
    size = 1 + int(np.count_nonzero(covered[:-1] <= _CHARACTER_COVERAGE * covered[-1]))
    most = vocab_size // _TOKENS_PER_CHARACTER
    alone = [count for word, count in words[:vocab_size] if len(word) == 1]
    if 2 * sum(alone) > sum(count for _, count in words):
        inner = {character for word, _ in words for character in word[1:]}  # with ##c, too
        most = max(most, len(alone) - len(inner) - len(SPECIAL_TOKENS))
    return max(1, min(size, most))


def _trim(tokens: list[str], vocab_size: int) -> list[str]:
    """Drops the rarest longer pieces; keeps single characters, so that any word can be split.

    The learner returns special tokens, single characters, then pieces by descending count.
    """
    single = [len(token.removeprefix("##")) == 1 or token in SPECIAL_TOKENS for token in tokens]
    longer = [token for token, short in zip(tokens, single) if not short]
    dropped = set(longer[max(0, vocab_size - sum(single)) :])
    return [token for token in tokens if token not in dropped]
