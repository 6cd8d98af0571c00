"""Scores of sentences by transcriptions of each method; rescoring by hand; perplexity by passes."""

import functools
import itertools
import json
import math
import types

import numpy as np
import pytest
import tensorflow as tf
from scipy.special import log_softmax

import convbert
from convbert.common.errors import InputError
from convbert.data.tokenization import Tokenizer
from convbert.data.tokenizers import create_tokenizer
from convbert.data.vocabulary import SPECIAL_TOKENS, Vocabulary
from convbert.serving.scoring import perplexity_model
from convbert.serving.scoring.nbest import NBest, model_scores, read_lists, rescored
from convbert.serving.scoring.perplexity_model import CausalModel, corpus_text
from tests.command_support import import_command, run
from tests.finetune.kinds_support import rejects
from tests.serving.support import WORDS, fine_tuned, pretrained, task

ROOM = 22  # of sequences of 24 tokens
SLOW = pytest.mark.slow  # another pass per piece
OWN, GENERATOR = ("encoder", "head"), ("generator", "generator_head")
LONG = "the city was born in who ? a b c d e f g h " * 3
SENTENCES = ["the city was born", "who?", LONG, "a\u2603 b", LONG[:40], "", "\x00"]


def pieces_of(sentence: str) -> list[int]:
    return Tokenizer(WORDS).tokenize([sentence])[0].tolist()


def sequence(sentence: str):
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


@pytest.mark.parametrize(
    ("name", "method", "networks"),  # objective, method, and the networks by which it computes it
    [
        ("self_critic", "self_critic", OWN),
        pytest.param("self_critic", "pseudo_log_likelihood", OWN, marks=SLOW),
        ("causal_lm", "causal", OWN),
        ("replaced_token_detection", "discriminator_heuristic", OWN),
        pytest.param("replaced_token_detection", "pseudo_log_likelihood", GENERATOR, marks=SLOW),
    ],
)
def test_methods_are_their_transcriptions(tmp_path, name, method, networks):
    overrides = {"causal": True} if name == "causal_lm" else {}
    objective = pretrained(tmp_path, objective=name, overrides=overrides)
    scorer = convbert.load(tmp_path, scoring_method=method)
    found = scorer.score(SENTENCES)
    assert scorer.description["scoring_method"] == method
    networks = [getattr(objective, network) for network in networks]
    expected = [globals()[method](*networks, sentence) for sentence in SENTENCES]
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


# Utterance -> what was said, hypotheses and their scores. The recogniser prefers longer hypotheses
# than were said, the scores below shorter ones.
DEV = {
    "d-1": ("a b c", {"a b c d": -1.0, "a b c": -2.0, "a b": -3.5}),
    "d-2": ("e f", {"e f g": -1.0, "e f": -1.5, "f": -3.0}),
}
TEST = {"t-1": ("i j k", {"i j k l": -1, "i j k": -1.9}), "t-2": ("m n", {"m n": -1, "m": -1.5})}


@pytest.fixture
def files(tmp_path):
    for name, utterances in (("dev", DEV), ("test", TEST)):
        lists = {}
        for utterance, (said, scores) in utterances.items():
            found = [{"score": score, "text": text} for text, score in scores.items()]
            lists[utterance] = {"ref": said, **{f"hyp_{i}": x for i, x in enumerate(found, 1)}}
        (tmp_path / f"{name}.json").write_text(json.dumps(lists))
    texts = [text for _, scores in (DEV | TEST).values() for text in scores]
    rows = [{"text": t, "score": -len(t.split()), "num_pieces": len(t.split())} for t in texts]
    (tmp_path / "scores.jsonl").write_text("".join(json.dumps(row) + "\n\n" for row in rows))
    return tmp_path


def rescore(files, *arguments, scores="", **options):
    lists = [f"--dev={files}/dev.json", f"--test={files}/test.json"]
    scores = scores or f"--scores={files}/scores.jsonl"
    return run("-m", "convbert.serving.scoring.rescore", *lists, scores, *arguments, **options)


def test_a_model_and_a_method_rescore(files):
    """By another method than the model's first."""
    pretrained(files / "model", objective="self_critic")
    method = "pseudo_log_likelihood"
    found = [f"--method={method}", "--lambdas=0,1", f"--output={files}/report.json"]
    rescore(files, *found, scores=f"--model={files}/model")
    dev, test = (read_lists(f"{files}/{name}.json") for name in ("dev", "test"))
    score = functools.partial(model_scores, str(files / "model"), scoring_method=method)
    assert json.loads((files / "report.json").read_text()) == rescored(dev, test, score, [0, 1])


def test_the_weight_of_the_dev_lists_is_applied_to_the_test_lists(files):
    lambdas = "--lambdas=0,0.5,1,1.5,2,2.5,3"
    rescore(files, lambdas, f"--output={files}/report.json")
    report = json.loads((files / "report.json").read_text())
    # At 0.5 two scores of d-2 are equal, at 1 two of d-1, and each time the first is too long; at
    # 1.5 two are equal again, of both, and the first is right; beyond, the shortest are taken.
    rates = [40, 40, 20, 0, 40, 40, 40]
    assert list(report["dev"].values()) == pytest.approx(rates, abs=1e-9)
    assert report["lambda"] == 1.5
    # Of t-2 the shorter text has the higher score then.
    assert report["test"] == pytest.approx({"1-best": 20, "rescored": 20, "oracle": 0})
    assert report["better_by"] == 0


def test_hypotheses_without_words_stay_and_a_missing_score_is_named(files):
    lists = NBest.of(["a"], [["", " "]], [[-1.0, -2.0]])
    assert rescored(lists, lists, lambda texts: pytest.fail("asked"))["test"]["rescored"] == 100.0
    assert "lambda" in rescore(files, "--output=no/where.json", status=1).stdout  # not lost
    (files / "scores.jsonl").write_text('{"text": "a b", "score": -1, "num_pieces": 1}\n')
    done = rescore(files, status=1)
    assert "scores.jsonl" in done.stderr


BAD = [{"hyp_1": {"score": 1, "text": "a"}}, {"ref": "a"}, {"ref": "a", "hyp_1": ["a"]}, []]
for hypothesis in ({"score": math.nan, "text": "a"}, {"score": 1}, {"score": 1, "text": "a\ud800"}):
    BAD.append({"ref": "a", "hyp_1": hypothesis})


@pytest.mark.parametrize("utterance", BAD)
def test_bad_lists_are_named_with_their_utterance(tmp_path, utterance):
    path = tmp_path / "lists.json"
    path.write_text(json.dumps({"u-7": utterance}))
    with pytest.raises(InputError):
        read_lists(str(path))


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

    @tf.function(input_signature=[tf.TensorSpec([1, None], tf.int32)])
    def forward(ids):  # of one length, as each is compiled
        features = {"input_ids": tf.pad(ids, [[0, 0], [0, S - tf.shape(ids)[1]]])}
        features["input_mask"] = tf.cast(tf.range(S) < tf.shape(ids)[1], tf.int32)[None]
        features = {name: tf.ensure_shape(value, [1, S]) for name, value in features.items()}
        hidden = objective.encoder(features).sequence
        return objective.head(hidden[:, tf.shape(ids)[1] - 1])

    found = {"folder": str(folder / "model"), "text": str(folder / "text.txt"), "stream": stream}
    found |= {"loaded": CausalModel(found["folder"]), "vocabulary": vocabulary}
    return types.SimpleNamespace(**found, forward=forward)


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
