from __future__ import annotations

import pytest
import tensorflow as tf

from analysis import parameters
from analysis.parameters import Parameters, count_parameters, default_hparams, parameter_table
from model import SIZES, build_encoder

# Encoder, whole pre-training graph. The encoders of ConvBERT and the graph of convbert-small are
# what the original code's variables add up to; ALE's and ELECTRA's agree with the papers' 4.8M,
# 13.5M and 110M.
EXPECTED = {
    "convbert-small": (13_143_768, 14_019_903),
    "convbert-medium-small": (17_475_888, 18_539_191),
    "convbert-base": (105_680_520, 115_836_059),
    "electra-small": (13_483_008, 14_196_219),
    "electra-base": (108_891_648, 119_386_427),
    "bert-small": (13_483_008, 13_546_682),
    "bert-base": (108_891_648, 109_514_298),
    "ale-small": (4_795_648, 4_959_035),
    "convbert-tiny": (1_883_976, 1_983_117),
}


def test_every_size_is_counted():
    assert set(EXPECTED) == set(SIZES)


@pytest.mark.parametrize(
    "size",
    [
        # Of base sizes, draws up to a gigabyte of weights in ten seconds.
        pytest.param(size, marks=[pytest.mark.slow] if size.endswith("-base") else [])
        for size in EXPECTED
    ],
)
def test_parameter_count(size):
    assert count_parameters(default_hparams(size)) == Parameters(*EXPECTED[size])


def test_models_at_hand_still_run_after_counting():
    encoder = build_encoder(SIZES["convbert-tiny"])
    count_parameters(default_hparams("convbert-tiny"))
    ids = tf.ones([1, 8], tf.int32)
    assert encoder({"input_ids": ids}).sequence.shape == [1, 8, 128]


def test_bert_is_counted_with_masked_lm_and_the_others_with_detection():
    detection = [size for size in SIZES if default_hparams(size).objective.detector()]
    assert set(SIZES) - set(detection) == {"bert-small", "bert-base"}


def test_table(monkeypatch):
    monkeypatch.setattr(parameters, "SIZES", {"convbert-tiny": SIZES["convbert-tiny"]})
    plain, markdown = parameter_table().splitlines(), parameter_table(markdown=True).splitlines()
    assert plain[0].split()[:2] == ["size", "vocabulary"]
    assert plain[2].split() == [
        *("convbert-tiny", "8,192", "1,883,976", "1,983,117"),
        "replaced_token_detection",
    ]
    assert {line.count("|") for line in markdown} == {6}
    assert markdown[1].replace("-", "") == "|:|:|:|:|:|"
