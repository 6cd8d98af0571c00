"""The tokenizer that goes with a vocabulary: of word pieces, whole words, or SentencePiece."""

from __future__ import annotations

import tensorflow as tf
import tensorflow_text as tf_text

from convbert.common.errors import InputError
from convbert.data.sentencepiece_tokenization import SentencePieceTokenizer
from convbert.data.tokenization import Tokenizer
from convbert.data.vocabulary import Vocabulary

# Where Python's str.split() parts words, by which the words of WikiText and PTB are counted.
_WHITESPACE = r"[\s\p{Z}\x0b\x1c-\x1f\x{85}]+"
# No text holds these: a word that begins as a vocabulary's ends nothing but an unknown one, and the
# special tokens that are no words of language models are not found in texts.
_NO_SUFFIX, _NOT_IN_TEXTS = "\ufdd0", "{} "
_LONGEST_WORD = 1 << 20  # bytes


class WordTokenizer(Tokenizer):
    """Looks whole words up, parted by whitespace; adds no `<eos>`.

    Words of PTB and WikiText are cut already: "do n't". No character is removed or replaced, but
    for lower-casing where the vocabulary asks for it. A word that is not in the vocabulary is
    `<unk>`, and so is "<unk>" itself. <eos> also comes before the first text.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        tokens = list(vocabulary.tokens)
        for special in (vocabulary.pad_id, vocabulary.mask_id):
            tokens[special] = _NOT_IN_TEXTS.format(tokens[special])
        # A lookup table would be a resource, which signatures of a SavedModel must track.
        self._words = tf_text.FastWordpieceTokenizer(
            tokens,
            suffix_indicator=_NO_SUFFIX,
            max_bytes_per_word=_LONGEST_WORD,
            token_out_type=tf.int32,
            unknown_token=vocabulary.tokens[vocabulary.unk_id],
            no_pretokenization=True,
        )

    def tokenize_ragged(self, lines: tf.Tensor) -> tf.RaggedTensor:
        """Tokenizes string [B] to int32 [B, None]; also inside a `tf.function` or SavedModel."""
        words = tf.strings.split(tf.strings.regex_replace(self.normalize(lines), _WHITESPACE, " "))
        return self._words.tokenize(words).merge_dims(1, 2)  # [B, (words), 1]

    def tokenize_ragged_with_offsets(self, normalized: tf.Tensor) -> tuple[tf.RaggedTensor, ...]:
        """Raises InputError: answers that are spans of text are not supported with words."""
        raise InputError(
            "tasks whose answers are spans of text are not supported with a vocabulary of words"
        )

    def normalize(self, lines: tf.Tensor) -> tf.Tensor:
        """The lines as they are, lower-cased if the vocabulary is."""
        if not self.vocabulary.do_lower_case:
            return lines
        return tf.strings.lower(lines, encoding="utf-8")


def create_tokenizer(vocabulary: Vocabulary) -> Tokenizer:
    """The tokenizer of a vocabulary's kind."""
    return _TOKENIZERS[vocabulary.tokenizer](vocabulary)


_TOKENIZERS = {
    "wordpiece": Tokenizer,
    "words": WordTokenizer,
    "sentencepiece": SentencePieceTokenizer,
}
