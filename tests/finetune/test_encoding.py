"""Token ids, segments, cuts and tag alignment of encoded examples."""

import numpy as np

from convbert.data.text.layout import TextLayout
from convbert.data.tokenization import Tokenizer
from convbert.data.tokenizers import create_tokenizer
from convbert.data.vocabulary import SPECIAL_TOKENS, Vocabulary
from convbert.finetune.kinds.tagging import TaggedExample
from convbert.finetune.kinds.texts import TextExample
from tests.finetune.kinds_support import task_of

WORDS = ("the", "cat", "sat", "un", "##want", "##ed", "on", "mat", ".", "a", "b", "c", "d")
VOCABULARY = Vocabulary((*SPECIAL_TOKENS, *WORDS))
CONTROL_CHARACTER = "\x07"


def encode(kind, examples, max_seq_length=16):
    task = task_of(kind, **({"label_range": (1.0, 5.0)} if kind == "regression" else {}))
    hparams = task.plugin.hparams(max_seq_length=max_seq_length)
    layout = TextLayout(create_tokenizer(VOCABULARY), max_seq_length)
    return task.plugin.encode(task, examples, layout, hparams)


def pieces(encoded, row):
    ids = encoded.tokens["input_ids"][encoded.row_splits[row] : encoded.row_splits[row + 1]]
    return [VOCABULARY.tokens[i] for i in ids]


def column(encoded, name, row):
    values = encoded.tokens[name][encoded.row_splits[row] : encoded.row_splits[row + 1]]
    return values.tolist()


def text(a, b=None, label=0):
    return TextExample(id=a[:5], text_a=a, text_b=b, label=label)


def test_pairs_are_cut_as_token_by_token_removal_from_the_longer_text_does():
    S = 12
    shapes = [(a, b) for a in range(14) for b in range(14)]
    words = "a b c d " * 4
    examples = [text(words[: 2 * a], words[: 2 * b]) for a, b in shapes]
    encoded = encode("classification", examples, S)
    cut = 0
    for row, (a, b) in enumerate(shapes):
        budget, before = S - (3 if b else 2), a + b
        while a + b > budget:
            a, b = (a - 1, b) if a > b else (a, b - 1)
        cut += a + b < before
        kept = [[*"abcd" * 4][:count] for count in (a, b)]  # the beginnings
        expected = ["[CLS]", *kept[0], "[SEP]", *kept[1], *(["[SEP]"] if b else [])]
        assert pieces(encoded, row) == expected, shapes[row]
    assert encoded.truncated == cut


def test_labels_of_texts_and_of_none():
    def labels(kind, *values):
        examples = [text("a", "b", value) for value in values]
        return encode(kind, examples).sequences.get("label")

    assert labels("classification", 1, 0).tolist() == [1, 0]
    assert labels("classification", 1, 0).dtype == np.int32
    assert labels("regression", 1.0, 4.0).tolist() == [0.0, 0.75]
    assert labels("regression", 1.0, 4.0).dtype == np.float32
    assert labels("regression", None, None) is None
    assert "tags" not in encode("tagging", [TaggedExample("s", ("a",), None)]).tokens


def test_long_sentences_are_divided_between_words_as_by_a_loop():
    random, long = np.random.default_rng(5), "un" + "want" * 9  # for any sequence
    choices = ["a", "unwanted", "cat.", "zzz", CONTROL_CHARACTER, "", "unwantedwant", long]
    examples = []
    for number in range(200):
        words = tuple(random.choice(choices, random.integers(0, 12)).tolist())
        tags = tuple(random.integers(1, 9, len(words)).tolist())
        examples.append(TaggedExample(str(number), words, tags))
    encoded = encode("tagging", examples, 10)
    tokenizer, rows, truncated = Tokenizer(VOCABULARY), [], set()
    ids_of = {x: tokenizer.tokenize([x])[0].tolist() or [VOCABULARY.unk_id] for x in choices}
    for number, example in enumerate(examples):
        row = [[], []]
        for word, tag in zip(example.words, example.tags):
            ids = ids_of[word]
            if len(row[0]) + len(ids[:8]) > 8:
                rows.append((number, row))
                row = [[], []]
            if len(ids) > 8 or (rows and rows[-1][0] == number):
                truncated.add(number)
            row[0] += ids[:8]
            row[1] += [tag, *[0] * (len(ids[:8]) - 1)]
        rows.append((number, row))
    assert encoded.sequences["example"].tolist() == [number for number, _ in rows]
    assert encoded.truncated == len(truncated) < len(examples) < len(rows)
    for i, (_, (ids, tags)) in enumerate(rows):
        assert column(encoded, "input_ids", i) == [VOCABULARY.cls_id, *ids, VOCABULARY.sep_id]
        assert column(encoded, "tags", i) == [0, *tags, 0]  # on first pieces only
        assert column(encoded, "tag_weight", i) == [float(tag > 0) for tag in (0, *tags, 0)]
    assert encoded.tokens["tag_weight"].dtype == np.float32
    assert not encoded.tokens["segment_ids"].any()
