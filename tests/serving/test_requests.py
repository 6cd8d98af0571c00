"""Requests as they come to a server: of any rank and of any size."""

import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from signatures.parts import FEATURES, TOKENS_PER_PART, InParts
from signatures.tensors import tensors_of
from tests import command_support

KINDS = ("classification", "pairs", "regression", "tagging", "span", "pretraining")
DRAW = np.random.default_rng(0)
WORDS = ["the", "city", "was", "born", "1995", "who?", "[MASK]", "Café"]
TEXTS = [" ".join(DRAW.choice(WORDS, n)) for n in (*range(40), *DRAW.integers(0, 40, 360))]


def signatures_of(folder):
    """Name -> the axes of each of its inputs."""
    path = pathlib.Path(folder, "assets.extra", "model.json")
    return {
        name: {key: tensor.axes for key, tensor in tensors_of(item, "inputs").items()}
        for name, item in json.loads(path.read_text())["signatures"].items()
    }


@pytest.mark.parametrize(
    ("kinds", "ways"),
    [
        (("tagging",), ("function",)),
        pytest.param(KINDS, ("function", "session"), marks=pytest.mark.slow),  # needs two minutes
    ],
)
def test_scalars_are_batches_of_one_and_other_ranks_are_rejected(saved, kinds, ways):
    """In a process of its own, which a segmentation fault would end."""
    folders = [saved[kind] for kind in kinds]
    done = command_support.run("-m", "tests.serving.ranks", ",".join(ways), *folders)
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    wanted = {(f, name, how) for f in folders for name in signatures_of(f) for how in ways}
    assert {tuple(row[:3]) for row in found} == wanted
    assert len(found) == 4 * len(wanted)
    for folder, name, _, rank, answer in found:
        inputs = signatures_of(folder)[name]
        expected = {len(axes) for axes in inputs.values()}.pop()
        if rank == expected:
            assert answer == [2]
        elif rank == 0 and expected == 1:
            assert answer == [1]
        else:
            first = next(iter(inputs))
            assert f"`{first}` should have the shape [{', '.join(inputs[first])}]" in answer


@pytest.mark.slow  # needs an export of each kind
def test_a_scalar_is_answered_as_a_batch_of_one(saved):
    ask = tf.saved_model.load(saved["pairs"]).signatures["serving_default"]
    text, other = "the city was born", "who? 1995"
    expected = ask(text=tf.constant([text]), text_pair=tf.constant([other]))
    found = ask(text=tf.constant(text), text_pair=tf.constant(other))
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value)


def asked(signature, names, rows=slice(None)):
    """What a signature of texts answers to some of TEXTS, as NumPy arrays."""
    inputs = {name: np.roll(TEXTS, place)[rows] for place, name in enumerate(names)}
    outputs = signature(**{name: tf.constant(value) for name, value in inputs.items()})
    return {name: value.numpy() for name, value in outputs.items()}


@pytest.mark.parametrize(
    "kind",
    [
        "pairs",
        *(
            pytest.param(kind, marks=pytest.mark.slow)
            for kind in ("tagging", "span", "pretraining")
        ),
    ],
)
def test_answers_do_not_depend_on_the_batch(saved, kind):
    """Requests beyond what is computed at once, with texts of all lengths, few texts, and one."""
    assert len(TEXTS) * 24 > 2 * TOKENS_PER_PART
    loaded = tf.saved_model.load(saved[kind])
    for name, inputs in signatures_of(saved[kind]).items():
        if {len(axes) for axes in inputs.values()} != {1}:
            continue
        signature = loaded.signatures[name]
        together = asked(signature, inputs)
        single = [slice(index, index + 1) for index in range(0, 40, 3)]
        for rows in (slice(0, 7), slice(150, 157), slice(390, 397), *single):
            for key, value in asked(signature, inputs, rows).items():
                assert_same(together[key][rows], value)


def assert_same(found, expected):
    """Equal, or within 1e-5 where they are floats, up to padding on the second axis."""
    if found.ndim > 1:
        width = expected.shape[1]
        assert not found[:, width:].any()  # zeros, or empty strings
        found = found[:, :width]
    if expected.dtype.kind == "f":
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    else:
        np.testing.assert_array_equal(found, expected)


@pytest.mark.slow  # computes half a minute
def test_large_requests_of_token_ids(saved):
    signature = tf.saved_model.load(saved["pretraining"]).signatures["token_ids"]
    ids = DRAW.integers(5, 99, [400, 24])
    mask = np.tile(np.arange(24) < 20, [400, 1])
    features = {"input_ids": ids, "input_mask": mask, "segment_ids": 0 * ids}
    together = signature(**{key: tf.constant(v, tf.int32) for key, v in features.items()})
    for start in (0, 150, 390):
        rows = slice(start, start + 7)
        few = signature(**{key: tf.constant(v[rows], tf.int32) for key, v in features.items()})
        for key, value in few.items():
            np.testing.assert_allclose(together[key][rows], value, rtol=0, atol=1e-5)


@pytest.mark.parametrize("B", [0, 1, 3, 70])
def test_parts(B):
    """Each of similar length, no larger than the budget, put together again in order."""
    budget, S = 60, 30
    lengths = DRAW.integers(1, S + 1, B)
    lengths[:1] = S
    ids = np.where(np.arange(S) < lengths[:, None], DRAW.integers(5, 99, [B, S]), 0)

    def function(part):
        n, width = tf.unstack(tf.shape(part["input_ids"]))
        return {
            "ids": part["input_ids"],
            "names": tf.strings.as_string(part["input_ids"]),
            "sum": tf.reduce_sum(part["input_ids"], 1),
            "n": tf.fill([n], n),
            "width": tf.fill([n], width),
        }

    in_parts = InParts(function, budget)

    @tf.function
    def compute(features, lengths):
        return in_parts(features, lengths, dict.fromkeys(["ids", "names"], S))

    features = {name: tf.constant(ids, tf.int32) for name in FEATURES}
    found = {k: v.numpy() for k, v in compute(features, tf.constant(lengths, tf.int32)).items()}
    np.testing.assert_array_equal(found["ids"], ids)
    np.testing.assert_array_equal(found["sum"], ids.sum(1))
    inside = np.arange(S) < lengths[:, None]
    np.testing.assert_array_equal(found["names"][inside], ids[inside].astype(str).astype(bytes))
    if B > 2:
        assert (found["n"] * found["width"] <= budget).all()
        for width in set(found["width"].tolist()):
            assert lengths[found["width"] == width].max() == width
        assert found["width"][lengths == lengths.min()][0] < S
