"""Scores of every method against transcriptions that take one sentence, and one mask, at a time."""

import dataclasses
import functools
from typing import ClassVar

import numpy as np
import pytest
import tensorflow as tf

import convbert
from convbert.common.errors import InputError
from convbert.data.vocabulary import Vocabulary
from convbert.pretrain import objectives
from convbert.pretrain.objectives import ScoringMethod
from convbert.pretrain.objectives.masked_lm import MaskedLMSettings
from tests.serving.scoring import support
from tests.serving.scoring.support import SENTENCES
from tests.serving.support import fine_tuned, pretrained, task

ROOM = 22  # of sequences of 24 tokens
# Objective, method, and the networks by which the objective computes it.
METHODS = [
    ("self_critic", "self_critic", ("encoder", "head")),
    pytest.param(
        *("self_critic", "pseudo_log_likelihood", ("encoder", "head")),
        marks=pytest.mark.slow,  # another pass per piece
    ),
    ("causal_lm", "causal", ("encoder", "head")),
    ("replaced_token_detection", "discriminator_heuristic", ("encoder", "head")),
    pytest.param(
        *("replaced_token_detection", "pseudo_log_likelihood", ("generator", "generator_head")),
        marks=pytest.mark.slow,  # another pass per piece
    ),
]


class Models:
    """Models by objective, and their scorers."""

    def __init__(self, folder):
        self._folder = folder
        self.model = functools.cache(self._model)
        self.scorer = functools.cache(self._scorer)

    def _model(self, name):
        """Model directory and objective."""
        settings = {"overrides": {"causal": True}} if name == "causal_lm" else {}
        if name == "replaced_token_detection":
            settings = {"generator_hidden_size": 0.5}
        folder = self._folder / name
        return str(folder), pretrained(folder, objective=name, **settings)

    def _scorer(self, name, method):
        return convbert.load(self.model(name)[0], scoring_method=method)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return Models(tmp_path_factory.mktemp("scored"))


def transcribed(models, name, method, networks):
    networks = [getattr(models.model(name)[1], network) for network in networks]
    return [getattr(support, method)(*networks, sentence, ROOM) for sentence in SENTENCES]


@pytest.mark.parametrize(("name", "method", "networks"), METHODS)
def test_methods_are_their_transcriptions(models, name, method, networks):
    scorer = models.scorer(name, method)
    found = scorer.score(SENTENCES)
    assert scorer.description["scoring_method"] == method
    expected = transcribed(models, name, method, networks)
    np.testing.assert_allclose(found.score, expected, rtol=1e-6, atol=1e-4)
    lengths = [len(support.pieces_of(sentence)) for sentence in SENTENCES]
    assert found.num_pieces.tolist() == [min(length, ROOM) for length in lengths]
    assert found.truncated.tolist() == [length > ROOM for length in lengths]
    assert found.num_words.tolist() == [len(s.split()) for s in SENTENCES]
    assert any(found.truncated)
    assert sum(found.num_unknown) == 1


@pytest.mark.slow
def test_a_causal_model_of_words_scores_the_end_of_a_line(tmp_path):
    """And unknown words; a line is begun after <eos>, too. The line of no words has a score."""
    names = ("[PAD]", "<unk>", "<eos>", "[MASK]", *["the", "city", "was", "born", "?"])
    words = Vocabulary(names, do_lower_case=False, strip_accents=False, tokenizer="words")
    built = pretrained(tmp_path, words, objective="causal_lm", overrides={"causal": True})
    sentences = ["the city was born", "The cities\u00a0was <eos>", ""]
    found = convbert.load(tmp_path).score(sentences)
    for sentence, one in zip(sentences, found):
        ids = [*(words.ids.get(word, words.unk_id) for word in sentence.split()), words.sep_id]
        log_probs = np.asarray(built.head(support.hidden(built.encoder, [words.cls_id, *ids])))[0]
        total = sum(float(log_probs[i, ids[i]]) for i in range(len(ids)))
        assert one.score == pytest.approx(total, rel=1e-6, abs=1e-4)
        assert (one.num_pieces, one.num_words) == (len(ids), len(sentence.split()))
    assert sum(found.num_unknown) == 2


@pytest.mark.parametrize(
    "method",
    ["self_critic", pytest.param("pseudo_log_likelihood", marks=pytest.mark.slow)],
)
def test_a_score_does_not_depend_on_the_others(models, method):
    """In requests of several parts, too: forty sentences have more tokens than one has."""
    scorer = models.scorer("self_critic", method)
    together = scorer.score(SENTENCES * 8)
    for number, sentence in enumerate(SENTENCES):
        alone = scorer.score(sentence)
        for found in together[number :: len(SENTENCES)]:
            assert found.score == pytest.approx(alone.score, abs=1e-4)
            assert found.num_pieces == alone.num_pieces
    nothing = scorer.score(["", "  ", "\x00"])
    assert [*nothing.score, *nothing.num_pieces] == [0] * 6


def test_what_cannot_score_is_rejected(models, tmp_path):
    """A checkpoint without heads, as that of a conversion may be, is named."""
    pretrained(tmp_path / "bare", objective="self_critic", parts=["encoder"])
    with pytest.raises(InputError) as error:
        convbert.load(tmp_path / "bare", scoring_method="self_critic")
    assert str(tmp_path / "bare") in str(error.value)
    fine_tuned(tmp_path / "tuned", task("classification"), num_hidden_layers=1)
    bad = ((models.model("self_critic")[0], "causal"), (tmp_path / "tuned", None))
    for folder, method in bad:
        with pytest.raises(InputError):
            convbert.load(folder, scoring_method=method).client("score")


def test_a_method_of_an_objective_from_outside(tmp_path, monkeypatch):
    """It comes before its parent's."""
    registry = objectives.base._REGISTRY
    monkeypatch.setattr(registry, "_entries", dict(registry._entries))

    def of_ids(features, encode, head):
        assert encode(features).sequence.shape[-1] == head.transform.kernel.shape[0]
        return -0.25 * tf.cast(features["input_ids"], tf.float32)

    @dataclasses.dataclass(frozen=True)
    class OwnSettings(MaskedLMSettings):
        name: ClassVar[str] = "own"

        scoring_methods: ClassVar[tuple] = (
            ScoringMethod("by_ids", ("encoder", "head"), of_ids),
            *MaskedLMSettings.scoring_methods,
        )

    objectives.register(OwnSettings)
    pretrained(tmp_path, objective="own")
    scorer = convbert.load(tmp_path)
    assert scorer.description["scoring_method"] == "by_ids"
    expected = [-0.25 * sum(support.pieces_of(sentence)[:ROOM]) for sentence in SENTENCES]
    assert scorer.score(SENTENCES).score.tolist() == expected
