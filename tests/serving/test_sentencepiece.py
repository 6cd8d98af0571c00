"""Models with a SentencePiece vocabulary, served: as fine-tuning and the networks answer."""

import json
import shutil

import numpy as np
import pytest
import tensorflow as tf
from scipy.special import softmax

from convbert.data.tokenizers import create_tokenizer
from convbert.data.vocabulary import Vocabulary
from convbert.finetune.kinds.texts import TextExample
from convbert.serving.export import export
from convbert.serving.load import load_model_directory, signatures
from tests.sentencepiece_support import comma_model, sentences
from tests.serving.support import evaluated, fine_tuned, pretrained, task

WORDS = Vocabulary.of_model(comma_model())
FIELDS = {"summary_last": True, "type_vocab_size": 3}
TEXTS = (*sentences(6), "", "Café,  in 1,234, ``x''", "北京 " * 40, "\x00\x07", "the")


def model_of(folder, kind, pair=False, **settings):
    own = task(kind, pair)
    return own, *fine_tuned(folder, own, WORDS, num_hidden_layers=1, **FIELDS, **settings)


@pytest.mark.slow  # exports a model
def test_pairs_of_texts_in_a_folder_of_their_own(tmp_path):
    """The SavedModel holds its model: no file of the run is left, nor is it where it was."""
    own, objective, hparams, words = model_of(tmp_path / "run", "classification", True)
    rows = [TextExample(str(i), a, b, None) for i, (a, b) in enumerate(zip(TEXTS, TEXTS[::-1]))]
    encoded, outputs, _ = evaluated(objective, own, rows, words, hparams)
    export(load_model_directory(str(tmp_path / "run")), str(tmp_path / "saved"), "run")
    shutil.rmtree(tmp_path / "run")
    (tmp_path / "saved").rename(tmp_path / "moved")
    assert (tmp_path / "moved/assets/spiece.model").read_bytes() == words.model
    description = json.loads((tmp_path / "moved/assets.extra/model.json").read_text())
    assert description["vocabulary"]["file"] == "assets/spiece.model"
    assert description["vocabulary"]["tokenizer"] == "sentencepiece"
    loaded = tf.saved_model.load(str(tmp_path / "moved"))
    texts, others = ([getattr(row, name) for row in rows] for name in ("text_a", "text_b"))
    asked = {"text": tf.constant(texts), "text_pair": tf.constant(others)}
    found = loaded.signatures["serving_default"](**asked)
    np.testing.assert_allclose(found["scores"], outputs["logits"], rtol=0, atol=1e-5)
    np.testing.assert_allclose(found["probabilities"], softmax(outputs["logits"], axis=-1), 0, 1e-5)
    # A <sep> B <sep> <cls>: where B has no pieces, it has no <sep>, either.
    for start, end, other in zip(encoded.row_splits, encoded.row_splits[1:], others):
        ids, segments = (encoded.tokens[name][start:end] for name in ("input_ids", "segment_ids"))
        assert (ids[-2:].tolist(), segments[-1]) == ([words.sep_id, words.cls_id], 2)
        pieces = create_tokenizer(words).tokenize([other])[0]
        assert (ids == words.sep_id).sum() == 1 + bool(pieces.size)
        assert not (ids[:-1] == words.cls_id).any()


@pytest.mark.slow
def test_masked_tokens(tmp_path):
    """<mask> is the mask; what stands around it is cut into pieces for itself."""
    objective = pretrained(tmp_path, WORDS, objective="masked_lm", overrides=FIELDS)
    asked = signatures(load_model_directory(str(tmp_path)))
    texts = ["the <mask> river", "<mask>,<mask>", "[MASK]"]
    found = asked["masked_tokens"].trace()(tf.constant(texts))
    assert found["num_masks"].numpy().tolist() == [1, 2, 0]
    tokenizer = create_tokenizer(WORDS)
    ids, mask = tokenizer.tokenize(["the "])[0].tolist(), WORDS.mask_id
    ids += [mask, *tokenizer.tokenize([" river"])[0].tolist(), WORDS.sep_id, WORDS.cls_id]
    features = {"input_ids": [ids], "input_mask": [[1] * len(ids)]}
    features["segment_ids"] = [[0] * (len(ids) - 1) + [2]]
    output = objective.encoder({name: tf.constant(value) for name, value in features.items()})
    logits = objective.head(output.sequence, tf.constant([[ids.index(mask)]]))
    best = tf.math.top_k(tf.nn.softmax(logits[0, 0]), 10)
    names = [WORDS.tokens[number] for number in best.indices.numpy()]
    assert [name.decode() for name in found["candidates"][0, 0].numpy()] == names
    np.testing.assert_allclose(found["probabilities"][0, 0], best.values, 1e-4)
    scores = asked["score"].trace()(tf.constant(texts))
    assert np.isfinite(scores["score"]).all()
