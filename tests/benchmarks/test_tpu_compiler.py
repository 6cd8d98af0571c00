"""What the compiler of TPU v5e makes of a tiny step of each objective. `make test-tpu`.

The limits are a tenth above what was measured, so that a change shows that TPUs would not like:
values written out in place of being worked out again, constants as large as a tensor, an operation
that waits for the host. A change for the better should lower them.
"""

import math
import os

import pytest

from benchmarks.chips import CHIPS
from benchmarks.compilations import Compilations, needed
from benchmarks.programs import PRETRAINING, Program, systems
from tests.benchmarks.tpu_support import TWO_LAYERS

pytestmark = pytest.mark.tpu
PYTHON = os.environ.get("TPU_PYTHON", ".venv-tpu/bin/python")
# MB accessed by a step of 32 x 128, and MB of code for each layer (the generator's count, too).
LIMITS = {"ConvBERT": (1390, 12.3), "ConvBERT masked_lm": (837, 12.7)}
NO_LIMITS = (math.inf, math.inf)  # of a new objective


@pytest.fixture(scope="module")
def compilations():
    return Compilations(PYTHON)


@pytest.mark.parametrize("system", [name for name in systems() if name.startswith("ConvBERT")])
def test_a_tiny_step(compilations, system):
    """One system of each objective."""
    program = Program(system, "tiny", PRETRAINING, "train", overrides=TWO_LAYERS)
    ((_, record),) = compilations.of(program, ["v5e"])
    assert "failed" not in record, record["failed"]
    result = record["result"]
    assert needed(result) < CHIPS["v5e"].usable
    assert result["host"] == []
    layers = 2 if "masked_lm" in str(systems()[system]) else 4
    megabytes = result["bytes"] / 1e6, result["code"] / 1e6 / layers
    print(f"{system}: {megabytes[0]:.0f} MB accessed, {megabytes[1]:.2f} MB of code a layer")
    most = LIMITS.get(system, NO_LIMITS)
    assert all(a <= b for a, b in zip(megabytes, most)), (megabytes, most)
