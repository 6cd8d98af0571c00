"""Pre-training data with SentencePiece, learned or given: vocabulary, layout, the same again."""

from dataclasses import replace

import numpy as np
import pytest

from convbert.common.errors import InputError
from convbert.data import build, shards
from convbert.data.manifest import read_manifest
from convbert.data.vocabulary import Vocabulary
from convbert.pretrain.hparams import encoder_config, resolve_hparams
from tests.build_support import content, read_split
from tests.data.test_build_stopping import stop

S = 24


@pytest.fixture(scope="module")
def options(given, tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("sentencepiece") / "data")
    learned = {"tokenizer": "sentencepiece", "vocab": None, "vocab_size": 300}
    return replace(given, **learned, max_seq_length=S, output_dir=folder)


@pytest.fixture(scope="module")
def folder(options):
    build.build(options)
    return options.output_dir


def examples(folder):
    """(ids, mask, segments) of all training examples, [N, S] each."""
    found = read_split(folder, "train", S)
    return [found[name] for name in ("input_ids", "input_mask", "segment_ids")]


@pytest.mark.parametrize("layout", ["segments", "contiguous"])
def test_examples_end_with_the_summary_token(options, folder, tmp_path, layout):
    if layout == "contiguous":
        folder = str(tmp_path / "data")
        build.build(replace(options, output_dir=folder, example_layout=layout))
    words, manifest = Vocabulary.load(folder), read_manifest(folder)
    assert words.tokenizer == "sentencepiece"
    assert (words.do_lower_case, words.strip_accents) == (False, True)
    assert manifest["vocabulary_digest"] == words.digest
    ids, mask, segments = examples(folder)
    last = mask.sum(1) - 1
    rows = np.arange(len(ids))
    assert (ids[rows, last] == words.cls_id).all()
    assert (ids == words.cls_id).sum() == len(ids)
    assert (segments[rows, last] == 2).all()
    assert (segments == 2).sum() == len(ids)
    assert (ids[mask == 0] == words.pad_id).all()
    assert not segments[mask == 0].any()
    separators = (ids == words.sep_id).sum(1)
    if layout == "segments":
        assert (ids[rows, last - 1] == words.sep_id).all()
        # A <sep> is of A; B <sep> is segment 1.
        two = (segments == 1).any(1)
        assert (separators == 1 + two).all()
        assert two.any()
        first = (ids == words.sep_id).argmax(1)
        assert all(segments[r, : first[r] + 1].max() == 0 for r in rows)
    else:
        assert not (segments == 1).any()
    counts = manifest["splits"]["train"]
    assert counts["unknown_tokens"] == 0
    specials = len(ids) if layout == "contiguous" else len(ids) + separators.sum()
    assert mask.sum() - specials == counts["tokens_kept"] == counts["tokens"]


def test_the_same_again_also_after_an_interruption(options, folder, tmp_path, monkeypatch):
    other = replace(options, output_dir=str(tmp_path / "data"))
    stop(other, monkeypatch, shards, "build_shard", lambda number, *_: number == 1)
    assert (tmp_path / "data/unfinished_build/spiece.model").exists()
    learn = "convbert.data.build.learn_vocabulary"
    monkeypatch.setattr(learn, lambda *_, **__: pytest.fail("it was learned before"))
    build.build(other)
    built = content(tmp_path / "data")
    expected = content(type(tmp_path)(folder))
    assert built == expected
    assert not any(name.endswith("vocab.txt") for name in built)


def test_a_model_that_is_given(options, folder, tmp_path):
    given = replace(options, output_dir=str(tmp_path / "data"), tokenizer=None, vocab_size=None)
    given = replace(given, vocab=f"{folder}/spiece.model")
    content = build.build(given)
    assert content["vocabulary_digest"] == Vocabulary.load(folder).digest
    np.testing.assert_equal(examples(given.output_dir), examples(folder))
    with pytest.raises(InputError):
        build.build(replace(given, tokenizer="wordpiece"))


def test_encoders_that_are_trained_with_it(folder):
    words = Vocabulary.load(folder)

    def fitted(size, **overrides):
        values = {"model_size": size, "model_hparam_overrides": overrides, "max_seq_length": S}
        objective = "causal_lm" if overrides.get("causal") else "masked_lm"
        hparams = resolve_hparams({**values, "objective": objective}, words.size)
        return encoder_config(hparams, words.size).with_summary_last()

    config = fitted("bert-small")
    assert (config.summary_token, config.type_vocab_size) == (-1, 3)
    assert fitted("bert-small", type_vocab_size=5).type_vocab_size == 5
    with pytest.raises(InputError):
        fitted("bert-small", causal=True)
