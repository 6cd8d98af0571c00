"""A small SentencePiece vocabulary, and XLNet's Python tokenizer on the `sentencepiece` package, as
in prepro_utils.py of zihangdai/xlnet; transformers has one without the rule for commas."""

import functools
import io
import random
import unicodedata

import sentencepiece

from convbert.data.vocabulary import Vocabulary
from convbert.data.vocabulary_learning import learn_vocabulary

_WORDS = ["the", "of", "a", "small", "river", "runs", "by", "old", "houses", "where", "she"]
_WORDS += ["would", "read,", "write", "and", "count"]


def sentences(count, seed=0):
    """Made-up text with numbers, some with commas."""
    draw = random.Random(seed)
    found = []
    for _ in range(count):
        words = " ".join(draw.choices(_WORDS, k=draw.randint(3, 12)))
        year, thousands, ones = draw.randint(1900, 2020), draw.randint(1, 99), draw.randint(0, 999)
        found.append(f"{words} in {year}, {thousands},{ones:03}, and so.")
    return found


def learned(texts, vocab_size, do_lower_case=False):
    options = {"tokenizer": "sentencepiece", "do_lower_case": do_lower_case}
    return learn_vocabulary(texts, vocab_size, **options)


@functools.cache
def vocabulary():
    return learned(sentences(400), 300)


def trained(vocab_size, special, **options):
    model = io.BytesIO()
    options |= {"vocab_size": vocab_size, "control_symbols": special, "minloglevel": 2}
    options |= {"sentence_iterator": iter(sentences(400)), "model_writer": model}
    sentencepiece.SentencePieceTrainer.train(**options)
    return model.getvalue()


@functools.cache
def comma_model():
    """A model with pieces that end with a digit and a comma, as XLNet's has."""
    switches = ("hard_vocab_limit", "split_by_number", "split_by_unicode_script")
    special = ["<cls>", "<sep>", "<pad>", "<mask>", "<eod>"]
    own = ["<eop>", "."]
    return trained(300, special, user_defined_symbols=own, **dict.fromkeys(switches, False))


class PythonTokenizer:
    """Texts to ids by the rules of the original."""

    def __init__(self, vocabulary: Vocabulary):
        self.vocabulary = vocabulary
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=vocabulary.model)

    def preprocess(self, text):
        text = " ".join(text.strip().split())
        text = text.replace("``", '"').replace("''", '"')
        if self.vocabulary.strip_accents:
            text = unicodedata.normalize("NFKD", text)
            text = "".join(c for c in text if not unicodedata.combining(c))
        return text.lower() if self.vocabulary.do_lower_case else text

    def pieces(self, text):
        new_pieces = []
        for piece in self._processor.encode(self.preprocess(text), out_type=str):
            if len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit():
                current = self._processor.encode(piece[:-1].replace("▁", ""), out_type=str)
                if piece[0] != "▁" and current[0][0] == "▁":
                    if len(current[0]) == 1:
                        current = current[1:]
                    else:
                        current[0] = current[0][1:]
                new_pieces.extend([*current, piece[-1]])
            else:
                new_pieces.append(piece)
        return new_pieces

    def ids(self, text):
        return [self._processor.piece_to_id(piece) for piece in self.pieces(text)]
