"""Text as speech recognisers write it: lower case, without punctuation, a sentence a line.

    python -m benchmarks.spoken_text --corpus wiki_en/ --corpus_format wikiextractor \\
        --output spoken.txt

Transcripts and hypotheses of LibriSpeech hold a to z, the apostrophe and the space alone. A
language model that was trained on text with punctuation expects a full stop at the end of each of
them. The output is a corpus for `build_pretraining_data.py --corpus_format text`: a blank line ends
a document.
"""

from __future__ import annotations

import collections
import re
import unicodedata
from collections.abc import Iterator

from absl import app, flags

from data.corpus import CORPUS_FORMATS, open_corpus
from errors import InputError, main_with_clear_errors, require_flags
from files import replacing

_CORPUS = flags.DEFINE_string("corpus", None, "File or folder of the text.")
_CORPUS_FORMAT = flags.DEFINE_enum(
    "corpus_format", "text", CORPUS_FORMATS, "Format of the corpus; see docs/guide.md."
)
_OUTPUT = flags.DEFINE_string("output", None, "Text file to write.")
_MIN_WORDS = flags.DEFINE_integer(
    "min_words", 3, "Words of the shortest sentence that is kept.", lower_bound=1
)

# A full stop, colon, ... before a space and a letter that is a capital: abbreviations end sentences
# too, which costs a language model less than a rule for each of them.
_SENTENCE_END = re.compile(r"(?<=[.!?:;])[\"')\]]*\s+(?=[\"'(\[]*[A-Z0-9])")
_NO_WORD = re.compile(r"[^\w']+|_")
_LONE_APOSTROPHE = re.compile(r"(?<!\w)'|'(?!\w)")


def spoken(text: str) -> str:
    """Lower-case words separated by single spaces; apostrophes stay inside of words.

    Accents are removed and digits stay: how a number is read aloud is not known here.
    """
    text = unicodedata.normalize("NFKD", text.replace("\N{RIGHT SINGLE QUOTATION MARK}", "'"))
    text = "".join(c for c in text if not unicodedata.combining(c)).lower()
    text = _LONE_APOSTROPHE.sub(" ", _NO_WORD.sub(" ", text))
    return " ".join(text.split())


def sentences(line: str, min_words: int) -> Iterator[str]:
    """The sentences of a line, as they are spoken; shorter ones are left out."""
    for sentence in map(spoken, _SENTENCE_END.split(line)):
        if sentence.count(" ") + 1 >= min_words:
            yield sentence


def main(argv: list[str]) -> None:
    """Reads a corpus and writes its sentences."""
    if len(argv) > 1:
        raise InputError(f"Unknown argument {argv[1]!r}; see --help")
    require_flags(flags.FLAGS, {"corpus": "a file or a folder of text", "output": "a file"})
    corpus, count = open_corpus(_CORPUS.value, _CORPUS_FORMAT.value), collections.Counter()
    with replacing(_OUTPUT.value) as path, open(path, "w", encoding="utf-8") as file:
        for unit in corpus.units:
            for document in corpus.documents(unit, collections.Counter()):
                lines = [s for line in document.lines for s in sentences(line, _MIN_WORDS.value)]
                if lines:
                    file.write("\n".join(lines) + "\n\n")
                    words = sum(line.count(" ") + 1 for line in lines)
                    count.update(documents=1, sentences=len(lines), words=words)
    print(", ".join(f"{number:,} {name}" for name, number in count.items()))


if __name__ == "__main__":
    app.run(main_with_clear_errors(main))
