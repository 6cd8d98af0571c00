from __future__ import annotations

import pytest

from convbert.analysis.parameters import Parameters, count_parameters, default_hparams
from convbert.model import SIZES
from tests.model.test_sizes import EXACT

# The whole pre-training graph; that of convbert-small is what the original's variables add up to.
GRAPHS = {
    "convbert-small": 14_019_903,
    "convbert-medium-small": 18_539_191,
    "convbert-base": 115_836_059,
    "electra-small": 14_196_219,
    "electra-base": 119_386_427,
    "bert-small": 13_546_682,
    "bert-base": 109_514_298,
    "bert-large": 335_174_458,
    "ale-small": 4_959_035,
    "causal-transformer-small": 13_546_682,
    "causal-mixed-small": 13_552_178,
    "convbert-tiny": 1_983_117,
    "causal-transformer-tiny": 1_932_672,
    "causal-mixed-tiny": 1_933_608,
    "xlnet-tiny": 1_916_032,
    "xlnet-base": 116_750_336,
    "xlnet-large": 360_300_800,
}


FAST = ("convbert-tiny", "causal-mixed-tiny", "xlnet-tiny")


@pytest.mark.parametrize(
    "size",  # seconds each: weights are drawn
    [
        pytest.param(size, marks=[] if size in FAST else [pytest.mark.slow])
        for size in sorted({*SIZES, *GRAPHS})
    ],
)
def test_parameter_count(size):
    assert count_parameters(default_hparams(size)) == Parameters(EXACT[size], GRAPHS[size])
