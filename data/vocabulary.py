"""The WordPiece vocabulary: load, check, save, learn."""

from __future__ import annotations

import codecs
import collections
import dataclasses
import functools
import hashlib
import json
import math
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence

import files
from data import manifest
from data.added_tokens import (
    ADDED_TOKENS,
    AddedToken,
    added_token,
    added_tokens_by_id,
    check_added_tokens,
)
from data.readers.base import refuse_other_encodings
from errors import InputError

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
VOCABULARY_FILE = "vocab.txt"
SWITCHES_FILE = "tokenizer_config.json"
_SWITCHES = ("do_lower_case", "strip_accents")

_MIN_VOCAB_SIZE = 32
_CHARACTERS_PER_BATCH = 2 << 20
# The learner takes time in proportion to the distinct words, and rare ones decide little.
_MIN_LEARNER_WORDS = 50_000
_LEARNER_WORDS_PER_TOKEN = 4
# Characters beyond this share of the text become [UNK], and at most every fourth token is one.
_CHARACTER_COVERAGE = 0.9999
_TOKENS_PER_CHARACTER = 4
# The learner looks at all substrings of a word, in a time that grows with the cube of its length,
# and passes over words of more than 50 characters. Where words are this long by their cubic mean
# (German's: 13), text is written without spaces, and words are phrases: they are cut into parts.
_UNSPACED_WORD, _LEARNER_MAX_WORD = 20, 50
_PART = 8
_CONTINUES = "\0"  # begins each part but the first; normalised text holds none
# The search is over when it has at most this many times the tokens wanted.
_SURPLUS = 1.1


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """WordPiece tokens in the order of their ids, with the switches of the text's normalisation.

    Attributes:
        tokens: the pieces; the index of a piece is its id.
        do_lower_case: whether text is lower-cased before it is cut into pieces.
        strip_accents: whether accents (Unicode category Mn after NFD) are removed.
        added_tokens: those of the tokens that are found before text is cut into pieces.
    """

    tokens: tuple[str, ...]
    do_lower_case: bool = True
    strip_accents: bool = True
    added_tokens: tuple[AddedToken, ...] = ()

    def __post_init__(self) -> None:
        _check_tokens(self.tokens, "The vocabulary")
        if self.added_tokens:
            check_added_tokens(self.added_tokens, self.do_lower_case, "The vocabulary")

    @functools.cached_property
    def ids(self) -> dict[str, int]:
        """The id of each token."""
        return {token: index for index, token in enumerate(self.tokens)}

    @property
    def size(self) -> int:
        """Number of tokens."""
        return len(self.tokens)

    @property
    def pad_id(self) -> int:
        """Id of [PAD]."""
        return self.ids["[PAD]"]

    @property
    def unk_id(self) -> int:
        """Id of [UNK]."""
        return self.ids["[UNK]"]

    @property
    def cls_id(self) -> int:
        """Id of [CLS]."""
        return self.ids["[CLS]"]

    @property
    def sep_id(self) -> int:
        """Id of [SEP]."""
        return self.ids["[SEP]"]

    @property
    def mask_id(self) -> int:
        """Id of [MASK]."""
        return self.ids["[MASK]"]

    @property
    def added_tokens_decoder(self) -> dict[str, dict]:
        """The added tokens as tokenizer_config.json has them: by id."""
        return {
            str(self.ids[token.content]): {"content": token.content, **token.flags}
            for token in self.added_tokens
        }

    @property
    def digest(self) -> str:
        """SHA-256 (hexadecimal) of the tokens and both switches: equal means interchangeable."""
        settings = [list(self.tokens), self.do_lower_case, self.strip_accents]
        if self.added_tokens:
            settings.append([dataclasses.astuple(token) for token in self.added_tokens])
        return hashlib.sha256(json.dumps(settings, ensure_ascii=False).encode()).hexdigest()

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        do_lower_case: bool | None = None,
        strip_accents: bool | None = None,
    ) -> Vocabulary:
        """Reads a vocabulary and its switches.

        Args:
            path: a `vocab.txt`, one token per line, or a folder that holds one.
            do_lower_case: overrules `tokenizer_config.json` beside the vocabulary.
            strip_accents: likewise. Where nothing says it, as the casing: both are True by
                default, as in BERT uncased.

        Raises:
            InputError: no such file, not UTF-8, a blank line before the last token, a special token
                missing, or a token twice.
        """
        path = os.fspath(path)
        if os.path.isdir(path):
            path = os.path.join(path, VOCABULARY_FILE)
        tokens = _read_tokens(path)
        settings_path = os.path.join(os.path.dirname(path), SWITCHES_FILE)
        added = _read_added_tokens(settings_path, tokens)
        _check_tokens(tokens, path)
        saved = _read_switches(settings_path)
        if do_lower_case is None:
            do_lower_case = saved.get("do_lower_case", True)
        if strip_accents is None:
            strip_accents = saved.get("strip_accents")
        if strip_accents is None:  # what Hugging Face's null, or no such key, stands for
            strip_accents = do_lower_case
        return cls(tuple(tokens), do_lower_case, strip_accents, added)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes `vocab.txt` and `tokenizer_config.json` (Hugging Face's names) into `folder`."""
        os.makedirs(folder, exist_ok=True)
        switches = {"do_lower_case": self.do_lower_case, "strip_accents": self.strip_accents}
        if self.added_tokens:
            switches[ADDED_TOKENS] = self.added_tokens_decoder
        # The switches first: a vocabulary without them would be read as BERT's uncased one.
        files.write_json(os.path.join(folder, SWITCHES_FILE), switches)
        files.write_text(os.path.join(folder, VOCABULARY_FILE), "\n".join(self.tokens) + "\n")


def _read_tokens(path: str) -> list[str]:
    """Reads one token per line; only line feeds part lines, as some tokens are odd characters."""
    try:
        with open(path, "rb") as file:
            raw = file.read()
    except OSError as error:
        raise InputError(
            f"The vocabulary must be a file with one token per line. Received: {path!r} "
            f"({error.strerror})"
        ) from error
    refuse_other_encodings(raw, path)
    try:
        text = raw.removeprefix(codecs.BOM_UTF8).decode("utf-8")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        received = error.object[error.start : error.start + 4]
        raise InputError(f"{path} line {line} must be UTF-8. Received: {received!r}") from error
    tokens = [line.rstrip("\r") for line in text.split("\n")]
    blank = 0
    while tokens and not tokens[-1]:
        del tokens[-1]
        blank += 1
    listed = manifest.read_manifest(os.path.dirname(path)) or {}
    if blank == 2 and listed.get("vocabulary_size") == len(tokens) + 1:
        return [*tokens, ""]  # a data folder of the time when a blank line at the end was a token
    if "" in tokens:
        raise InputError(
            f"{path} line {tokens.index('') + 1} should hold a token. Received: a blank line"
        )
    return tokens


def _check_tokens(tokens: Sequence[str], where: str) -> None:
    """Raises InputError where a token stands twice or a special token is missing."""
    first_line: dict[str, int] = {}
    for line, token in enumerate(tokens, start=1):
        if token in first_line:
            raise InputError(
                f"{where} must hold each token once. Received: {token!r} on lines "
                f"{first_line[token]} and {line}"
            )
        first_line[token] = line
    missing = [token for token in SPECIAL_TOKENS if token not in first_line]
    if missing:
        raise InputError(
            f"{where} must hold the special tokens {' '.join(SPECIAL_TOKENS)}. "
            f"Received: {len(first_line)} tokens without {' '.join(missing)}"
        )


def _read_switches(path: str) -> dict[str, bool | None]:
    """Reads the two switches of a tokenizer_config.json; a missing file or key says nothing."""
    if not os.path.exists(path):
        return {}
    settings = files.read_json(path)
    switches = {name: settings[name] for name in _SWITCHES if name in settings}
    for name, value in switches.items():
        if not isinstance(value, bool) and (name, value) != ("strip_accents", None):
            raise InputError(f"{path}: {name} must be true or false. Received: {value!r}")
    return switches


def _read_added_tokens(path: str, tokens: list[str]) -> tuple[AddedToken, ...]:
    """The added tokens of a tokenizer_config.json; those after the last of `tokens` join them."""
    where = f"{path}: `{ADDED_TOKENS}`"
    settings = files.read_json(path) if os.path.exists(path) else {}
    added = []
    for number, fields in added_tokens_by_id(settings, where):
        token = added_token(fields, where)
        if token.content in SPECIAL_TOKENS:
            continue
        if number == len(tokens) and token.content not in tokens:
            tokens.append(token.content)
        if number >= len(tokens) or tokens[number] != token.content:
            raise InputError(
                f"{where}: {token.content!r} should be token {number} of the"
                f" {VOCABULARY_FILE} beside it, or the first one after its {len(tokens)} tokens"
            )
        added.append(token)
    return tuple(added)


def learn_vocabulary(
    texts: Iterable[str],
    vocab_size: int,
    *,
    do_lower_case: bool = True,
    strip_accents: bool = True,
) -> Vocabulary:
    """Learns a WordPiece vocabulary from lines of text in any language.

    Words are normalised and cut exactly as `data.tokenization` does it, counted, and given to
    TensorFlow Text's learner (top-down WordPiece), with a count that a piece must reach. That
    count is searched for; what is then above `vocab_size` loses its rarest pieces. The result is a
    function of the texts and arguments alone; the order of the texts does not matter. Text without
    spaces between its words (Thai, Lao, Khmer, Burmese) is learned from in parts of 8 characters.

    Args:
        texts: lines of text; read once.
        vocab_size: number of tokens wanted, the special tokens and single characters included.
        do_lower_case: a switch of the vocabulary, see `Vocabulary`.
        strip_accents: likewise.

    Returns:
        `vocab_size` tokens, or fewer where the texts do not yield as many: first the special
        tokens in the order of `SPECIAL_TOKENS`, then single characters, then the longer pieces.

    Raises:
        InputError: `vocab_size` leaves no room, or there are no words in the texts.
    """
    if vocab_size < _MIN_VOCAB_SIZE:
        raise InputError(f"vocab_size must be at least {_MIN_VOCAB_SIZE}. Received: {vocab_size}")
    counts = count_words(texts, do_lower_case=do_lower_case, strip_accents=strip_accents)
    # Most frequent first, ties by spelling: the learner's own ties follow the order it is given.
    words = sorted(_parts(counts).items(), key=_frequency_then_spelling)
    words = words[: max(_MIN_LEARNER_WORDS, _LEARNER_WORDS_PER_TOKEN * vocab_size)]
    if not words:
        raise InputError("A vocabulary must be learned from text with words. Received: none")
    tokens = _search_pieces(words, vocab_size)
    return Vocabulary(tuple(tokens), do_lower_case, strip_accents)


def count_words(
    texts: Iterable[str], *, do_lower_case: bool, strip_accents: bool
) -> collections.Counter[str]:
    """Counts what the tokenizer takes for words: between white space, punctuation and CJK."""
    import tensorflow as tf
    from tensorflow_text.python.ops.bert_tokenizer import BasicTokenizer

    from data.tokenization import normalize

    basic_tokenizer = BasicTokenizer(lower_case=False)
    counts: collections.Counter[bytes] = collections.Counter()
    for batch in _batches(texts):
        lines = normalize(
            tf.constant(batch), do_lower_case=do_lower_case, strip_accents=strip_accents
        )
        # The word tokenizer parts at ASCII white space only.
        lines = tf.strings.regex_replace(lines, r"\p{Z}", " ")
        counts.update(basic_tokenizer.tokenize(lines).flat_values.numpy().tolist())
    return collections.Counter({word.decode("utf-8"): count for word, count in counts.items()})


def _batches(texts: Iterable[str]) -> Iterator[list[str]]:
    """Lines for one call of the ops: 2,048, fewer of long ones for the sake of memory."""
    batch: list[str] = []
    size = 0
    for text in texts:
        batch.append(text)
        size += len(text)
        if len(batch) == 2048 or size >= _CHARACTERS_PER_BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _parts(counts: collections.Counter[str]) -> collections.Counter[str]:
    """The words and their counts; of text without spaces, the parts of its words."""
    cubes = sum(min(len(word), _LEARNER_MAX_WORD) ** 3 for word in counts)
    if cubes <= _UNSPACED_WORD**3 * len(counts):
        return counts
    parts: collections.Counter[str] = collections.Counter()
    for word, count in counts.items():
        for start in range(0, len(word), _PART):
            parts[_CONTINUES * (start > 0) + word[start : start + _PART]] += count
    return parts


def _frequency_then_spelling(item: tuple[str, int]) -> tuple[int, int, str]:
    """The order of words: the most frequent first; parts of equal count in no one's favour."""
    word, count = item
    return -count, zlib.crc32(word.encode()) if word.startswith(_CONTINUES) else 0, word


def _search_pieces(words: list[tuple[str, int]], vocab_size: int) -> list[str]:
    """Finds the count above which there are just enough pieces, and drops what is too much.

    The library's own search bisects over all counts and learns anew at each step; as the number of
    pieces falls about with the square root of the count, a few steps do here.
    """
    from tensorflow_text.tools.wordpiece_vocab import wordpiece_tokenizer_learner_lib as learner

    alphabet = _alphabet_size(words, vocab_size)
    continued = any(word.startswith(_CONTINUES) for word, _ in words)
    most = words[0][1]
    threshold = words[min(vocab_size, len(words)) - 1][1]
    bound: list[tuple[str, int]] = []
    if continued:  # pieces are far more frequent than the phrases that hold them
        most = sum(count for _, count in words)
        threshold = sum(count * len(word) for word, count in words) // (8 * vocab_size)
        # No word to the learner, but the library takes no threshold above the largest count.
        bound = [(SPECIAL_TOKENS[0], most)]
    enough, too_few = 0, most + 1  # the largest count that is, the smallest that is not
    best: list[str] = []
    while too_few - enough > 1:
        if continued and not enough < threshold < too_few:
            threshold = math.isqrt((enough + 1) * too_few)
        threshold = min(max(threshold, enough + 1), too_few - 1)
        tokens = learner.learn(
            words + bound,
            vocab_size,
            list(SPECIAL_TOKENS),
            upper_thresh=threshold,  # equal bounds: no search in the library
            lower_thresh=threshold,
            max_unique_chars=alphabet + continued,
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
    return _trim(best, vocab_size)


def _alphabet_size(words: list[tuple[str, int]], vocab_size: int) -> int:
    """How many characters, the most frequent first, the vocabulary is to hold."""
    counts: collections.Counter[str] = collections.Counter()
    for word, count in words:
        for character in word.removeprefix(_CONTINUES):
            counts[character] += count
    left_out = (1 - _CHARACTER_COVERAGE) * counts.total()
    size = len(counts)
    for count in sorted(counts.values()):
        left_out -= count
        if left_out < 0:
            break
        size -= 1
    return max(1, min(size, vocab_size // _TOKENS_PER_CHARACTER))


def _without_useless(tokens: list[str], words: list[tuple[str, int]]) -> list[str]:
    """Drops ##c for each character c that only begins words, as punctuation and CJK do."""
    inner = {f"##{character}" for word, _ in words for character in word[1:]}
    return [
        token
        for token in tokens
        if (len(token) != 3 or not token.startswith("##") or token in inner)
        and _CONTINUES not in token
    ]


def _trim(tokens: list[str], vocab_size: int) -> list[str]:
    """Drops the rarest longer pieces; single characters stay, so that any word can be cut.

    The learner gives the special tokens, the single characters, then the pieces by falling count.
    """
    single = sum(len(token.removeprefix("##")) == 1 for token in tokens)
    room = vocab_size - single - len(SPECIAL_TOKENS)
    kept = []
    for token in tokens:
        longer = len(token.removeprefix("##")) > 1 and token not in SPECIAL_TOKENS
        room -= longer
        if not longer or room >= 0:
            kept.append(token)
    return kept
