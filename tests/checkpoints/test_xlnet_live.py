"""Slow: transformers' XLNet gives the same outputs, before and after a conversion; with `-s`, the
largest differences are printed. Needs the extra `peers` (see tests/peers.py), 6 GiB of memory and
about two minutes on two cores; without these packages it is skipped and says so."""

import numpy as np
import pytest

from convbert.checkpoints.formats import from_elsewhere
from convbert.checkpoints.model_directory import Options, load
from convbert.checkpoints.xlnet import write_huggingface
from convbert.model import SIZES
from tests import peers
from tests.tf1_support import assert_equal_tensors
from tests.xlnet_support import TINY, WORDS, V, conversion

# See above for what it needs.
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("transformers")]

TOLERANCE = 2e-5
B, S, P = 3, 9, 4
LENGTHS = (9, 5, 7)
CONFIGS = {
    "toy": TINY,
    "toy-gelu": TINY.replace(hidden_act="gelu", layer_norm_eps=1e-3),
    "xlnet-base": SIZES["xlnet-base"].replace(vocab_size=V),
    "large-width": SIZES["xlnet-large"].replace(vocab_size=V, num_hidden_layers=2),
}


def batch():
    draw = np.random.default_rng(0)
    mask = (np.arange(S) < np.array(LENGTHS)[:, None]).astype(np.int32)
    right = {
        "input_ids": draw.integers(9, V, [B, S]).astype(np.int32) * mask,
        "input_mask": mask,
        "segment_ids": np.where(mask == 1, draw.integers(0, 3, [B, S]), 3).astype(np.int32),
    }
    left = {
        name: np.stack([np.roll(row, S - n) for row, n in zip(rows, LENGTHS, strict=True)])
        for name, rows in right.items()
    }
    return right, left


def assert_equal_outputs(name, folder, encoder, head):
    """Of both streams, with padding on either side; the folder has every tensor and no other."""
    pairs, features = {"states": [], "pooled": [], "query stream": [], "logits": []}, batch()[0]
    draw = np.random.default_rng(1)
    rank = np.stack([draw.permutation(S) for _ in range(B)])
    rank[:, 0] = -1  # a real token that all see
    permitted = (rank[:, :, None] > rank[:, None]) | (rank[:, None] == -1)
    targets = np.stack([draw.choice(np.arange(1, n), P, replace=False) for n in LENGTHS])
    states, (queries, logits), wrong = peers.ask(
        peers.xlnet_outputs, folder, batch(), permitted, targets
    )
    assert wrong == []
    for given, (*hidden, last) in zip(batch(), states, strict=True):
        real, found = given["input_mask"] == 1, encoder(given)
        ours = (found.embedding_output, *found.hidden_states)
        for one, other in zip(ours, hidden, strict=True):
            pairs["states"].append((one.numpy()[real], other[real]))
        summary = [np.flatnonzero(row)[-1] for row in given["input_mask"]]
        pairs["pooled"].append((found.pooled.numpy(), last[np.arange(B), summary]))
    found = encoder.two_streams(features, permitted, targets.astype(np.int32), head.mask_embedding)
    pairs["query stream"].append((found.queries.numpy(), queries))
    pairs["logits"].append((head(found.queries).numpy(), logits))
    largest = {
        what: max(np.abs(ours - theirs).max() for ours, theirs in compared)
        for what, compared in pairs.items()
    }
    print(f"\n{name}:", ", ".join(f"{what} {value:.1e}" for what, value in largest.items()))
    assert max(largest.values()) <= TOLERANCE


@pytest.mark.parametrize("name", CONFIGS)
def test_theirs_of_ours(name, tmp_path):
    made = conversion(CONFIGS[name])
    # Weights of about the size of trained ones: the larger the width, the smaller.
    scale = 0.5 * (16 / made.config.hidden_size) ** 0.5
    for variable in made.objective.encoder.trainable_variables:
        value = variable.numpy() * scale
        variable.assign(1.0 + value if "gamma" in variable.name else value)
    write_huggingface(made, str(tmp_path))
    assert_equal_outputs(name, tmp_path, made.objective.encoder, made.objective.head)


@pytest.mark.parametrize("act", ["gelu", "gelu_new", "relu"])
def test_ours_of_theirs(act, tmp_path):
    """Also after both directions, to the bit."""
    fields = {"vocab_size": V, "d_model": 32, "n_layer": 3, "n_head": 4, "d_inner": 40}
    theirs, ours = tmp_path / "theirs", str(tmp_path / "ours")
    peers.ask(peers.make_xlnet, {**fields, "ff_activation": act}, theirs)
    (theirs / "spiece.model").write_bytes(WORDS.model)
    from_elsewhere("huggingface", str(theirs), ours, Options())
    back = load(ours)
    assert_equal_outputs(f"of theirs, {act}", theirs, back.objective.encoder, back.objective.head)
    write_huggingface(back, str(tmp_path))
    states = (peers.ask(peers.state, "XLNetLMHeadModel", of) for of in (theirs, tmp_path))
    before, after = states
    assert_equal_tensors(after, before)
