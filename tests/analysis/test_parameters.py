"""Numbers of parameters of all named sizes."""

from __future__ import annotations

import pytest

from convbert.analysis.parameters import count_parameters, default_hparams
from convbert.model import SIZES

# The encoder without heads, and the whole pre-training graph. The ConvBERT rows were counted in the
# original code's graph, and that of convbert-small is what its variables add up to; the other
# encoders round to the published 13.48 M and 108.89 M.
COUNTS = {
    "convbert-small": (13_143_768, 14_019_903),
    "convbert-medium-small": (17_475_888, 18_539_191),
    "convbert-base": (105_680_520, 115_836_059),
    "electra-small": (13_483_008, 14_196_219),
    "electra-base": (108_891_648, 119_386_427),
    "bert-small": (13_483_008, 13_546_682),
    "bert-base": (108_891_648, 109_514_298),
    "bert-large": (334_092_288, 335_174_458),
    "ale-small": (4_795_648, 4_959_035),
    "causal-transformer-small": (13_483_008, 13_546_682),
    "causal-mixed-small": (13_488_504, 13_552_178),
    "convbert-tiny": (1_883_976, 1_983_117),
    "causal-transformer-tiny": (1_907_712, 1_932_672),
    "causal-mixed-tiny": (1_908_648, 1_933_608),
    # transformers counts 116,718,336 and 360,268,800 with the mask embedding, which is the head's.
    "xlnet-tiny": (1_907_712, 1_916_032),
    "xlnet-base": (116_717_568, 116_750_336),
    "xlnet-large": (360_267_776, 360_300_800),
    # Published as 149 M and 395 M, and by Ettin's names.
    "modern-tiny": (1_606_784, 1_674_881),
    "modern-base": (149_014_272, 162_315_713),
    "modern-large": (394_781_696, 417_867_969),
    "ettin-17m": (16_797_440, 17_191_233),
    "ettin-32m": (31_883_136, 32_940_737),
    "ettin-68m": (68_144_640, 71_240_129),
    "ettin-150m": (149_014_272, 156_852_929),
}
FAST = ("convbert-tiny", "causal-mixed-tiny", "xlnet-tiny")


@pytest.mark.parametrize(
    "size",  # seconds each: weights are drawn
    [
        pytest.param(size, marks=[] if size in FAST else [pytest.mark.slow])
        for size in sorted({*SIZES, *COUNTS})
    ],
)
def test_parameter_count(size):
    assert count_parameters(default_hparams(size)) == COUNTS[size]
