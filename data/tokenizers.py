"""Tokenizers by kind of vocabulary: word pieces, whole words, SentencePiece, or BPE."""

from __future__ import annotations

import tensorflow as tf
import tensorflow_text as tf_text

from convbert.common.errors import InputError
from convbert.data.bpe_tokenization import BytePairTokenizer
from convbert.data.sentencepiece_tokenization import SentencePieceTokenizer
from convbert.data.text.words import split_words
from convbert.data.tokenization import Tokenizer
from convbert.data.vocabulary import LONGEST_WORD, Vocabulary

# No text contains these: they keep unknown words with a known prefix, and special tokens that are
# not words of language models, from matching the vocabulary.
_NO_SUFFIX, _NOT_IN_TEXTS = "\ufdd0", "{} "
_LONGEST_IN_TEXTS = 1 << 20  # bytes


class WordTokenizer(Tokenizer):
    """Looks up whole words, separated by whitespace; does not add `<eos>`.

    PTB and WikiText are already tokenized: "do n't". Characters are not changed, except for
    lower-casing if the vocabulary requires it; NUL is removed. A word that is not in the vocabulary
    or has more than 256 bytes becomes `<unk>`, as does "<unk>" itself. <eos> also precedes the
    first text.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        tokens = list(vocabulary.tokens)
        absent = [i for i, token in enumerate(tokens) if len(token.encode()) > LONGEST_WORD]
        for number in (vocabulary.pad_id, vocabulary.mask_id, *absent):
            tokens[number] = _NOT_IN_TEXTS.format(number)
        # A lookup table would be a resource, which SavedModel signatures must track.
        self._words = tf_text.FastWordpieceTokenizer(
            tokens,
            suffix_indicator=_NO_SUFFIX,
            max_bytes_per_word=_LONGEST_IN_TEXTS,
            token_out_type=tf.int32,
            unknown_token=vocabulary.tokens[vocabulary.unk_id],
            no_pretokenization=True,
        )

    def tokenize_ragged(self, lines: tf.Tensor) -> tf.RaggedTensor:
        """Tokenizes string [B] to int32 [B, None]; also inside a `tf.function` or SavedModel."""
        words = split_words(self.normalize(lines))
        return self._words.tokenize(words).merge_dims(1, 2)  # [B, (words), 1]

    def tokenize_ragged_with_offsets(self, normalized: tf.Tensor) -> tuple[tf.RaggedTensor, ...]:
        """Raises InputError: answers that are spans of text are not supported with words."""
        raise InputError(
            "tasks whose answers are spans of text are not supported with a vocabulary of words"
        )

    def normalize(self, lines: tf.Tensor) -> tf.Tensor:
        """Returns the lines without NUL, lower-cased if the vocabulary is."""
        lines = tf.strings.regex_replace(lines, "\\x00", "")  # `lower` would end at it
        if not self.vocabulary.do_lower_case:
            return lines
        return tf.strings.lower(lines, encoding="utf-8")


def create_tokenizer(vocabulary: Vocabulary) -> Tokenizer:
    """Creates the tokenizer for a vocabulary's kind."""
    return _TOKENIZERS[vocabulary.tokenizer](vocabulary)


_TOKENIZERS = {
    "wordpiece": Tokenizer,
    "words": WordTokenizer,
    "sentencepiece": SentencePieceTokenizer,
    "bpe": BytePairTokenizer,
}
