"""Labels, scores, vectors and masked tokens in the graph are those of fine-tuning."""

# ruff: noqa: RUF001  (odd characters are what is tested)

import json
import shutil

import numpy as np
import pytest
import tensorflow as tf
from scipy.special import expit, softmax

from convbert.data.text.layout import TextLayout
from convbert.data.tokenizers import create_tokenizer
from convbert.data.vocabulary import Vocabulary
from convbert.finetune.kinds.texts import TextExample
from convbert.serving.export import export
from convbert.serving.load import load_model_directory, signatures
from tests import sentencepiece_support as pieces
from tests.model_support import slow_but
from tests.serving.conftest import TASKS
from tests.serving.support import evaluated, fine_tuned, pretrained, sequences_of, task

TEXTS = (
    *("the city was born in 1995", "", "  ", "Café in 北京", "x" * 3000, "the " * 500),
    *("who was born in the city of " * 9, "a\x00b\x07c", "\x01\x02\x7f"),
    "who? what! (the city) [MASK] [SEP]",
    "ΑΣ İzmir, ﬁne 한국: straße −5\u00a0% \ufffdthe\tend",
)


def examples_of(pair: bool) -> list[TextExample]:
    texts = [*TEXTS, *(" ".join(text.split()[:k]) for text in TEXTS for k in (1, 4, 20))]
    draw = np.random.default_rng(0)
    others = draw.permutation(texts).tolist() if pair else [None] * len(texts)
    return [TextExample(str(i), a, b, None) for i, (a, b) in enumerate(zip(texts, others))]


def asked(signature, rows):
    inputs = {"text": tf.constant([row.text_a for row in rows])}
    if rows[0].text_b is not None:
        inputs["text_pair"] = tf.constant([row.text_b for row in rows])
    return {name: value.numpy() for name, value in signature(**inputs).items()}


@pytest.mark.parametrize(
    "kind",
    slow_but(("classification", "pairs"), ("classification", "pairs", "multi_label", "regression")),
)
def test_answers_to_texts_are_those_of_fine_tuning(saved, kind):
    (objective, hparams, words), own = saved.network(kind), TASKS[kind]()
    rows = examples_of("text_b" in own.columns)
    encoded, outputs, expected = evaluated(objective, own, rows, words, hparams)
    signature = saved.loaded(kind).signatures["serving_default"]
    found = asked(signature, rows)
    if kind == "regression":
        np.testing.assert_allclose(found["score"], expected, rtol=0, atol=1e-5)
        assert np.ptp(expected) > 0.1
    else:
        several = kind == "multi_label"
        if several:
            assert found["chosen"].tolist() == np.asarray(expected).tolist()
        else:
            labels = [own.labels[answer] for answer in expected]
            assert [label.decode() for label in found["label"]] == labels
        assert len(np.unique(expected, axis=0)) > 1
        np.testing.assert_allclose(found["scores"], outputs["logits"], rtol=0, atol=1e-5)
        shares = expit(outputs["logits"]) if several else softmax(outputs["logits"], axis=-1)
        np.testing.assert_allclose(found["probabilities"], shares, rtol=0, atol=1e-5)
    assert found["truncated"].sum() == encoded.truncated >= 2


def test_token_ids_answer_as_text_does(saved):
    (_, hparams, words), own = saved.network("pairs"), TASKS["pairs"]()
    loaded, rows = saved.loaded("pairs"), examples_of(True)
    layout = TextLayout(create_tokenizer(words), hparams.max_seq_length)
    encoded = own.plugin.encode(own, rows, layout, hparams)
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
    rows = examples_of(False)
    found = asked(saved.loaded("classification").signatures["embeddings"], rows)
    layout = TextLayout(create_tokenizer(words), hparams.max_seq_length)
    encoded = own.plugin.encode(own, rows, layout, hparams)
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
    """Such models answer as if padded to the limit; here, their layers see four tokens of it."""
    own = task("classification")
    objective, hparams, words = fine_tuned(tmp_path, own, mask_padding=False)
    model = load_model_directory(str(tmp_path))
    assert model.visible_padding == 4
    assert not hparams.length_buckets
    traced = {key: item.trace() for key, item in signatures(model).items()}
    rows = examples_of(False)
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


PIECED = Vocabulary.of_model(pieces.comma_model())
FIELDS = {"summary_last": True, "type_vocab_size": 3}
PAIRED = (*pieces.sentences(6), "", "Café,  in 1,234, ``x''", "北京 " * 40, "\x00\x07", "the")


@pytest.mark.slow  # exports a model
def test_pairs_of_texts_in_a_folder_of_their_own(tmp_path):
    """The SavedModel holds its model: no file of the run is left, nor is it where it was."""
    own, settings = task("classification", True), {"num_hidden_layers": 1, **FIELDS}
    objective, hparams, words = fine_tuned(tmp_path / "run", own, PIECED, **settings)
    pairs = enumerate(zip(PAIRED, PAIRED[::-1]))
    rows = [TextExample(str(i), a, b, None) for i, (a, b) in pairs]
    _, outputs, _ = evaluated(objective, own, rows, words, hparams)
    export(load_model_directory(str(tmp_path / "run")), str(tmp_path / "saved"), "run")
    shutil.rmtree(tmp_path / "run")
    (tmp_path / "saved").rename(tmp_path / "moved")
    assert (tmp_path / "moved/assets/spiece.model").read_bytes() == words.model
    description = json.loads((tmp_path / "moved/assets.extra/model.json").read_text())
    assert description["vocabulary"]["file"] == "assets/spiece.model"
    assert description["vocabulary"]["tokenizer"] == "sentencepiece"
    loaded = tf.saved_model.load(str(tmp_path / "moved"))
    asked = {"text": tf.constant(PAIRED), "text_pair": tf.constant(PAIRED[::-1])}
    found = loaded.signatures["serving_default"](**asked)
    np.testing.assert_allclose(found["scores"], outputs["logits"], rtol=0, atol=1e-5)
    np.testing.assert_allclose(found["probabilities"], softmax(outputs["logits"], axis=-1), 0, 1e-5)


@pytest.mark.slow
def test_masked_tokens(tmp_path):
    """<mask> is the mask; what stands around it is cut into pieces for itself."""
    objective = pretrained(tmp_path, PIECED, objective="masked_lm", overrides=FIELDS)
    asked = signatures(load_model_directory(str(tmp_path)))
    texts = ["the <mask> river", "<mask>,<mask>", "[MASK]"]
    found = asked["masked_tokens"].trace()(tf.constant(texts))
    assert found["num_masks"].numpy().tolist() == [1, 2, 0]
    tokenizer = create_tokenizer(PIECED)
    ids, mask = tokenizer.tokenize(["the "])[0].tolist(), PIECED.mask_id
    ids += [mask, *tokenizer.tokenize([" river"])[0].tolist(), PIECED.sep_id, PIECED.cls_id]
    features = {"input_ids": [ids], "input_mask": [[1] * len(ids)]}
    features["segment_ids"] = [[0] * (len(ids) - 1) + [2]]
    output = objective.encoder({name: tf.constant(value) for name, value in features.items()})
    logits = objective.head(output.sequence, tf.constant([[ids.index(mask)]]))
    best = tf.math.top_k(tf.nn.softmax(logits[0, 0]), 10)
    names = [PIECED.tokens[number] for number in best.indices.numpy()]
    assert [name.decode() for name in found["candidates"][0, 0].numpy()] == names
    np.testing.assert_allclose(found["probabilities"][0, 0], best.values, 1e-4)
    scores = asked["score"].trace()(tf.constant(texts))
    assert np.isfinite(scores["score"]).all()
