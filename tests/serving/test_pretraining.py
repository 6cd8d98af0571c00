"""Answers of pre-trained models, against their networks called eagerly."""

import json

import numpy as np
import pytest
import tensorflow as tf

from convbert.data.tokenization import Tokenizer
from convbert.serving.load import load_model_directory, signatures
from tests.serving.support import WORDS, pretrained

TEXTS = ["the city was born", "", "who? " * 30, "[MASK] born in [MASK]", "a [MASK][MASK]b", "[MASK"]
BAD = [b"", b"\xff[MASK]\xfe", b"\x00[MASK]", b"[MASK] " * 15_000, b"the " * 25_000]


@pytest.fixture
def electra(saved):
    """(objective, signatures) of a generator and a discriminator."""
    return saved.network("pretraining"), saved.loaded("pretraining").signatures


def features_of(pieces: list[int], S: int) -> dict[str, tf.Tensor]:
    """A row [CLS] pieces [SEP], padded."""
    ids = [WORDS.cls_id, *pieces, WORDS.sep_id]
    row = np.zeros([1, S], np.int32)
    row[0, : len(ids)] = ids
    mask = (np.arange(S) < len(ids)).astype(np.int32)[None]
    values = (row, mask, np.zeros_like(row))
    return dict(zip(("input_ids", "input_mask", "segment_ids"), map(tf.constant, values)))


def tokenized(text: str) -> list[int]:
    """Ids of a text in which [MASK] is a piece."""
    ids = []
    for number, part in enumerate(text.split("[MASK]")):
        ids += [WORDS.mask_id] * (number > 0)
        ids += Tokenizer(WORDS).tokenize([part])[0].tolist()
    return ids


UNSAID = {"max_seq_length": None}


@pytest.mark.parametrize(
    ("converted", "asked", "length"),
    [
        *((None, None, 24), ({"max_seq_length": 16}, None, 24), ({}, None, 64)),
        *((UNSAID, None, 64), (UNSAID, 20, 20)),
    ],
)
def test_how_long_rows_may_be(tmp_path, converted, asked, length):
    """A converted model may not say the length of its training."""
    pretrained(tmp_path, parts=["encoder"])
    record = json.loads((tmp_path / "hparams.json").read_text())
    if converted is not None:
        record["run_settings"]["converted"] = {"source": "tf1", **converted}
    (tmp_path / "hparams.json").write_text(json.dumps(record))
    model = load_model_directory(str(tmp_path), max_seq_length=asked)
    assert model.max_seq_length == length


def test_replaced_tokens(electra):
    objective, asked = electra
    found = asked["replaced_tokens"](tf.constant(TEXTS))
    for index, text in enumerate(TEXTS):
        ids = Tokenizer(WORDS).tokenize([text])[0].tolist()
        assert bool(found["truncated"][index]) == (len(ids) > 22)
        features = features_of(ids[:22], 24)
        logits = objective.head(objective.encoder(features).sequence)[0].numpy()
        n = int(found["num_pieces"][index])
        assert n == len(ids[:22]) + 2
        expected = 1 / (1 + np.exp(-logits[:n]))
        np.testing.assert_allclose(found["probabilities"][index, :n], expected, rtol=0, atol=1e-5)
        pieces = ["[CLS]", *(WORDS.tokens[i] for i in ids[:22]), "[SEP]"]
        assert [piece.decode() for piece in found["pieces"][index, :n].numpy()] == pieces
        assert not found["probabilities"][index, n:].numpy().any()


def test_masked_tokens(electra):
    objective, asked = electra
    found = asked["masked_tokens"](tf.constant(TEXTS))
    assert found["num_masks"].numpy().tolist() == [0, 0, 0, 2, 2, 0]
    assert found["candidates"].shape == [6, 2, 10]
    for index, text in enumerate(TEXTS):
        ids = tokenized(text)[:22]
        features = features_of(ids, 24)
        places = [place + 1 for place, i in enumerate(ids) if i == WORDS.mask_id]
        states = objective.generator(features).sequence
        for number, place in enumerate(places):
            logits = objective.generator_head(states, tf.constant([[place]]))[0, 0]
            expected = tf.sort(tf.nn.softmax(logits), direction="DESCENDING")[:10]
            given = found["probabilities"][index, number]
            np.testing.assert_allclose(given, expected, rtol=0, atol=1e-5)
            best = found["candidates"][index, number, 0].numpy().decode()
            assert best == WORDS.tokens[int(tf.argmax(logits))]
        assert not any(found["candidates"][index, len(places) :].numpy().ravel())
        assert not found["probabilities"][index, len(places) :].numpy().any()


def test_token_ids(electra):
    objective, asked = electra
    features = features_of(tokenized("the city"), 9)
    found = asked["token_ids"](**features)
    states = objective.encoder(features).sequence
    np.testing.assert_allclose(found["tokens"][0, :4], states[0, :4], rtol=0, atol=1e-5)
    logits = objective.head(states)
    np.testing.assert_allclose(found["replaced"], tf.sigmoid(logits), rtol=0, atol=1e-5)


def test_masks_among_odd_bytes_and_beyond_the_limit(electra):
    found = electra[1]["masked_tokens"](tf.constant(BAD))
    assert found["num_masks"].numpy().tolist() == [0, 1, 1, 22, 0]
    assert found["truncated"].numpy().tolist() == [False, False, False, True, True]


@pytest.mark.parametrize(
    ("hparams", "parts", "expected"),
    [
        ({}, ("encoder",), set()),
        ({}, ("encoder", "head"), {"replaced_tokens"}),
        ({}, ("encoder", "generator", "generator_head"), {"masked_tokens"}),
        ({"untied_generator": False}, None, {"replaced_tokens", "masked_tokens"}),
        ({"objective": "masked_lm"}, None, {"masked_tokens"}),
    ],
)
def test_signatures_are_those_the_checkpoint_has_networks_for(tmp_path, hparams, parts, expected):
    objective = pretrained(tmp_path, parts=parts, **hparams)
    found = signatures(load_model_directory(str(tmp_path)))
    expected |= {"score"} if expected else set()  # each of these networks has a scoring method
    assert set(found) == {"serving_default", "embeddings", "token_ids"} | expected
    if "masked_tokens" in expected and parts is None:
        encoder = objective.encoder
        head = getattr(objective, "generator_head", objective.head)
        ids = tokenized("the [MASK]")
        logits = head(encoder(features_of(ids, 4)).sequence, tf.constant([[2]]))
        answer = found["masked_tokens"].trace()(tf.constant(["the [MASK]"]))
        found, expected = answer["probabilities"][0, 0, 0], tf.nn.softmax(logits)
        np.testing.assert_allclose(found, tf.reduce_max(expected), atol=1e-5)
