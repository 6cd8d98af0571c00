"""Models of text embeddings as folders of sentence-transformers, and its loss of pairs."""

import json

import numpy as np
import pytest
import tensorflow as tf

import convbert
from convbert.checkpoints.formats import to_elsewhere
from convbert.data.vocabulary import SPECIAL_TOKENS, Vocabulary
from convbert.model import EncoderOutput
from convbert.model.heads.embedding import EmbeddingHead
from tests import peers
from tests.finetune.kinds_support import OTHER
from tests.serving.support import fine_tuned, task

TEXTS = ["w1 w2 w3", "w4", "w5 w6 w7 w8 w9 w1 w2", "W1, w2!", " ".join(["w1"] * 40)]
ATTENTION = {"token_mixer": "attention", "head_ratio": 1}


@pytest.fixture(scope="module", params=["mean", "pooled"])
def folders(request, tmp_path_factory):
    """A run of an encoder with self-attention, and what it converts to."""
    folder = tmp_path_factory.mktemp("folders")
    vocabulary = Vocabulary((*SPECIAL_TOKENS, *OTHER, ",", "!"))
    hparams, own = {"pooling": request.param}, task("embedding")
    fine_tuned(folder / "run", own, vocabulary, hparams=hparams, **ATTENTION)
    notes = to_elsewhere("huggingface", str(folder / "run"), str(folder / "theirs"))
    assert any("SentenceTransformer" in note for note in notes)
    return str(folder / "run"), folder / "theirs", request.param


def test_the_files(folders):
    _, theirs, pooling = folders
    said = json.loads((theirs / "1_Pooling" / "config.json").read_text())
    assert said["pooling_mode_mean_tokens"] == (pooling == "mean") != said["pooling_mode_cls_token"]
    for module in json.loads((theirs / "modules.json").read_text()):
        assert (theirs / module["path"] / "config.json").exists()
    lengths = json.loads((theirs / "sentence_bert_config.json").read_text())
    assert lengths == {"max_seq_length": 24}


def test_sentence_transformers_gives_the_same_vectors(folders):
    peers.need("sentence_transformers")
    ours, theirs, _ = folders
    found = peers.ask(peers.sentence_vectors, theirs, TEXTS)
    np.testing.assert_allclose(found, convbert.load(ours).embed(TEXTS), atol=1e-5)


@pytest.mark.parametrize("G", [2, 3])
def test_the_loss_is_that_of_sentence_transformers(G):
    peers.need("sentence_transformers")
    draw = np.random.default_rng(G)
    vectors = draw.normal(size=(7 * G, 12)).astype(np.float32)
    states = tf.Variable(vectors)
    batch = {"text": tf.range(7 * G), "weight": tf.ones(7 * G), "input_mask": tf.ones([7 * G, 1])}
    with tf.GradientTape() as tape:
        output = EncoderOutput(states[:, None], states[:, 0], None, (), (), ())
        loss = tf.reduce_mean(EmbeddingHead(G).loss(output, batch, training=True))
    expected, gradient = peers.ask(peers.ranking_loss, [vectors[i::G] for i in range(G)], 20.0)
    assert float(loss) == pytest.approx(expected, rel=1e-5)
    expected = np.stack(gradient, 1).reshape(7 * G, 12)
    np.testing.assert_allclose(tape.gradient(loss, states), expected, atol=1e-6)
