"""Answers of pre-trained models, causal ones too, against their networks called eagerly."""

import numpy as np
import pytest
import tensorflow as tf

import convbert
from convbert.common.errors import InputError
from convbert.data.tokenization import Tokenizer
from convbert.data.vocabulary import Vocabulary
from convbert.serving.description import options_of
from convbert.serving.export import export
from convbert.serving.load import load_model_directory, signatures
from convbert.serving.records import Record
from tests.damage_support import edit
from tests.serving.support import WORDS, pretrained

TEXTS = ["the city was born", "", "who? " * 30, "[MASK] born in [MASK]", "a [MASK][MASK]b", "[MASK"]
BAD = [b"", b"\xff[MASK]\xfe", b"\x00[MASK]", b"[MASK] " * 15_000, b"the " * 25_000]


@pytest.fixture
def electra(saved):
    return saved.network("pretraining"), saved.loaded("pretraining").signatures


def features_of(pieces: list[int], S: int) -> dict[str, tf.Tensor]:
    """A row [CLS] pieces [SEP], padded."""
    ids = [WORDS.cls_id, *pieces, WORDS.sep_id]
    row = np.zeros([1, S], np.int32)
    row[0, : len(ids)] = ids
    mask = (np.arange(S) < len(ids)).astype(np.int32)[None]
    values = (row, mask, np.zeros_like(row))
    return dict(zip(("input_ids", "input_mask", "segment_ids"), map(tf.constant, values)))


def tokenized(text: str) -> list[int]:
    """Ids of a text in which [MASK] is a piece."""
    ids = []
    for number, part in enumerate(text.split("[MASK]")):
        ids += [WORDS.mask_id] * (number > 0)
        ids += Tokenizer(WORDS).tokenize([part])[0].tolist()
    return ids


UNSAID = {"max_seq_length": None}


@pytest.mark.parametrize(
    ("converted", "asked", "length"),
    [
        *((None, None, 24), ({"max_seq_length": 16}, None, 24), ({}, None, 64)),
        *((UNSAID, None, 64), (UNSAID, 20, 20)),
    ],
)
def test_how_long_rows_may_be(tmp_path, converted, asked, length):
    """A converted model may not say the length of its training."""
    pretrained(tmp_path, parts=["encoder"])
    if converted is not None:
        edit("hparams.json:run_settings", converted={"source": "tf1", **converted})(tmp_path)
    model = load_model_directory(str(tmp_path), max_seq_length=asked)
    assert model.max_seq_length == length


def test_replaced_tokens(electra):
    objective, asked = electra
    found = asked["replaced_tokens"](tf.constant(TEXTS))
    for index, text in enumerate(TEXTS):
        ids = Tokenizer(WORDS).tokenize([text])[0].tolist()
        assert bool(found["truncated"][index]) == (len(ids) > 22)
        features = features_of(ids[:22], 24)
        logits = objective.head(objective.encoder(features).sequence)[0].numpy()
        n = int(found["num_pieces"][index])
        assert n == len(ids[:22]) + 2
        expected = 1 / (1 + np.exp(-logits[:n]))
        np.testing.assert_allclose(found["probabilities"][index, :n], expected, rtol=0, atol=1e-5)
        pieces = ["[CLS]", *(WORDS.tokens[i] for i in ids[:22]), "[SEP]"]
        assert [piece.decode() for piece in found["pieces"][index, :n].numpy()] == pieces
        assert not found["probabilities"][index, n:].numpy().any()


def test_masked_tokens(electra):
    objective, asked = electra
    found = asked["masked_tokens"](tf.constant(TEXTS))
    assert found["num_masks"].numpy().tolist() == [0, 0, 0, 2, 2, 0]
    assert found["candidates"].shape == [6, 2, 10]
    for index, text in enumerate(TEXTS):
        ids = tokenized(text)[:22]
        features = features_of(ids, 24)
        places = [place + 1 for place, i in enumerate(ids) if i == WORDS.mask_id]
        states = objective.generator(features).sequence
        for number, place in enumerate(places):
            logits = objective.generator_head(states, tf.constant([[place]]))[0, 0]
            expected = tf.sort(tf.nn.softmax(logits), direction="DESCENDING")[:10]
            given = found["probabilities"][index, number]
            np.testing.assert_allclose(given, expected, rtol=0, atol=1e-5)
            best = found["candidates"][index, number, 0].numpy().decode()
            assert best == WORDS.tokens[int(tf.argmax(logits))]
        assert not any(found["candidates"][index, len(places) :].numpy().ravel())
        assert not found["probabilities"][index, len(places) :].numpy().any()
    found = asked["masked_tokens"](tf.constant(BAD))  # odd bytes, and masks beyond the limit
    assert found["num_masks"].numpy().tolist() == [0, 1, 1, 22, 0]
    assert found["truncated"].numpy().tolist() == [False, False, False, True, True]


def test_token_ids(electra):
    objective, asked = electra
    features = features_of(tokenized("the city"), 9)
    found = asked["token_ids"](**features)
    states = objective.encoder(features).sequence
    np.testing.assert_allclose(found["tokens"][0, :4], states[0, :4], rtol=0, atol=1e-5)
    logits = objective.head(states)
    np.testing.assert_allclose(found["replaced"], tf.sigmoid(logits), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("hparams", "parts", "expected"),
    [
        ({}, ("encoder",), set()),
        ({}, ("encoder", "head"), {"replaced_tokens"}),
        ({}, ("encoder", "generator", "generator_head"), {"masked_tokens"}),
        ({"untied_generator": False}, None, {"replaced_tokens", "masked_tokens"}),
        ({"objective": "masked_lm"}, None, {"masked_tokens"}),
    ],
)
def test_signatures_are_those_the_checkpoint_has_networks_for(tmp_path, hparams, parts, expected):
    objective = pretrained(tmp_path, parts=parts, **hparams)
    found = signatures(load_model_directory(str(tmp_path)))
    expected |= {"score"} if expected else set()  # each of these networks has a scoring method
    assert set(found) == {"serving_default", "embeddings", "token_ids"} | expected
    if "masked_tokens" in expected and parts is None:
        encoder = objective.encoder
        head = getattr(objective, "generator_head", objective.head)
        ids = tokenized("the [MASK]")
        logits = head(encoder(features_of(ids, 4)).sequence, tf.constant([[2]]))
        answer = found["masked_tokens"].trace()(tf.constant(["the [MASK]"]))
        found, expected = answer["probabilities"][0, 0, 0], tf.nn.softmax(logits)
        np.testing.assert_allclose(found, tf.reduce_max(expected), atol=1e-5)


PROMPTS = ["the city was born", "", "who? " * 30, "\xff the"]
OPTIONS = {"num_tokens": 4, "temperature": 0.8, "top_k": 9, "seed": 3}
DTYPES = {"num_tokens": tf.int32, "top_k": tf.int32, "seed": tf.int32}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("causal")
    pretrained(folder, objective="causal_lm", overrides={"causal": True})
    return load_model_directory(str(folder))


@pytest.fixture(scope="module")
def causal(model):
    return {name: signatures(model)[name].trace() for name in ("continue_text", "score")}


def ask(graphs, texts, **changes):
    options = {
        name: tf.fill([len(texts)], tf.cast(value, DTYPES.get(name, tf.float32)))
        for name, value in {**OPTIONS, **changes}.items()
    }
    found = graphs["continue_text"](text=tf.constant(texts, tf.string), **options)
    return {name: value.numpy() for name, value in found.items()}


def most_probable(model, words, ids, most):
    """Pieces after some ids, each the best after those before it, and their log-probabilities."""
    ((encoder, head),) = model.offers.values()
    ids, pieces, log_probs = [*ids], [], []
    while len(pieces) < most:
        scores = head(encoder({"input_ids": tf.constant([ids])}).sequence)[0, -1].numpy()
        scores[list({words.pad_id, words.cls_id, words.mask_id} - {words.sep_id})] = -99
        ids.append(int(np.argmax(scores)))
        if ids[-1] == words.sep_id:
            break
        pieces.append(words.tokens[ids[-1]])
        log_probs.append(scores[ids[-1]])
    return pieces, log_probs


def test_continuations_are_the_most_probable_pieces(model, causal):
    names = {"serving_default", "embeddings", "token_ids", "continue_text", "score"}
    assert set(signatures(model)) == names
    found = ask(causal, PROMPTS, temperature=0.0)
    for i, text in enumerate(PROMPTS):
        prompt = Tokenizer(WORDS).tokenize([text])[0].tolist()
        kept = prompt[max(0, len(prompt) - (24 - 1 - OPTIONS["num_tokens"])) :]
        assert found["truncated"][i] == (len(kept) < len(prompt))
        pieces, log_probs = most_probable(model, WORDS, [WORDS.cls_id, *kept], 4)
        count = found["num_pieces"][i]
        assert [piece.decode() for piece in found["pieces"][i][:count]] == pieces
        np.testing.assert_allclose(found["log_probs"][i][:count], log_probs, atol=1e-4)
        assert found["continuation"][i].decode() == " ".join(pieces).replace(" ##", "")


def test_an_answer_does_not_depend_on_the_others(causal):
    together = ask(causal, PROMPTS)
    for i, text in enumerate(PROMPTS):
        alone = ask(causal, [text])
        assert alone["continuation"][0] == together["continuation"][i]
    assert (
        ask(causal, PROMPTS, seed=4)["continuation"].tolist() != together["continuation"].tolist()
    )
    many = ask(causal, PROMPTS * 100)  # more than a part
    assert many["continuation"].tolist() == together["continuation"].tolist() * 100
    assert ask(causal, [])["pieces"].shape[0] == 0
    assert causal["score"](text=tf.constant([], tf.string))["score"].shape == [0]
    # By equal numbers, continuations of any two would be alike: here all pieces are as likely.
    texts, uniform = ["the city", "was born", "the city"], {"temperature": 1e6, "top_k": 0}
    one, other, again = ask(causal, texts, **uniform)["pieces"].tolist()
    assert one == again != other


@pytest.mark.parametrize(
    ("name", "value"), [("num_tokens", 24), ("temperature", np.inf), ("top_k", -1)]
)
def test_options_out_of_range_are_named(causal, name, value):
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"`{name}`"):
        ask(causal, ["the"], **{name: value})


TOKENS = ("[PAD]", "<unk>", "<eos>", "[MASK]", "the", "city", "was", "born", "?", "##s")
LINES = Vocabulary(TOKENS, do_lower_case=False, strip_accents=False, tokenizer="words")


@pytest.mark.slow  # exports a model
def test_a_vocabulary_of_words_in_the_graph(tmp_path):
    """Words are looked up and written whole; a line is begun after, and ended by, <eos>."""
    overrides = {"causal": True}
    pretrained(tmp_path / "model", LINES, objective="causal_lm", overrides=overrides)
    model = load_model_directory(str(tmp_path / "model"))
    description = export(model, str(tmp_path / "exported"), str(tmp_path / "model"))
    texts = ["the city", "The  was\u00a0born ##s", "", "[MASK] citys"]
    records = [Record(f"line {i}", str(i), {"text": text}) for i, text in enumerate(texts)]
    options = {"num_tokens": 6, "temperature": 0.0}
    exported = convbert.load(tmp_path / "exported")
    rows = exported.client("continue_text", options).rows(records)
    lengths = []
    for text, row in zip(texts, rows):
        known = [LINES.ids.get(word, LINES.unk_id) for word in text.replace("[MASK]", "").split()]
        ids = [LINES.sep_id, *[LINES.unk_id] * ("[MASK]" in text), *known]
        pieces, _ = most_probable(model, LINES, ids, 6)
        assert (row["pieces"], row["continuation"]) == (pieces, " ".join(pieces))
        lengths.append(len(pieces))
    assert min(lengths) < 6  # a line that ended
    assert len(exported.client("embeddings").rows(records[:1])) == 1
    with pytest.raises(InputError):
        exported.client("continue_text", {"num_tokens": 24}).rows(records[:1])
    for given in ({"num_token": 3}, {"num_tokens": "3"}, {"top_k": 1.5}, {"seed": 1 << 31}):
        with pytest.raises(InputError, match=next(iter(given))):
            options_of(description, "continue_text", given)
    with pytest.raises(InputError):
        options_of(description, "embeddings", {"top_k": 1})
