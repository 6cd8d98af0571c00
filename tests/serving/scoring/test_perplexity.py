"""Perplexity in blocks and windows against a forward pass for each token."""

import itertools
import json
import math
import types

import numpy as np
import pytest
import tensorflow as tf

from convbert.data.tokenizers import create_tokenizer
from convbert.data.vocabulary import SPECIAL_TOKENS, Vocabulary
from convbert.serving.scoring import perplexity_model
from convbert.serving.scoring.perplexity_model import CausalModel, corpus_text
from tests.command_support import import_command
from tests.finetune.kinds_support import rejects
from tests.serving.support import pretrained

S = 24  # of the model's sequences
TEXT = "the city was born\n\nwho the odd citys ? the was\n" * 3
NAMES = ["the", "city", "was", "born", "who", "?", "##s"]
WHOLE = ("[PAD]", "<unk>", "<eos>", "[MASK]", *NAMES[:-1])
VOCABULARIES = {"words": Vocabulary(WHOLE, False, False, tokenizer="words")}
VOCABULARIES["wordpiece"] = Vocabulary((*SPECIAL_TOKENS, *NAMES))


@pytest.fixture(scope="module", params=list(VOCABULARIES))
def model(request, tmp_path_factory):
    """A causal model and a text: files and tokens; a forward pass of ids [1, t] to [1, V]."""
    vocabulary = VOCABULARIES[request.param]
    folder = tmp_path_factory.mktemp(request.param)
    settings = {"objective": "causal_lm", "overrides": {"causal": True}}
    objective = pretrained(folder / "model", vocabulary, **settings)
    (folder / "text.txt").write_text(TEXT)
    ids, splits = create_tokenizer(vocabulary).tokenize(TEXT.split("\n")[:-1])
    stream = []
    for first, end in itertools.pairwise(splits):
        stream += [*ids[first:end].tolist(), vocabulary.sep_id]

    @tf.function(
        input_signature=[tf.TensorSpec([1, None], tf.int32)]
    )  # of one length, as each is compiled
    def forward(ids):
        features = {"input_ids": tf.pad(ids, [[0, 0], [0, S - tf.shape(ids)[1]]])}
        features["input_mask"] = tf.cast(tf.range(S) < tf.shape(ids)[1], tf.int32)[None]
        features = {name: tf.ensure_shape(value, [1, S]) for name, value in features.items()}
        hidden = objective.encoder(features).sequence
        return objective.head(hidden[:, tf.shape(ids)[1] - 1])

    return types.SimpleNamespace(
        folder=str(folder / "model"),
        vocabulary=vocabulary,
        text=str(folder / "text.txt"),
        stream=stream,
        forward=forward,
        loaded=CausalModel(str(folder / "model")),
    )


def direct(model, context: int, stride: int) -> np.ndarray:
    """-log p of each token by a forward pass of its own over what it may see."""
    vocabulary, stream, found = model.vocabulary, model.stream, []
    for place, token in enumerate(stream):
        first = place - place % stride  # of the new tokens of its window
        start = max(0, first - context)
        before = vocabulary.cls_id
        if vocabulary.tokenizer == "words" and start:
            before = stream[start - 1]
        seen = [before, *stream[start:place]]
        scores = model.forward(tf.constant([seen])).numpy()[0].astype(np.float64)
        assert np.exp(scores).sum() == pytest.approx(1, abs=1e-4)
        found.append(-scores[token])
    return np.array(found)


@pytest.mark.parametrize(
    "context",
    [0, 9, pytest.param(S - 2, marks=pytest.mark.slow)],  # a pass each
)
def test_losses_are_those_of_a_pass_for_each_token(model, context):
    found = corpus_text(model.text, "language_model", model.folder)
    assert found.stream.tolist() == model.stream
    assert found.unknown_tokens == model.stream.count(model.vocabulary.unk_id) > 0
    assert found.words == len(TEXT.split()) + TEXT.count("\n")
    losses = model.loaded.token_losses(found.stream, context, batch_size=3)
    np.testing.assert_allclose(losses, direct(model, context, S - 1 - context), atol=2e-4)


@pytest.fixture
def command(monkeypatch):
    """serving.scoring.perplexity with flags of its own."""
    module, own = import_command(monkeypatch, "convbert.serving.scoring.perplexity")
    own([""])
    return module


def given(command, **flags):
    for name, value in flags.items():
        setattr(command.FLAGS, name, value)


def test_the_report(model, command, tmp_path, capsys, monkeypatch):
    stream, output = model.stream, tmp_path / "report.json"
    monkeypatch.setattr(perplexity_model, "CausalModel", lambda folder: model.loaded)
    given(command, model_dir=model.folder, corpus=model.text, batch_size=3, output=str(output))
    command.main([""])
    found = json.loads(output.read_text())
    assert found["protocol"].items() >= {"context": 0, "stride": S - 1}.items()
    assert found["perplexity"] == pytest.approx(math.exp(found["nats"] / len(stream)))
    words = len(TEXT.split()) + TEXT.count("\n")
    assert found["perplexity_per_word"] == pytest.approx(math.exp(found["nats"] / words))
    assert (model.vocabulary.tokenizer == "words") == (words == len(stream))
    assert f"{found['perplexity']:.2f} of {len(stream)} tokens" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ({}, "--model_dir"),
        ({"model_dir": "MODEL"}, "--corpus"),
        ({"model_dir": "MODEL", "corpus": "absent.txt"}, "absent.txt"),
        ({"model_dir": "absent", "corpus": "TEXT"}, "absent"),
        ({"model_dir": "MODEL", "corpus": "TEXT", "context": S - 1}, "--context"),
        ({"model_dir": "BERT", "corpus": "TEXT"}, "BERT"),
    ],
)
def test_flags_that_cannot_be_right_are_named(model, command, flags, named, tmp_path):
    paths = {"MODEL": model.folder, "TEXT": model.text, "BERT": str(tmp_path / "BERT")}
    if "BERT" in flags.values():
        pretrained(tmp_path / "BERT", objective="masked_lm")
    given(command, **{name: paths.get(value, value) for name, value in flags.items()})
    with rejects(named):
        command.main([""])
