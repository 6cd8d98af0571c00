"""Classification, regression, embeddings and token ids: as run_finetuning.py answers them."""

import numpy as np
import pytest
import tensorflow as tf
from scipy.special import softmax

from convbert.finetune.kinds.texts import TextExample
from convbert.serving.load import load_model_directory, signatures
from tests.serving.conftest import TASKS
from tests.serving.support import evaluated, fine_tuned, sequences_of, task

# ruff: noqa: RUF001  (odd characters are what is tested)
TEXTS = (
    *("the city was born in 1995", "", "  ", "Café in 北京", "x" * 3000, "the " * 500),
    *("who was born in the city of " * 9, "a\x00b\x07c", "\x01\x02\x7f"),
    "who? what! (the city) [MASK] [SEP]",
    "ΑΣ İzmir, ﬁne 한국: straße −5\u00a0% \ufffdthe\tend",
)


def examples(pair: bool) -> list[TextExample]:
    texts = [*TEXTS, *(" ".join(text.split()[:k]) for text in TEXTS for k in (1, 4, 20))]
    draw = np.random.default_rng(0)
    others = draw.permutation(texts).tolist() if pair else [None] * len(texts)
    return [TextExample(str(i), a, b, None) for i, (a, b) in enumerate(zip(texts, others))]


def asked(signature, rows):
    """Returns a signature's outputs for rows as NumPy arrays."""
    inputs = {"text": tf.constant([row.text_a for row in rows])}
    if rows[0].text_b is not None:
        inputs["text_pair"] = tf.constant([row.text_b for row in rows])
    return {name: value.numpy() for name, value in signature(**inputs).items()}


@pytest.mark.parametrize(
    "kind", ["classification", "pairs", pytest.param("regression", marks=pytest.mark.slow)]
)
def test_the_answers_are_those_of_fine_tuning(saved, kind):
    (objective, hparams, words), own = saved.network(kind), TASKS[kind]()
    rows = examples(kind != "classification")
    encoded, outputs, expected = evaluated(objective, own, rows, words, hparams)
    signature = saved.loaded(kind).signatures["serving_default"]
    found = asked(signature, rows)
    if kind == "regression":
        np.testing.assert_allclose(found["score"], expected, rtol=0, atol=1e-5)
        assert np.ptp(expected) > 0.1
    else:
        labels = [own.labels[answer] for answer in expected]
        assert [label.decode() for label in found["label"]] == labels
        assert len(set(labels)) > 1
        np.testing.assert_allclose(found["scores"], outputs["logits"], rtol=0, atol=1e-5)
        shares = softmax(outputs["logits"], axis=-1)
        np.testing.assert_allclose(found["probabilities"], shares, rtol=0, atol=1e-5)
    assert found["truncated"].sum() == encoded.truncated >= 2


def test_token_ids_answer_as_text_does(saved):
    (_, hparams, words), own = saved.network("pairs"), TASKS["pairs"]()
    loaded, rows = saved.loaded("pairs"), examples(True)
    encoded = own.plugin.encode(own, rows, words, hparams)
    expected = asked(loaded.signatures["serving_default"], rows)
    for S in (24, 30, 64):
        features = sequences_of(encoded, range(len(rows)), S)
        found = loaded.signatures["token_ids"](**features)
        np.testing.assert_allclose(found["scores"], expected["scores"], rtol=0, atol=1e-5)
        assert found["label"].numpy().tolist() == expected["label"].tolist()


def test_tensors_that_do_not_fit_together_are_named(saved):
    served = saved.loaded("pairs").signatures
    good = {name: tf.ones([2, 5], tf.int32) for name in ("input_ids", "input_mask", "segment_ids")}
    for wrong, message in (
        ({"input_ids": tf.fill([2, 5], 9999)}, "should be in"),
        ({"input_ids": tf.fill([2, 5], -1)}, "should be in"),
        ({"input_mask": tf.ones([2, 4], tf.int32)}, "should have the shape of"),
        ({"input_mask": tf.fill([2, 5], 2)}, r"`input_mask` should be in \[0, 2\)"),
        ({"segment_ids": tf.fill([2, 5], 7)}, r"`segment_ids` should be in \[0, 2\)"),
        ({name: tf.ones([2, 65], tf.int32) for name in good}, "should be at most 64 tokens"),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            served["token_ids"](**{**good, **wrong})
    short = {name: tf.zeros([2, 0], tf.int32) for name in good}
    assert served["token_ids"](**short)["scores"].shape == [2, 3]
    with pytest.raises(tf.errors.InvalidArgumentError):
        served["serving_default"](text=tf.constant(["a"]), text_pair=tf.constant(["a", "b"]))


def test_embeddings(saved):
    (objective, hparams, words), own = saved.network("classification"), TASKS["classification"]()
    rows = examples(False)
    found = asked(saved.loaded("classification").signatures["embeddings"], rows)
    encoded = own.plugin.encode(own, rows, words, hparams)
    assert found["num_pieces"].tolist() == encoded.lengths.tolist()
    for index, length in enumerate(encoded.lengths):
        features = sequences_of(encoded, [index], length)
        expected = objective.encoder(features).sequence[0].numpy()
        pieces = found["pieces"][index].tolist()
        ids = features["input_ids"][0].numpy()
        assert [piece.decode() for piece in pieces[:length]] == [words.tokens[i] for i in ids]
        assert set(pieces[length:]) <= {b""}
        tokens = found["tokens"][index]
        assert not tokens[length:].any()
        np.testing.assert_allclose(tokens[:length], expected, rtol=0, atol=1e-5)
        np.testing.assert_allclose(found["pooled"][index], expected[0], rtol=0, atol=1e-5)
        np.testing.assert_allclose(found["mean"][index], expected.mean(0), rtol=0, atol=1e-5)


@pytest.mark.slow  # needs a model and its signatures
def test_padding_enters_nothing_where_the_original_lets_it_in(tmp_path):
    """Models of `mask_padding` false answer as if padded to the limit, as they were trained. Two
    layers with kernels of five taps see four tokens of padding."""
    own = task("classification")
    objective, hparams, words = fine_tuned(tmp_path, own, mask_padding=False)
    model = load_model_directory(str(tmp_path))
    assert model.visible_padding == 4
    assert not hparams.length_buckets
    traced = {key: item.trace() for key, item in signatures(model).items()}
    rows = examples(False)
    encoded, outputs, _ = evaluated(objective, own, rows, words, hparams)
    for row, logits in zip(rows, outputs["logits"]):
        found = asked(traced["serving_default"], [row])
        np.testing.assert_allclose(found["scores"][0], logits, rtol=0, atol=1e-5)
    # So are token ids, whatever their own padding, and the padding is cut off again.
    raw = traced["token_ids"](**sequences_of(encoded, range(6), encoded.lengths[:6].max()))
    np.testing.assert_allclose(raw["scores"], outputs["logits"][:6], rtol=0, atol=1e-5)
    longer = sequences_of(encoded, range(6), hparams.max_seq_length + 1)
    with pytest.raises(tf.errors.InvalidArgumentError):
        traced["token_ids"](**longer)
    for index in (0, 1, 5):
        vectors = asked(traced["embeddings"], rows[index : index + 1])
        n = int(encoded.lengths[index])
        assert vectors["tokens"].shape[1] == min(n + 4, hparams.max_seq_length)
        states = objective.encoder(sequences_of(encoded, [index], hparams.max_seq_length)).sequence
        np.testing.assert_allclose(vectors["tokens"][0, :n], states[0, :n], rtol=0, atol=1e-5)
        # It is not the same without padding.
        bare = objective.encoder(sequences_of(encoded, [index], n)).sequence
        if n < hparams.max_seq_length:
            assert np.abs(vectors["tokens"][0, :n] - bare[0]).max() > 1e-3
