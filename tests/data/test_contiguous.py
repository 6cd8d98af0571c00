"""Contiguous examples: blocks of a stream, of word pieces and of words, with text held out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from convbert.common.errors import InputError
from convbert.data import build
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
    """Options and the folder that they build, in one shard."""
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
    assert manifest["example_layout"] == manifest["settings"]["example_layout"] == "contiguous"
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


def test_training_blocks_are_permuted_and_those_held_out_are_not(contiguous, tmp_path):
    options, _ = contiguous
    other = tmp_path / "data"
    build.build(replace(options, output_dir=str(other), heldout_fraction=0.0))
    in_order = blocks(other, "train")
    reseeded = tmp_path / "reseeded"
    build.build(replace(options, output_dir=str(reseeded), heldout_fraction=0.0, seed=6))
    again = blocks(reseeded, "train")
    assert in_order != again
    assert sorted(in_order) == sorted(again)


# ---------------------------------------------------------------- words and lines

TRAINING = " the cat sat \n\n<unk> the dog\nthe [MASK] cat\n"
HELDOUT = "the zebra sat\n\n"


@pytest.fixture
def lines(tmp_path) -> build.BuildOptions:
    """Options for words, of a text and another one that is held out."""
    (tmp_path / "train.txt").write_text(TRAINING)
    (tmp_path / "valid.txt").write_text(HELDOUT)
    return build.BuildOptions(
        corpus=str(tmp_path / "train.txt"),
        corpus_format="language_model",
        output_dir=str(tmp_path / "data"),
        tokenizer="words",
        heldout_corpus=str(tmp_path / "valid.txt"),
        max_seq_length=S,
        num_processes=1,
    )


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
    counts = manifest["splits"]
    assert [counts[split]["tokens"] for split in ("train", "heldout")] == [13, 5]
    assert [counts[split]["words"] for split in ("train", "heldout")] == [13, 5]
    assert [counts[split]["unknown_tokens"] for split in ("train", "heldout")] == [2, 1]
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
    assert len(stream) == 41
    assert stream.count(vocabulary.unk_id) == 4


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
            assert counts["unknown_tokens"] == 0
            assert counts["tokens"] == len(odd.split()) + 1
