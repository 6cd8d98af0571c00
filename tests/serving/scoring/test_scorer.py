"""Scores of every method against transcriptions that take one sentence, and one mask, at a time."""

import numpy as np
import pytest
import tensorflow as tf
from scipy.special import log_softmax

import convbert
from convbert.data.tokenization import Tokenizer
from tests.finetune.kinds_support import rejects
from tests.serving.support import WORDS, fine_tuned, pretrained, task

ROOM = 22  # of sequences of 24 tokens
# Objective, method, and the networks by which the objective computes it.
SLOW = pytest.mark.slow  # another pass per piece
OWN, GENERATOR = ("encoder", "head"), ("generator", "generator_head")
METHODS = [
    ("self_critic", "self_critic", OWN),
    pytest.param("self_critic", "pseudo_log_likelihood", OWN, marks=SLOW),
    ("causal_lm", "causal", OWN),
    ("replaced_token_detection", "discriminator_heuristic", OWN),
    pytest.param("replaced_token_detection", "pseudo_log_likelihood", GENERATOR, marks=SLOW),
]
LONG = "the city was born in who ? a b c d e f g h " * 3
SENTENCES = ["the city was born", "who?", LONG, "a\u2603 b", LONG[:40], "", "\x00"]


def pieces_of(sentence: str) -> list[int]:
    """The ids of a sentence's pieces."""
    return Tokenizer(WORDS).tokenize([sentence])[0].tolist()


def sequence(sentence: str):
    """The ids of [CLS] pieces [SEP], and the positions that count."""
    pieces = pieces_of(sentence)[:ROOM]
    return [WORDS.cls_id, *pieces, WORDS.sep_id], range(1, 1 + len(pieces))


def hidden(encoder, ids: list[int]) -> tf.Tensor:
    """[1, S, D]."""
    ids = tf.constant([ids])
    features = {"input_ids": ids, "input_mask": tf.ones_like(ids)}
    return encoder({**features, "segment_ids": tf.zeros_like(ids)}).sequence


def pseudo_log_likelihood(encoder, head, sentence: str) -> float:
    """Masks one position after the other."""
    total = 0.0
    ids, positions = sequence(sentence)
    for position in positions:
        masked = [*ids[:position], WORDS.mask_id, *ids[position + 1 :]]
        logits = head(hidden(encoder, masked), tf.constant([[position]]))[0, 0]
        total += log_softmax(np.asarray(logits, np.float64))[ids[position]]
    return total


def self_critic(encoder, head, sentence: str) -> float:
    """Equations 4 and 7 of SCRIPT."""
    total = 0.0
    weights = head.embeddings.word_embeddings, head.output_bias
    table, bias = (np.asarray(x, np.float64) for x in weights)
    ids, positions = sequence(sentence)
    states = np.asarray(head.norm(head.transform(hidden(encoder, ids))), np.float64)[0]
    for position in positions:
        scores = table @ states[position] + bias
        replaced = 1 / (1 + np.exp(scores).sum())
        total += np.log(1 - replaced)
    return total


def causal(encoder, head, sentence: str) -> float:
    """The chain rule; the first piece follows [CLS]."""
    ids, positions = sequence(sentence)
    log_probs = np.asarray(head(hidden(encoder, ids)))[0]
    return sum(float(log_probs[position - 1, ids[position]]) for position in positions)


def discriminator_heuristic(encoder, head, sentence: str) -> float:
    """Minus the logits of "was replaced"."""
    ids, positions = sequence(sentence)
    logits = np.asarray(head(hidden(encoder, ids)))[0]
    return -sum(float(logits[position]) for position in positions)


TRANSCRIPTIONS = {
    own.__name__: own
    for own in (pseudo_log_likelihood, self_critic, causal, discriminator_heuristic)
}


@pytest.mark.parametrize(("name", "method", "networks"), METHODS)
def test_methods_are_their_transcriptions(tmp_path, name, method, networks):
    overrides = {"causal": True} if name == "causal_lm" else {}
    objective = pretrained(tmp_path, objective=name, overrides=overrides)
    scorer = convbert.load(tmp_path, scoring_method=method)
    found = scorer.score(SENTENCES)
    assert scorer.description["scoring_method"] == method
    networks = [getattr(objective, network) for network in networks]
    expected = [TRANSCRIPTIONS[method](*networks, sentence) for sentence in SENTENCES]
    np.testing.assert_allclose(found.score, expected, rtol=1e-6, atol=1e-4)
    lengths = [len(pieces_of(sentence)) for sentence in SENTENCES]
    assert found.num_pieces.tolist() == [min(length, ROOM) for length in lengths]
    assert found.truncated.tolist() == [length > ROOM for length in lengths]
    assert found.num_words.tolist() == [len(s.split()) for s in SENTENCES]
    assert any(found.truncated)
    assert sum(found.num_unknown) == 1


def test_what_cannot_score_is_rejected(tmp_path):
    """A checkpoint without heads, as that of a conversion may be, is named."""
    pretrained(tmp_path / "bare", objective="self_critic", parts=["encoder"])
    pretrained(tmp_path / "whole", objective="self_critic")
    for name, method in (("bare", "self_critic"), ("whole", "causal")):
        with rejects(tmp_path / name, method):
            convbert.load(tmp_path / name, scoring_method=method)
    fine_tuned(tmp_path / "tuned", task("classification"), num_hidden_layers=1)
    with rejects("score"):
        convbert.load(tmp_path / "tuned").client("score")
