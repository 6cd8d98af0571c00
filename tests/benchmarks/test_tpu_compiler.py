"""What the compiler of TPU v5e makes of a tiny step of each objective. `make test-tpu`.

The limits are a tenth above what was measured, so that a change shows that TPUs would not like:
values written out in place of being worked out again, constants as large as a tensor, an operation
that waits for the host. A change for the better should lower them.
"""

import json
import math
import os
import subprocess

import pytest
import tensorflow as tf

from benchmarks.chips import CHIPS
from benchmarks.compilations import Compilations, needed
from benchmarks.programs import FINETUNING, PRETRAINING, Program, systems
from finetune import kinds
from tests.benchmarks.tpu_support import TINY, TWO_LAYERS

pytestmark = pytest.mark.tpu
PYTHON = os.environ.get("TPU_PYTHON", ".venv-tpu/bin/python")
# MB accessed by a step of 32 x 128, and MB of code for each layer (the generator's count, too).
LIMITS = {"ConvBERT": (2150, 7.1), "ConvBERT masked_lm": (933, 7.9), "XLNet": (3040, 12.5)}
NO_LIMITS = (math.inf, math.inf)  # of a new objective
SHORT = {"batch": 4, "length": 64, "overrides": TINY}


@pytest.fixture(scope="module")
def compilations():
    return Compilations(PYTHON)


def compiled(compilations, device, *arguments, **options):
    """What the compiler says of a program, which fits and does not wait for the host."""
    ((_, record),) = compilations.of(Program(*arguments, **options), [device])
    assert "failed" not in record, record["failed"]
    assert needed(record["result"]) < CHIPS[device].usable
    assert record["result"]["host"] == []
    return record["result"]


@pytest.mark.parametrize("system", [s for s in systems() if s.startswith(("ConvBERT", "XLNet"))])
def test_a_tiny_step(compilations, system):
    """One system of each objective."""
    step = (system, "tiny", PRETRAINING, "train")
    result = compiled(compilations, "v5e", *step, overrides=TWO_LAYERS)
    one_network = ("masked_lm", "permutation_lm")
    layers = 2 if systems()[system].get("objective") in one_network else 4
    megabytes = result["bytes"] / 1e6, result["code"] / 1e6 / layers
    print(f"{system}: {megabytes[0]:.0f} MB accessed, {megabytes[1]:.2f} MB of code a layer")
    most = LIMITS.get(system, NO_LIMITS)
    assert all(a <= b for a, b in zip(megabytes, most)), (megabytes, most)


@pytest.mark.parametrize("kind", kinds.names())
@pytest.mark.parametrize("phase", FINETUNING)
def test_every_kind(compilations, kind, phase):
    result = compiled(compilations, "v5e", "ConvBERT", "tiny", kind, phase, **SHORT)
    assert result["unknown_loops"] == 0


def test_evaluation(compilations):
    compiled(compilations, "v5e", "ConvBERT", "tiny", PRETRAINING, "eval", **SHORT)


def test_the_eight_cores_of_a_v3(compilations):
    """The compiler joins the sums of gradients, of which there are more than sixty."""
    step = ("ConvBERT", "tiny", PRETRAINING, "train")
    result = compiled(compilations, "v3", *step, replicas=8, **SHORT)
    assert 0 < result["sums"] < 64


def test_a_loop_counts_as_often_as_it_runs(tmp_path):
    """Which XLA's own analysis does not do."""

    @tf.function(jit_compile=True)
    def products(inputs, matrices):
        def body(number, inputs):
            return number + 1, tf.tanh(inputs @ matrices[number])

        return tf.while_loop(lambda number, _: number < 12, body, (0, inputs))[1]

    path, inputs = tmp_path / "loop.hlo", (tf.zeros([256, 256]), tf.zeros([12, 256, 256]))
    path.write_bytes(products.experimental_get_compiler_ir(*inputs)(stage="hlo_serialized"))
    command = [PYTHON, "-m", "benchmarks.program_compile", path, "v5e", "1"]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    result = json.loads(output.splitlines()[-1])
    assert result["unknown_loops"] == 0
    assert result["flops"] == pytest.approx(12 * 2 * 256**3, rel=0.02)
