"""analysis.attention: sums by hand, uniform attention, padding, and the command on a tiny model."""

import json

import numpy as np
import pytest
from scipy.special import softmax

from convbert.analysis import attention
from convbert.common.errors import InputError
from convbert.data.vocabulary import SPECIAL_TOKENS, Vocabulary
from convbert.model import build_backbone
from tests.model_support import TINY_MODERN, TINY_XLNET, build_tiny
from tests.serving.support import pretrained

WORDS = [f"w{i}" for i in range(40)]
PAIRS = ((5, 6), (9, 3), (3, 9), (7, 70), (4, 4))


def test_concentration_and_specials_by_hand():
    """Two texts of 9 tokens, one head, in a table of offsets for 12 tokens."""
    maps = softmax(np.random.default_rng(0).normal(size=[2, 1, 9, 9]), -1)
    special = np.zeros([2, 9], bool)
    special[0, [0, 4, 8]] = special[1, [0, 6, 8]] = True
    sums = attention.attention_sums(maps, special, 12)
    expected = {"all": [0.0, 0.0], "without_special": [0.0, 0.0]}
    distance = to_special = 0.0
    for b, i, j in np.ndindex(2, 9, 9):
        weight, far = maps[b, 0, i, j], int(abs(i - j) > 4)
        distance += abs(i - j) * weight
        to_special += special[b, j] * weight
        expected["all"][far] += weight
        expected["without_special"][far] += weight * (not special[b, i] and not special[b, j])
    for name, (near, far) in expected.items():
        assert sums[name].shape == (1, 23)
        assert attention.concentration(sums[name]) == pytest.approx([near / far])
    assert attention.mean_distance(sums["all"]) == pytest.approx([distance / 18])
    assert sums["to_special"] == pytest.approx([to_special])
    assert sums["entropy"] == pytest.approx([-np.sum(maps * np.log(maps))])


def test_which_maps_an_encoder_has():
    ids = np.array([[5, 6, 7]], np.int32)
    maps = attention.maps_of(build_tiny(token_mixer="convolution"), ids, ids * 0)
    assert (len(maps.attention), len(maps.kernels)) == (0, 2)
    maps = attention.maps_of(build_backbone(TINY_XLNET), ids, ids * 0)
    assert (len(maps.attention), len(maps.kernels)) == (2, 0)
    gated = build_tiny(TINY_MODERN, token_mixer="gated_convolution")  # a layer keeps its number
    maps = attention.maps_of(gated, ids, ids * 0)
    without = [i for i in range(4) if not gated.config.is_global(i)]
    assert np.flatnonzero([np.isnan(layer).all() for layer in maps.attention]).tolist() == without
    sums = [attention.attention_sums(layer, ids == 0, 3)["all"] for layer in maps.attention]
    levels = attention._levels(np.stack(sums), attention.mean_distance)
    assert np.flatnonzero(np.equal(levels["by_layer"], None)).tolist() == without
    assert levels["all"] > 0
    encoder = build_tiny(token_mixer="convolution", convolution="static")
    with pytest.raises(InputError):
        attention.maps_of(encoder, ids, ids * 0)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A model directory, and a folder with a made-up MRPC of five pairs, two of one length."""
    folder = tmp_path_factory.mktemp("attention")
    pretrained(folder / "model", Vocabulary((*SPECIAL_TOKENS, *WORDS)))
    (folder / "MRPC").mkdir()
    header = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
    draw = np.random.default_rng(1)
    texts = [[" ".join(draw.choice(WORDS, n)) for n in pair] for pair in PAIRS]
    rows = "".join(f"{i % 2}\t{i}\t{i}\t{a}\t{b}\n" for i, (a, b) in enumerate(texts))
    (folder / "MRPC" / "dev.tsv").write_text(header + rows)
    return folder


def test_the_command(files, capsys):
    line = ["--model_dir", files / "model", "--data_dir", files, "--output_dir", files / "out"]
    attention.main(["attention", *map(str, line)])
    result = json.loads((files / "out" / "attention.json").read_text())
    assert result == attention.measure(str(files / "model"), "mrpc", str(files))
    with pytest.raises(InputError):
        attention.measure(str(files / "model"), "mrpc", str(files), max_examples=0)
    lengths = [min(a + b + 3, 24) for a, b in PAIRS]  # 24: that of training
    assert result["lengths"] == {"mean": np.mean(lengths), "shortest": 11, "longest": 24}
    assert (result["examples"], result["truncated"]) == (5, 1)

    asked = {"id": "1", "question": "the " * 30, "answers": [{"text": "a", "answer_start": 0}]}
    squad = {"data": [{"paragraphs": [{"context": "a of the", "qas": [asked]}]}]}
    for split in ("train", "dev"):
        (files / f"{split}-v1.1.json").write_text(json.dumps(squad))
    found = attention.measure(str(files / "model"), "squadv1", str(files))
    assert (found["examples"], found["max_seq_length"]) == (1, 24)  # though 64 fit a question

    # Sums of the numerators and denominators of each pair on its own.
    sample = attention.load_sample(str(files / "model"), "mrpc", str(files))
    near = far = 0.0
    kernels = []
    for ids, segment_ids in sample.sequences:
        (maps,), (taps,) = attention.maps_of(sample.encoder, ids[None], segment_ids[None])
        offsets = np.abs(np.subtract.outer(np.arange(len(ids)), np.arange(len(ids))))
        near, far = near + maps[..., offsets <= 4].sum(), far + maps[..., offsets > 4].sum()
        kernels.append(taps[0])
    N, K = kernels[0].shape[1:]
    kernels = np.concatenate(kernels)
    assert result["concentration"]["all"] == pytest.approx(near / far, rel=1e-5)
    assert np.shape(result["concentration"]["by_head"]) == (1, N)
    found = result["kernels"]
    assert found["offsets"] == [-2, -1, 0, 1, 2]
    np.testing.assert_allclose(found["mean"]["by_head"], [kernels.mean(0)], atol=1e-6)
    variation = np.abs(kernels - kernels.mean(0)).sum(-1).mean() / 2
    assert found["total_variation"]["all"] == pytest.approx(variation, abs=1e-6)
    assert np.shape(found["deviation"]["by_layer"]) == (1, K)

    printed = capsys.readouterr().out
    assert f"{result['concentration']['all']:.3f}" in printed
    for name in ("maps.png", "offsets.png"):
        assert (files / "out" / name).read_bytes().startswith(b"\x89PNG")


def test_short_texts_have_no_far_pairs(files, tmp_path):
    task = {"kind": "classification", "files": {"train": "t.tsv", "dev": "t.tsv"}, "labels": [0, 1]}
    task["columns"] = {"text_a": "text", "label": "label"}
    (tmp_path / "short.json").write_text(json.dumps(task))
    (tmp_path / "t.tsv").write_text("text\tlabel\nw1 w2\t0\nw3 w4\t1\n")
    result = attention.measure(str(files / "model"), str(tmp_path / "short.json"), "")
    assert result["concentration"]["all"] is None
    assert "undefined" in attention.summary(result)
