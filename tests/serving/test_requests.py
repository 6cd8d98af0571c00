"""Requests as they come to a server: of any rank, of any size, and of odd bytes."""

import contextlib
import time

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2

from convbert.common.machine import peak_memory_gib
from convbert.serving.signatures.parts import FEATURES, TOKENS_PER_PART
from tests.model_support import slow_but
from tests.serving.conftest import SEARCH, TASKS
from tests.serving.support import asked, inputs_of

SLOW = pytest.mark.slow
KINDS = [*TASKS, *SEARCH, "pretraining"]
DRAW = np.random.default_rng(0)
WORDS = ["the", "city", "was", "born", "1995", "who?", "[MASK]", "Café", "🙂"]
TEXTS = [" ".join(DRAW.choice(WORDS, n)) for n in (*range(40), *DRAW.integers(0, 40, 360))]
BAD = [b"", b"word " * 3000, b"\xff\xfe\xc3(", b"\xed\xa0\x80", b"\x00" * 9, b"\xc2\xad"]


def outputs(signature, inputs):
    found = signature(**{name: tf.constant(value) for name, value in inputs.items()})
    return {name: value.numpy() for name, value in found.items()}


def assert_sound(found, count):
    """The batch is the first axis of every output, and there are only finite numbers."""
    for name, value in found.items():
        assert len(value) == count, name
        assert value.dtype.kind != "f" or np.isfinite(value).all(), name


@contextlib.contextmanager
def by_function(folder):
    loaded = tf.saved_model.load(folder)
    yield lambda name, inputs: outputs(loaded.signatures[name], inputs)


@contextlib.contextmanager
def by_session(folder):
    """As TensorFlow Serving asks: a session that is fed what came in the request."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        model = tf.compat.v1.saved_model.load(session, ["serve"], folder)

        def ask(name, inputs):
            signature, options = model.signature_def[name], config_pb2.CallableOptions()
            options.feed.extend(signature.inputs[key].name for key in inputs)
            options.fetch.extend(info.name for info in signature.outputs.values())
            # Unlike `run`, it does not compare the values with the declared shapes.
            values = session._make_callable_from_options(options)(*inputs.values())
            return dict(zip(signature.outputs, values))

        yield ask


WAYS = [pytest.param(kind, by_session, marks=SLOW) for kind in ("pairs", "tagging", "pretraining")]


@pytest.mark.parametrize(("kind", "way"), [("tagging", by_function), *WAYS])
def test_scalars_are_batches_of_one_and_other_ranks_are_rejected(saved, kind, way):
    with way(saved[kind]) as ask:
        for name, described in inputs_of(saved[kind]).items():
            first, tensor = next(iter(described.items()))
            for rank in range(4):
                value = np.array(b"a text", object) if tensor.dtype == "string" else np.int32(1)
                inputs = dict.fromkeys(described, np.full([2] * rank, value))
                if rank == len(tensor.axes):
                    assert_sound(ask(name, inputs), 2)
                elif rank == 0 and len(tensor.axes) == 1:
                    one = ask(name, {key: value[None] for key, value in inputs.items()})
                    assert_sound(one, 1)
                    for key, value in ask(name, inputs).items():
                        np.testing.assert_array_equal(value, one[key])
                else:
                    with pytest.raises(tf.errors.InvalidArgumentError) as error:
                        ask(name, inputs)
                    sentence = f"`{first}` should have the shape [{', '.join(tensor.axes)}]"
                    assert sentence in error.value.message


@pytest.mark.parametrize("kind", slow_but(["classification", "span", "pretraining"], KINDS))
def test_every_signature_answers_bad_texts_and_none(saved, kind):
    for name, described in inputs_of(saved[kind]).items():
        signature = saved.loaded(kind).signatures[name]
        none = {key: tf.zeros([0] * len(t.axes), t.dtype) for key, t in described.items()}
        assert_sound(outputs(signature, none), 0)
        if "input_ids" not in described:
            assert_sound(outputs(signature, asked(described, BAD)), len(BAD))


def random_texts(count):
    """Texts of random code points of every plane, bytes, runs of one character, and words."""
    draw = np.random.default_rng(1)
    kinds = [
        lambda n: "".join(map(chr, draw.integers(0, 0x110000, n))),
        lambda n: "".join(map(chr, draw.integers(0, 0x250, n))),
        lambda n: chr(draw.integers(0, 0x3000)) * n,
        lambda n: " ".join(draw.choice(WORDS, n)),
        lambda n: draw.bytes(n),
    ]
    found = (kinds[i % len(kinds)](int(draw.geometric(0.03))) for i in range(count))
    return [of if isinstance(of, bytes) else of.encode("utf-8", "surrogatepass") for of in found]


@SLOW  # needs a minute each
@pytest.mark.parametrize("kind", KINDS)
def test_every_signature_answers_random_texts(saved, kind):
    """5,000 of them, in a minute and less than a gigabyte."""
    texts, before = random_texts(5000), peak_memory_gib()
    for name, described in inputs_of(saved[kind]).items():
        if "input_ids" in described:
            continue
        signature, began = saved.loaded(kind).signatures[name], time.monotonic()
        for start in range(0, 5000, 250):
            part = texts[start : start + 250]
            assert_sound(outputs(signature, asked(described, part)), len(part))
        assert time.monotonic() - began < 60, name
    assert peak_memory_gib() - before < 1


@pytest.mark.parametrize("kind", slow_but(["pairs"], ["pairs", "tagging", "span", "pretraining"]))
def test_answers_do_not_depend_on_the_batch(saved, kind):
    """Requests beyond what is computed at once, with texts of all lengths, few texts, and one."""
    assert len(TEXTS) * 24 > 2 * TOKENS_PER_PART
    ids = DRAW.integers(5, 99, [len(TEXTS), 24]).astype(np.int32)
    ids = dict(zip(FEATURES, (ids, np.ones_like(ids), np.zeros_like(ids))))
    ids["input_mask"][:, 20:] = 0
    for name, described in inputs_of(saved[kind]).items():
        if name == "words":  # whose texts are in lists
            continue
        inputs = ids if name == "token_ids" else asked(described, TEXTS)
        signature = saved.loaded(kind).signatures[name]
        together = outputs(signature, inputs)
        single = [slice(index, index + 1) for index in range(0, 40, 3)]
        for rows in (slice(0, 7), slice(150, 157), slice(390, 397), *single):
            few = outputs(signature, {key: value[rows] for key, value in inputs.items()})
            for key, value in few.items():
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
