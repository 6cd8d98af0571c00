"""Causal language modelling: the loss, the adaptive softmax, and what it counts."""

import numpy as np
import pytest
import tensorflow as tf
from scipy.special import log_softmax

from convbert.model import CausalLMHead, build_backbone
from convbert.model import flops as count
from convbert.model.kernels import vocabulary
from convbert.pretrain.hparams import parse_hparams, resolve_hparams
from convbert.pretrain.objectives.causal_lm import token_losses
from convbert.training.metrics import summarize
from tests.model_support import SPECIAL, TINY, normal, random_features, randomize, tensors

V, E = TINY.vocab_size, TINY.embedding_size
CONFIG = TINY.replace(causal=True)
CUTOFFS = [[], [3, 9, 20]]


def build_head(cutoffs=(), divisor=2) -> CausalLMHead:
    encoder = build_backbone(CONFIG)
    head = CausalLMHead(CONFIG, encoder.embeddings, cutoffs=cutoffs, divisor=divisor)
    head(tf.zeros([1, 1, CONFIG.hidden_size]))
    randomize(head)
    return head


def oracle(head: CausalLMHead, hidden: np.ndarray, cutoffs, divisor=2) -> np.ndarray:
    """log p of every token [V] after one hidden state [D], from the description of the head."""
    transformed = head.transformed(hidden[None].astype(np.float32)).numpy()[0].astype(np.float64)
    table = head.embeddings.word_embeddings.numpy().astype(np.float64)
    bias = head.output_bias.numpy()

    ends = [cutoff for cutoff in cutoffs if cutoff < V] + [V]
    logits = [table[token] @ transformed + bias[token] for token in range(ends[0])]
    for group in range(len(ends) - 1):
        logits.append(head.group_embeddings.numpy()[group] @ transformed + head.group_bias[group])
    first = log_softmax(np.array(logits, np.float64))
    found = list(first[: ends[0]])
    for group in range(len(ends) - 1):
        width = E // divisor ** (group + 1)
        narrow = transformed @ head.projections[group].numpy()
        assert narrow.shape == (width,)
        tokens = range(ends[group], ends[group + 1])
        logits = np.array([table[t, :width] @ narrow + bias[t] for t in tokens], np.float64)
        found.extend(first[ends[0] + group] + log_softmax(logits))
    return np.array(found)


@pytest.mark.parametrize("cutoffs", CUTOFFS)
def test_head_follows_its_description(cutoffs):
    head, hidden = build_head(cutoffs), normal(2, 3, CONFIG.hidden_size)
    found = head(hidden).numpy()
    assert found.shape == (2, 3, V)
    np.testing.assert_allclose(np.exp(found).sum(-1), 1.0, rtol=1e-5)
    for i, j in np.ndindex(2, 3):
        expected = oracle(head, hidden[i, j], cutoffs)
        np.testing.assert_allclose(found[i, j], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("cutoffs", CUTOFFS)
def test_losses_are_those_of_the_head(monkeypatch, cutoffs):
    """Of every token but the first, and nothing of padding; blocks change nothing."""
    monkeypatch.setattr(vocabulary, "LARGEST_BLOCK", V * 4)
    head, batch = build_head(cutoffs), random_features(3, 9, lengths=[9, 4, 1])
    hidden = tf.constant(normal(3, 9, CONFIG.hidden_size))
    nll, right = (found.numpy() for found in token_losses(head, hidden, batch))
    log_probabilities = head(hidden).numpy()
    for i, j in np.ndindex(3, 8):
        if not batch["input_mask"][i, j + 1]:
            assert nll[i, j] == 0
            continue
        token = batch["input_ids"][i, j + 1]
        assert nll[i, j] == pytest.approx(-log_probabilities[i, j, token], abs=1e-4)
        if not cutoffs:
            assert bool(right[i, j]) == (log_probabilities[i, j].argmax() == token)


def test_objective():
    """The loss of untrained weights is that of even odds, its perplexity what its mean says."""
    values = {"objective": "causal_lm", "vocab_size": V, "adaptive_softmax_cutoffs": [9]}
    objective = parse_hparams(values).build_objective(CONFIG, SPECIAL)
    features = tensors(random_features(4, 12, [12, 9, 5, 2]))
    batch = objective.prepare(features, tf.constant([1, 2]))
    normalizers = objective.normalizers(batch)
    assert float(normalizers["causal_lm"]) == 11 + 8 + 4 + 1
    with tf.GradientTape() as tape:
        loss, sums = objective.loss(batch, normalizers, training=True, seed=tf.constant([3, 4]))
    found = summarize(sums)
    assert float(loss) == pytest.approx(found["causal_lm_loss"], rel=1e-5)
    assert found["perplexity"] == pytest.approx(np.exp(found["causal_lm_loss"]), rel=1e-5)
    rare = np.mean(features["input_ids"].numpy()[:, 1:][features["input_mask"][:, 1:] > 0] >= 9)
    expected = np.log(9 + 1) + rare * np.log(V - 9)
    assert found["causal_lm_loss"] == pytest.approx(expected, abs=0.3)
    variables = objective.trainable_variables
    gradients = tape.gradient(loss, variables)
    assert [v.name for v, gradient in zip(variables, gradients) if gradient is None] == []


@pytest.mark.parametrize("objective", ["masked_lm", "self_critic", "causal_lm"])
def test_a_causal_encoder_that_predicts_masked_tokens_is_warned_of(objective, capsys):
    resolve_hparams({"objective": objective, "model_size": "causal-mixed-small"}, 30522)
    assert ("`causal`" in capsys.readouterr().err) == (objective != "causal_lm")


def test_operations():
    """One softmax: E products with V embeddings. Groups of rare tokens cost less than that."""
    full = count.causal_lm_head(CONFIG)
    assert full == count.masked_lm_head(CONFIG)
    large = CONFIG.replace(vocab_size=267_737)
    adaptive = count.causal_lm_head(large, [20_000, 40_000, 200_000], 4)
    assert adaptive.matrix < 0.2 * count.causal_lm_head(large).matrix
