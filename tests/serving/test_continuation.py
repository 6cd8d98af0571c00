"""Answers of exported causal language models to the client."""

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
from tests.serving.support import WORDS, pretrained

TEXTS = ["the city was born", "", "who? " * 30, "\xff the"]
OPTIONS = {"num_tokens": 4, "temperature": 0.8, "top_k": 9, "seed": 3}
DTYPES = {"num_tokens": tf.int32, "top_k": tf.int32, "seed": tf.int32}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("causal")
    pretrained(folder, objective="causal_lm", overrides={"causal": True})
    return load_model_directory(str(folder))


@pytest.fixture(scope="module")
def asked(model):
    """Two signatures in the graph."""
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


def test_continuations_are_the_most_probable_pieces(model, asked):
    """Greedy, by the network called eagerly."""
    names = {"serving_default", "embeddings", "token_ids", "continue_text", "score"}
    assert set(signatures(model)) == names
    found = ask(asked, TEXTS, temperature=0.0)
    for i, text in enumerate(TEXTS):
        prompt = Tokenizer(WORDS).tokenize([text])[0].tolist()
        kept = prompt[max(0, len(prompt) - (24 - 1 - OPTIONS["num_tokens"])) :]
        assert found["truncated"][i] == (len(kept) < len(prompt))
        pieces, log_probs = most_probable(model, WORDS, [WORDS.cls_id, *kept], 4)
        count = found["num_pieces"][i]
        assert [piece.decode() for piece in found["pieces"][i][:count]] == pieces
        np.testing.assert_allclose(found["log_probs"][i][:count], log_probs, atol=1e-4)
        assert found["continuation"][i].decode() == " ".join(pieces).replace(" ##", "")


def test_an_answer_does_not_depend_on_the_others(asked):
    together = ask(asked, TEXTS)
    for i, text in enumerate(TEXTS):
        alone = ask(asked, [text])
        assert alone["continuation"][0] == together["continuation"][i]
    assert ask(asked, TEXTS, seed=4)["continuation"].tolist() != together["continuation"].tolist()
    many = ask(asked, TEXTS * 100)  # more than a part
    assert many["continuation"].tolist() == together["continuation"].tolist() * 100
    assert ask(asked, [])["pieces"].shape[0] == 0
    assert asked["score"](text=tf.constant([], tf.string))["score"].shape == [0]


def test_texts_of_one_seed_draw_by_different_numbers(asked):
    """By equal ones, continuations of any two would be alike: here all pieces are as likely."""
    texts, uniform = ["the city", "was born", "the city"], {"temperature": 1e6, "top_k": 0}
    one, other, again = ask(asked, texts, **uniform)["pieces"].tolist()
    assert one == again != other


@pytest.mark.parametrize(
    ("name", "value"), [("num_tokens", 24), ("temperature", np.inf), ("top_k", -1)]
)
def test_options_out_of_range_are_named(asked, name, value):
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"`{name}`"):
        ask(asked, ["the"], **{name: value})


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
    (vectors,) = exported.client("embeddings").rows(records[:1])
    assert vectors
    with pytest.raises(InputError):
        exported.client("continue_text", {"num_tokens": 24}).rows(records[:1])
    for given in ({"num_token": 3}, {"num_tokens": "3"}, {"top_k": 1.5}, {"seed": 1 << 31}):
        with pytest.raises(InputError, match=next(iter(given))):
            options_of(description, "continue_text", given)
    with pytest.raises(InputError):
        options_of(description, "embeddings", {"top_k": 1})
