"""Examples against a plain loop; blocks of a stream, of pieces and of words; packed rows."""

import itertools
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from convbert.common.errors import InputError
from convbert.data import build
from convbert.data.build_options import MAX_SEQUENCES, PACKING_GAP
from convbert.data.examples import ExamplePlanner, assemble, pack, permutation
from convbert.data.manifest import read_manifest
from convbert.data.tokenizers import create_tokenizer
from convbert.data.vocabulary import Vocabulary
from tests.build_support import VOCABULARY, read_split

S = 16


def blocks(folder: Path, split: str) -> list[list[int]]:
    """The ids of all examples of a split, without padding, in the order of the files."""
    found = read_split(folder, split, S)
    assert not found["segment_ids"].any()
    sizes = found["input_mask"].sum(1)
    np.testing.assert_array_equal(found["input_mask"], np.arange(S) < sizes[:, None])
    return [ids[:size].tolist() for ids, size in zip(found["input_ids"], sizes)]


@pytest.fixture(scope="module")
def contiguous(given, tmp_path_factory) -> tuple[build.BuildOptions, Path]:
    folder = tmp_path_factory.mktemp("contiguous") / "data"
    options = replace(given, example_layout="contiguous", num_shards=1, max_seq_length=S)
    options = replace(options, output_dir=str(folder))
    build.build(options)
    return options, folder


def test_blocks_are_the_stream(contiguous, given):
    """Every document with [SEP] behind it is there once, on one side; blocks begin with [CLS]."""
    _, folder = contiguous
    cls, sep = VOCABULARY.cls_id, VOCABULARY.sep_id
    files, tokenizer = Path(given.corpus).iterdir(), create_tokenizer(VOCABULARY)
    texts = [text for path in files for text in path.read_text().split("\n\n")]
    wanted = {tuple(tokenizer.tokenize([text.replace("\n", " ")])[0].tolist()) for text in texts}
    heldout = blocks(folder, "heldout")
    stream = [token for block in heldout for token in block[1:]]
    assert {block[0] for block in heldout} == {cls}
    assert [len(block) for block in heldout[:-1]] == [S] * (len(heldout) - 1)
    assert cls not in stream
    assert stream[-1] == sep
    ends = np.flatnonzero(np.array(stream) == sep)
    found = {tuple(part[:-1].tolist()) for part in np.split(stream, ends + 1)[:-1]}
    assert found < wanted
    manifest = read_manifest(str(folder))
    assert manifest["settings"]["example_layout"] == "contiguous"
    counts = manifest["splits"]
    assert len(found) == counts["heldout"]["documents"]
    training = blocks(folder, "train")
    assert sum(len(block) - 1 for block in training) == counts["train"]["tokens"]
    tokens = sum(map(len, wanted)) + len(wanted)
    assert counts["train"]["tokens"] + counts["heldout"]["tokens"] == tokens
    words = sum(len(text.split()) for text in texts) + len(texts)
    assert counts["train"]["words"] + counts["heldout"]["words"] == words
    assert counts["train"]["padding_share"] < 0.01
    assert counts["train"]["tokens_kept_share"] == 1.0


def test_training_blocks_are_permuted_by_the_seed(contiguous, tmp_path):
    options, _ = contiguous
    other = tmp_path / "data"
    build.build(replace(options, output_dir=str(other), heldout_fraction=0.0))
    once = blocks(other, "train")
    reseeded = tmp_path / "reseeded"
    build.build(replace(options, output_dir=str(reseeded), heldout_fraction=0.0, seed=6))
    again = blocks(reseeded, "train")
    assert once != again
    assert sorted(once) == sorted(again)


@pytest.fixture
def lines(tmp_path) -> build.BuildOptions:
    """Options for words, of a text and another one that is held out."""
    (tmp_path / "train.txt").write_text(" the cat sat \n\n<unk> the dog\nthe [MASK] cat\n")
    (tmp_path / "valid.txt").write_text("the zebra sat\n\n")
    places = str(tmp_path / "train.txt"), "language_model", str(tmp_path / "data")
    options = {"heldout_corpus": str(tmp_path / "valid.txt"), "num_processes": 1}
    return build.BuildOptions(*places, **options, tokenizer="words", max_seq_length=S)


def test_words_by_count_with_an_eos_per_line(lines):
    """Of another held-out corpus it is another build."""
    manifest = build.build(lines)
    folder = Path(lines.output_dir)
    vocabulary = Vocabulary.load(folder)
    assert vocabulary.tokenizer == "words"
    assert vocabulary.tokens == ("[PAD]", "<unk>", "<eos>", "[MASK]", "the", "cat", "dog", "sat")
    assert vocabulary.cls_id == vocabulary.sep_id == vocabulary.ids["<eos>"]

    def named(split):
        return [[vocabulary.tokens[i] for i in block] for block in blocks(folder, split)]

    # A text's "[MASK]" is not the special token, which would be taken for a hidden word.
    text = "<eos> the cat sat <eos> <eos> <unk> the dog <eos> the <unk> cat <eos>"
    assert [" ".join(block) for block in named("train")] == [text]
    assert [" ".join(block) for block in named("heldout")] == ["<eos> the <unk> sat <eos> <eos>"]
    for name, counts in (("tokens", [13, 5]), ("words", [13, 5]), ("unknown_tokens", [2, 1])):
        assert [manifest["splits"][split][name] for split in ("train", "heldout")] == counts
    assert manifest["settings"]["heldout_fraction"] == 0.0
    Path(lines.heldout_corpus).write_text("another text\n")
    with pytest.raises(InputError):
        build.build(lines)


def test_blocks_of_words_begin_with_the_last_token_of_the_one_before(lines):
    words = [f"w{i}" for i in range(40)]
    Path(lines.corpus).write_text(" ".join(words) + "\n")
    Path(lines.heldout_corpus).write_text(" ".join(words) + "\n")
    build.build(replace(lines, vocab_size=40))
    vocabulary = Vocabulary.load(lines.output_dir)
    assert vocabulary.size == 40  # 36 of the words, and four special tokens
    heldout = blocks(Path(lines.output_dir), "heldout")
    assert len(heldout) == 3
    assert [block[0] for block in heldout[1:]] == [block[-1] for block in heldout[:-1]]
    stream = [token for block in heldout for token in block[1:]]
    assert (len(stream), stream.count(vocabulary.unk_id)) == (41, 4)


def test_word_pieces_of_lines_have_a_separator_each(lines, given):
    Path(lines.corpus).write_text("ab c\n\nd\n" * 20)
    options = replace(lines, tokenizer=None, vocab=given.vocab, heldout_corpus=None)
    options = replace(options, heldout_fraction=0.0)
    counts = build.build(options)["splits"]["train"]
    assert counts["tokens"] == 20 * (len(["a", "##b", "c", "d"]) + 3)
    assert counts["words"] == 20 * (len(["ab", "c", "d"]) + 3)


def test_words_of_odd_whitespace_and_case(lines):
    """The tokenizer parts and lower-cases words as they were counted."""
    odd = "a\u00a0b\u2009c\u3000d\x1fe\tf\u200bg\u00adh i\u0085j ΑΣ"
    Path(lines.corpus).write_text(odd + "\n")
    Path(lines.heldout_corpus).write_text(odd + "\n")
    for lower in (False, True):
        folder = f"{lines.output_dir}{lower}"
        manifest = build.build(replace(lines, do_lower_case=lower, output_dir=folder))
        for counts in manifest["splits"].values():
            assert (counts["unknown_tokens"], counts["tokens"]) == (0, len(odd.split()) + 1)


ROW = 64


@pytest.fixture(scope="module")
def folders(given, tmp_path_factory):
    found = {name: tmp_path_factory.mktemp(name) / "data" for name in ("segments", "packed")}
    for layout, folder in found.items():
        options = replace(given, example_layout=layout, max_seq_length=ROW, output_dir=str(folder))
        build.build(options)
    return found


def sequences(rows) -> list[tuple]:
    """Ids and segments of every sequence, sorted."""
    numbers, found = rows.get("sequence_ids", rows["input_mask"]), []
    for ids, segments, row in zip(rows["input_ids"], rows["segment_ids"], numbers):
        for number in range(1, row.max() + 1):
            (where,) = np.nonzero(row == number)
            assert where[-1] - where[0] + 1 == len(where)
            found.append((ids[where].tolist(), segments[where].tolist()))
    return sorted(found)


def test_rows_hold_the_examples(folders):
    for split in ("train", "heldout"):
        rows = read_split(folders["packed"], split, ROW, packed=True)
        assert sequences(rows) == sequences(read_split(folders["segments"], split, ROW))
        np.testing.assert_array_equal(rows["input_mask"], rows["sequence_ids"] > 0)
        for row in rows["sequence_ids"]:
            places = [np.flatnonzero(row == n) for n in range(1, row.max() + 1)]
            starts, ends = (np.array([of[end] for of in places]) for end in (0, -1))
            assert starts[0] == 0
            assert (starts[1:] - ends[:-1] - 1 == PACKING_GAP).all()


def test_counts_of_packed_rows(folders):
    splits = [read_manifest(str(folders[name]))["splits"] for name in ("segments", "packed")]
    of_segments, of_packed = (of["train"] for of in splits)
    same = ("documents", "tokens", "tokens_kept", "unknown_tokens")
    assert [of_packed[n] for n in same] == [of_segments[n] for n in same]
    rows = read_split(folders["packed"], "train", ROW, packed=True)
    assert of_packed["examples"] == len(rows["input_ids"]) < of_segments["examples"]
    assert of_packed["padding"] == int((rows["input_mask"] == 0).sum())


@pytest.mark.parametrize("longest", [3, 20, 64])
def test_every_sequence_has_a_place_of_its_own(longest):
    sizes = np.random.default_rng(longest).integers(3, longest + 1, 3000)
    row, offset, number = pack(sizes, ROW).T
    taken = np.zeros([row.max() + 1, ROW + PACKING_GAP], int)
    for i, size in enumerate(sizes):
        assert offset[i] + size <= ROW
        taken[row[i], offset[i] : offset[i] + size + PACKING_GAP] += 1
    assert taken.max() == 1
    for r in range(row.max() + 1):
        assert sorted(number[row == r]) == list(range(1, 1 + (row == r).sum()))
    ideal = (sizes + PACKING_GAP).sum() / (ROW + PACKING_GAP)
    assert len(taken) < 1.1 * ideal + 1
    assert pack(np.full(600, 3), 4096)[:, 2].max() == MAX_SEQUENCES


def plain_examples(lines: list[list[int]], S: int, generator: random.Random):
    """ELECTRA's procedure on lists of tokens, sentence by sentence, with leftovers carried over."""
    waiting, target = [list(line) for line in lines if line], S
    while waiting:
        current = []
        while waiting and sum(map(len, current)) < target:
            current.append(waiting.pop(0))
        half = 10**9 if generator.random() < 0.1 else (target - 3) // 2
        first, second = [], []
        for sentence in current:
            in_first = not second and (
                not first
                or len(first) + len(sentence) < half
                or (len(first) < half and generator.random() < 0.5)
            )
            if in_first:
                first += sentence
            else:
                second += sentence
        everything = first + second
        first = first[: S - 2]
        second = everything[len(first) :][: max(0, S - len(first) - 3)]
        yield first, second
        # Whatever was not taken goes back, cut where the lines were.
        taken = len(first) + len(second)
        for sentence in reversed(current):
            rest = sentence[max(0, len(sentence) - (len(everything) - taken)) :]
            everything = everything[: len(everything) - len(sentence)]
            if rest and taken < len(everything) + len(sentence):
                waiting.insert(0, rest if taken > len(everything) else sentence)
            if taken >= len(everything):
                break
        target = S
        if generator.random() < 0.05:
            target = 5 + int(generator.random() * (S - 5 + 1))


@pytest.mark.parametrize(("S", "longest_line"), [(5, 3), (16, 6), (64, 30), (64, 300), (128, 20)])
def test_equals_the_plain_procedure(S, longest_line):
    rng = np.random.default_rng(S + longest_line)
    for seed in range(60):
        ends = np.cumsum(rng.integers(0, longest_line, rng.integers(1, 40))).tolist()
        tokens = range(10, 10 + ends[-1])
        lines = [[*tokens[start:end]] for start, end in itertools.pairwise([0, *ends])]
        got = [
            ([*tokens[start:][:first]], [*tokens[start + first :][:second]])
            for start, first, second in ExamplePlanner(S, random.Random(seed)).plan(ends)
        ]
        assert got == list(plain_examples(lines, S, random.Random(seed)))


def test_the_order_of_examples_depends_on_large_keys():
    """As those of negative seeds are; floats would not tell them apart."""
    orders = {tuple(permutation(20, [2**64 - seed, 1])) for seed in range(1, 9)}
    assert len(orders) == 8
    assert all(sorted(order) == list(range(20)) for order in orders)


def test_assembled_arrays():
    tokens = np.arange(10, 30, dtype=np.int32)
    plans = np.array([[0, 3, 2], [5, 4, 0], [9, 3, 2], [14, 6, 0]])
    ids, mask, segments = assemble(tokens, plans, 8, VOCABULARY)
    expected = [[2, 10, 11, 12, 3, 13, 14, 3], [2, 15, 16, 17, 18, 3, 0, 0]]
    expected += [[2, 19, 20, 21, 3, 22, 23, 3], [2, 24, 25, 26, 27, 28, 29, 3]]
    assert ids.tolist() == expected
    assert mask.sum(axis=1).tolist() == [8, 6, 8, 8]
    assert mask[1].tolist() == [1, 1, 1, 1, 1, 1, 0, 0]
    assert segments.tolist() == [[0] * 5 + [1] * 3, [0] * 8, [0] * 5 + [1] * 3, [0] * 8]
