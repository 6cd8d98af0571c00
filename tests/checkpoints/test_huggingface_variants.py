"""Padded vocabularies in training and serving."""

import numpy as np
import pytest
import tensorflow as tf

from convbert.checkpoints import model_directory, tf1
from convbert.pretrain.hparams import parse_hparams
from convbert.pretrain.masking import draw_tokens, mask_tokens
from convbert.pretrain.objectives.replaced_token_detection import ReplacedTokenDetection
from convbert.pretrain.vocabulary_softmax import unnormalized_softmax
from convbert.serving.load import load_model_directory as load_served
from convbert.serving.load import signatures
from tests.finetune.kinds_support import rejects
from tests.huggingface_support import ROWS, V, features, load, read
from tests.model_support import slow_but

UNIFORM = {"uniform_generator": True}
VARIANTS = [{}, {"temperature": 0.5}, UNIFORM, {"untied_generator": False}]


@pytest.mark.parametrize("values", slow_but([{}, UNIFORM], VARIANTS), ids=str)
def test_padding_is_never_drawn_by_a_generator(values, folders):
    padded = read(folders("padded electra")[0])
    hparams = parse_hparams({**padded.hparams.as_json(), **values, "mask_prob": 0.9})
    objective = ReplacedTokenDetection(hparams, padded.config, padded.objective.special_ids)
    if objective.generator_head is not None:
        bias = np.zeros(ROWS, np.float32)
        bias[V:] = 1000.0
        objective.generator_head.output_bias.assign(bias)
    rows = {name: tf.repeat(value, 60, 0) for name, value in features("electra").items()}
    batch = objective.prepare(rows, tf.constant([3, 4]))
    logits = objective.generator_logits(batch)
    softmax, temperature = unnormalized_softmax(logits), hparams.objective.temperature
    sampled = draw_tokens(logits, softmax, batch, temperature).numpy()
    assert len(np.unique(sampled)) > 30
    assert sampled.max() < V
    options = {"training": True, "seed": tf.constant([1, 2])}
    loss, _ = objective.loss(batch, objective.normalizers(batch), **options)
    assert float(loss) < 100.0  # with the padding in the softmax, some hundred more


def test_padding_is_never_shown_by_random_masking(folders):
    hparams = read(folders("padded bert")[0]).hparams
    hparams = parse_hparams({**hparams.as_json(), "mask_token_prob": 0.0, "random_token_prob": 1.0})
    rows = {name: tf.repeat(value, 200, 0) for name, value in features("bert").items()}
    shown = mask_tokens(rows, hparams, {"cls": 3, "sep": 4, "mask": 5}, tf.constant([1, 2]))
    hidden = shown["masked_input_ids"] != rows["input_ids"]
    values = tf.boolean_mask(shown["masked_input_ids"], hidden).numpy()
    assert len(np.unique(values)) > 100
    assert values.max() < V


@pytest.mark.parametrize("name", ["electra", "bert"])
def test_padding_is_never_served(name, folders):
    served = signatures(load_served(folders(f"padded {name}")[1]))
    words = load(name).vocabulary.tokens
    answer = served["masked_tokens"].trace()(tf.constant(["the [MASK] is [MASK]", "[MASK]"]))
    candidates = {piece.decode() for piece in answer["candidates"].numpy().ravel()} - {""}
    assert candidates <= set(words)
    assert len(candidates) >= 10
    assert np.all(answer["probabilities"].numpy()[0, :, 0] > 0)
    raw = served["token_ids"].trace()
    row = tf.constant([[3, V - 1, 4]])
    raw(input_ids=row, input_mask=tf.ones_like(row), segment_ids=tf.zeros_like(row))
    with pytest.raises(tf.errors.InvalidArgumentError, match=rf"in \[0, {V}\)"):
        raw(input_ids=row + 1, input_mask=tf.ones_like(row), segment_ids=tf.zeros_like(row))


def test_a_padded_vocabulary_has_no_original(folders, tmp_path):
    """Whose generator would draw the padding."""
    with rejects("vocab_size"):
        tf1.write(model_directory.load(folders("padded electra")[1]), str(tmp_path))
