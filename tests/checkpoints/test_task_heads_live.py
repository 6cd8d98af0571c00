"""Slow: transformers loads fine-tuned models with their heads, and we load its; equal outputs.

Needs the extra `peers` (see tests/peers.py) and a minute; without
these packages it is skipped and says so.
"""

from __future__ import annotations

import numpy as np
import pytest

from convbert.finetune.objective import FineTuning
from tests import peers
from tests.checkpoints.task_head_support import CASES, declaration, features, reread, written

# See above for what it needs.
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("transformers")]


def ours(objective: FineTuning, batch) -> dict[str, np.ndarray]:
    """The same of ours, in the form of theirs."""
    output, head = objective.encoder(batch), objective.head
    tokens = type(head).__name__ == "TaggingHead"
    return {"logits": head(output.sequence if tokens else output.pooled).numpy()}


def assert_close(received, expected):
    for name, value in expected.items():
        np.testing.assert_allclose(received[name], value, atol=2e-5, err_msg=name)


@pytest.mark.parametrize("case", CASES)
def test_transformers_gives_our_outputs(tmp_path, case):
    objective, folder = written(tmp_path, case)
    batch = features(objective.encoder.config.vocab_size)
    found = peers.ask(peers.outputs, CASES[case].architecture, folder, batch)
    assert not any(found[name] for name in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert_close(ours(objective, batch), found["outputs"])
    assert found["labels"] == tuple(declaration(case)["labels"])


@pytest.mark.parametrize("case", CASES)
def test_a_model_of_transformers_gives_its_outputs_here(tmp_path, case):
    _, folder = written(tmp_path, case)  # the vocabulary and the shapes
    peers.ask(peers.make_like, CASES[case].architecture, folder)
    back = reread(folder, case).objective
    batch = features(back.encoder.config.vocab_size)
    found = peers.ask(peers.outputs, CASES[case].architecture, folder, batch)
    assert_close(ours(back, batch), found["outputs"])
