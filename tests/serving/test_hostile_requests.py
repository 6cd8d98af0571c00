"""Hostile requests to every signature: an answer or a clear error, in bounded time and memory.

Prints a table; see it with `pytest -m hostile -s tests/serving/test_hostile_requests.py`.
"""

import json
import pathlib
import time

import numpy as np
import pytest
import tensorflow as tf

from serving.export import export
from serving.load import load
from signatures.tensors import tensors_of
from tests.serving.support import fine_tuned, task

KINDS = ("classification", "pairs", "regression", "tagging", "span", "pretraining")
# The maximum, for models of a few kilobytes on two shared cores; the span model, whose windows are
# of 13 tokens, needs most of it.
SECONDS, MEBIBYTES = 60, 600
DRAW = np.random.default_rng(0)
WORDS = [b"the", b"city", b"was", b"born", b"1995", b"[MASK]", "Café".encode(), b"\xf0\x9f\x99\x82"]
MIXED = [b" ".join(DRAW.choice(WORDS, n)) for n in DRAW.geometric(0.05, 10_000)]
TEXTS = {
    "scalar": b"the city",
    "rank 2": [[b"the city", b"who?"]],
    "empty batch": np.zeros([0], object),
    "empty strings": [b""] * 3,
    "10,000 mixed texts": MIXED,
    "1 MB text": [b"the city was born " * 58_000],
    "1 MB word": [b"x" * 1_000_000, b"the"],
    "100 kB of [MASK]": [b"[MASK]" * 17_000],
    "1,000 texts of [MASK]": [b"[MASK] " * 30] * 1000,
    "NUL bytes": [b"\0" * 100_000, b"a\0b"],
    "invalid UTF-8": [b"\xff\xfe\xc3(" * 10_000, bytes(range(256))],
    "combining marks": [("a" + "\u0327\u0301" * 500).encode()],
    "emoji": ["\U0001f469\u200d\U0001f469\u200d\U0001f467".encode() * 10_000],
    "lone surrogates": [b"\xed\xa0\x80" * 10_000, b"a\xed\xb0\x80b"],
    "unspaced Thai": ["ภาษาไทยไม่มีช่องว่าง".encode() * 2_000],
    "unspaced Chinese": ["北京是中国的首都".encode() * 10_000],
    "whitespace": [b" \t\r\n" * 250_000],
}
IDS = {
    "scalar": 5,
    "rank 1": [5, 6],
    "rank 3": [[[5, 6]]],
    "empty batch": np.zeros([0, 0], np.int32),
    "no tokens": np.zeros([3, 0], np.int32),
    "10,000 sequences": DRAW.integers(5, 99, [10_000, 24]),
    "ids below zero": [[-1, 5]],
    "ids beyond the vocabulary": [[2**31 - 1]],
    "too long": np.full([1, 100_000], 5),
}


def requests(inputs):
    """Name -> (tensors by input, whether they should be answered)."""
    axes = {name: tensor.axes for name, tensor in inputs.items()}
    if "input_ids" in axes:
        for name, ids in IDS.items():
            ids = np.asarray(ids, np.int32)
            mask, segments = np.ones_like(ids), np.zeros_like(ids)
            answered = name in ("empty batch", "no tokens", "10,000 sequences")
            yield name, dict(zip(axes, (ids, mask, segments))), answered
        return
    for name, texts in TEXTS.items():
        texts = np.asarray(texts, object)
        if axes == {"words": ("B", "W")}:  # each text is a word; and again, all are of one sentence
            yield name, {"words": texts[..., None]}, name not in ("scalar", "rank 2")
            if texts.ndim == 1:
                yield f"{name}, one sentence", {"words": texts[None]}, True
        else:
            yield name, dict.fromkeys(axes, texts), name != "rank 2"


def memory(field):
    """A field of this process's status in MiB."""
    status = pathlib.Path("/proc/self/status").read_text()
    return int(status.split(f"{field}:")[1].split()[0]) / 1024


def outcome(signature, inputs):
    """What comes of a request: "answer", "error" (a clear one), or what is wrong with either."""
    first = next(iter(inputs.values()))
    batch = first.shape[0] if first.shape.rank else 1
    try:
        answers = signature(**inputs)
    except tf.errors.InvalidArgumentError as error:
        clear = "should" in error.message and any(f"`{name}`" in error.message for name in inputs)
        return "error" if clear else error.message
    for name, value in answers.items():
        if len(value) != batch or (value.dtype.is_floating and not np.isfinite(value).all()):
            return f"{name} is {value}"
    return "answer"


@pytest.mark.hostile  # needs ten seconds for each kind, a minute for spans
@pytest.mark.parametrize("kind", KINDS)
def test_every_signature_answers_or_says_why(saved, kind):
    folder = pathlib.Path(saved[kind])
    loaded = tf.saved_model.load(str(folder))
    described_as = json.loads((folder / "assets.extra/model.json").read_text())["signatures"]
    wrong = []
    for signature, item in described_as.items():
        described = tensors_of(item, "inputs")
        for name, inputs, answered in requests(described):
            tensors = {
                key: tf.constant(value, described[key].dtype) for key, value in inputs.items()
            }
            pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak begins here
            before, start = memory("VmRSS"), time.monotonic()
            found = outcome(loaded.signatures[signature], tensors)
            seconds, peak = time.monotonic() - start, memory("VmHWM") - before
            row = f"{kind:15}{signature:16}{name:40}{found:8}{seconds:6.2f} s{peak:8.0f} MiB"
            print(row)
            if (
                found != ("answer" if answered else "error")
                or seconds > SECONDS
                or peak > MEBIBYTES
            ):
                wrong.append(row)
    assert not wrong, "\n".join(wrong)


@pytest.mark.hostile  # needs ten seconds, and 2 GB where it fails
def test_the_memory_of_a_large_request_is_bounded(tmp_path):
    """2,000 texts of up to 256 tokens, of which each has 1 MB of attention when padded to that."""
    lengths = {"hparams": {"max_seq_length": 256}, "max_position_embeddings": 256}
    fine_tuned(tmp_path / "run", task("classification"), **lengths)
    export(load(str(tmp_path / "run")), str(tmp_path / "saved"), "run")
    ask = tf.saved_model.load(str(tmp_path / "saved")).signatures["serving_default"]
    texts = [b" ".join([b"city"] * n) for n in DRAW.geometric(0.03, 2000)]
    few = ask(text=tf.constant(texts[:5]))
    pathlib.Path("/proc/self/clear_refs").write_text("5")
    before = memory("VmRSS")
    many = ask(text=tf.constant(texts))
    assert memory("VmHWM") - before < 300
    np.testing.assert_allclose(many["scores"][:5], few["scores"], rtol=0, atol=1e-5)
