"""analysis.view: what the page holds, and what it does in headless Chromium (marker `browser`)."""

import base64
import hashlib
import html.parser
import json
import re

import numpy as np
import pytest
import tensorflow as tf

from convbert.analysis import view
from convbert.analysis.attention import maps_of
from convbert.common.errors import InputError
from convbert.data.vocabulary import SPECIAL_TOKENS, Vocabulary
from convbert.pretrain.load import load_encoder
from tests.analysis.browser_support import CHROMIUM, Browser
from tests.serving.support import fine_tuned, pretrained, task

# With tokens that would end the element that holds the data, or mean a part of the template.
WORDS = ("</script>", "<!--", "&amp;", '"', "{{summary}}", *(f"w{i}" for i in range(40)))


def vocabulary():
    pieces = {character: None for word in WORDS for character in word}
    return Vocabulary(tuple(dict.fromkeys((*SPECIAL_TOKENS, *WORDS, *pieces))))


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """ConvBERT with all networks, and a fine-tuned BERT."""
    folder = tmp_path_factory.mktemp("view")
    pretrained(folder / "conv", vocabulary(), overrides={"num_hidden_layers": 3})
    own = task("classification", labels=("bad", "good"))
    fine_tuned(folder / "bert", own, vocabulary(), token_mixer="attention", num_hidden_layers=2)
    return folder


@pytest.fixture(scope="module")
def looked(models):
    pair = "w1 w2 w3 w9", "w4 w5"
    return [view.look(str(models / name), *pair) for name in ("conv", "bert")]


class Page(html.parser.HTMLParser):
    """Elements with their attributes, and the texts of each kind of element."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.texts, self._open = [], {}, [None]
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag != "meta":
            self._open.append(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        self.texts.setdefault(self._open[-1], []).append(data)


def features_of(model):
    """The features of `[CLS] w1 w2 w3 w9 [SEP] w4 w5 [SEP]`."""
    ids = np.array([[vocabulary().ids[token] for token in model["tokens"]]], np.int32)
    segments = (np.arange(ids.size) > 5).astype(np.int32)[None]
    return {"input_ids": ids, "input_mask": np.ones_like(ids), "segment_ids": segments}


def test_numbers_equal_a_forward_pass(models, looked):
    for model, name in zip(looked, ("conv", "bert")):
        assert model["tokens"][5] == "[SEP]"
        features = features_of(model)
        encoder = load_encoder(str(models / name))
        maps = maps_of(encoder, features["input_ids"], features["segment_ids"])
        kernels = [layer[0].transpose(1, 0, 2) for layer in maps.kernels]
        for key, layers in (("attention", [x[0] for x in maps.attention]), ("kernels", kernels)):
            if not layers:
                assert model[key] is None
                continue
            packed = np.frombuffer(base64.b64decode(model[key]), np.uint8)
            assert layers[0].shape[0] == model["heads"]
            np.testing.assert_allclose(packed / 255, np.ravel(layers), atol=1 / 255)


def test_predictions_are_those_of_the_networks(models, looked):
    conv, bert = looked
    assert (bert["replaced"], bert["candidates"]) == (None, None)
    model = view.load_model_directory(str(models / "conv"))
    features = features_of(conv)
    offers = {offer.name: networks for offer, networks in model.offers.items()}
    encoder, head = offers["replaced_tokens"]
    logits = head(encoder(features).sequence)[0]
    np.testing.assert_allclose(conv["replaced"], tf.sigmoid(logits), atol=6e-4)
    features["input_ids"][0, 3] = vocabulary().mask_id
    generator, head = offers["masked_tokens"]
    shares = tf.nn.softmax(head(generator(features).sequence, np.array([[3]])))[0, 0].numpy()
    expected = [[vocabulary().tokens[i], shares[i]] for i in np.argsort(-shares)[:5]]
    assert [token for token, _ in conv["candidates"][3]] == [token for token, _ in expected]
    found, shares = ([share for _, share in of] for of in (conv["candidates"][3], expected))
    np.testing.assert_allclose(found, shares, atol=6e-4)
    assert [bool(found) for found in conv["candidates"]] == [not own for own in conv["special"]]


def test_the_page_needs_nothing_else_and_escapes_tokens(looked):
    tokens = ["[CLS]", *WORDS[:5], *looked[0]["tokens"][6:]]
    model = {**looked[0], "tokens": tokens, "replaced": [1.0] * len(tokens)}
    text = view.page([model, looked[1]])
    found = Page(text)
    tags = [tag for tag, _ in found.elements]
    assert tags.count("script") == 2
    assert not {"link", "img", "iframe", "object", "base"} & set(tags)
    for _, attributes in found.elements:
        assert not {"src", "href", "action", "srcset", "style"} & set(attributes)
        assert not any(name.startswith("on") for name in attributes)
    data, source = found.texts["script"]
    assert json.loads(data)[0]["tokens"] == tokens
    (style,) = found.texts["style"]
    for call in ("fetch", "XMLHttpRequest", "import", "innerHTML", "eval", "url("):
        assert call not in source + style
    policy = next(a["content"] for _, a in found.elements if a.get("http-equiv"))
    assert policy.startswith("default-src 'none'; ")
    for kind, content in (("script", source), ("style", style)):
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert " ".join(tokens) in found.texts["p"]  # the summary, without JavaScript
    assert len(found.texts["td"]) == 3 * (3 + 2)  # of each layer: distance, C, C without special


def test_the_command_gives_the_same_bytes(models, tmp_path, capsys):
    line = ["--model_dir", models / "bert", "--compare", models / "bert", "--text", "w1 " * 40]
    pages = []
    for name in ("a.html", "b.html"):
        view.main(["view", *map(str, line), "--output", str(tmp_path / name)])
        pages.append((tmp_path / name).read_bytes())
    assert pages[0] == pages[1]
    assert len(json.loads(Page(pages[0].decode()).texts["script"][0])) == 2
    assert "cut to 24 tokens" in capsys.readouterr().err


@pytest.mark.parametrize("texts", [("",), ("w1", "  "), ("\ud800",)])
def test_empty_texts_are_rejected(models, texts):
    with pytest.raises(InputError):
        view.look(str(models / "conv"), *texts)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if not CHROMIUM:
        pytest.skip("there is no Chromium")
    with Browser(tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture
def opened(browser, looked, tmp_path):
    """Opens the page of both models, at a fragment; the page must have no errors in the end."""
    path = tmp_path / "page.html"
    path.write_text(view.page(looked))
    browser.errors.clear()
    yield lambda fragment="", go=browser.open: go(f"file://{path}{fragment}")
    assert browser.errors == []


def state(browser):
    """Layer, head and token in the address, in the grid of the first model, in its tokens."""
    cells = "document.querySelectorAll('[role=gridcell][aria-selected=true]')"
    layer, head = browser.evaluate(f"(c => [c.dataset.layer, c.dataset.head])({cells}[0])")
    options = "[...document.querySelectorAll('[role=listbox]')[0].children]"
    token = browser.evaluate(f"{options}.findIndex(o => o.ariaSelected === 'true') + 1")
    address = re.findall(r"=(\w+)", browser.evaluate("location.hash"))
    assert address == [layer, head if head != "0" else "mean", str(token)]
    assert browser.evaluate("document.getElementById('chosen').textContent").startswith(
        f"Layer {layer}, {f'head {head}' if head != '0' else 'mean of heads'}, token {token} "
    )
    return int(layer), int(head), token


@pytest.mark.browser
def test_a_deep_link_selects(browser, opened):
    opened()
    assert state(browser) == (1, 1, 1)
    opened("#layer=3&head=2&token=5")
    assert state(browser) == (3, 2, 5)
    browser.evaluate(
        "location.hash = '#layer=2&head=mean&token=900'; new Promise(requestAnimationFrame)"
    )
    assert state(browser) == (2, 0, 9)
    opened("#layer=x&head=-4&token=")
    assert state(browser) == (1, 0, 1)


@pytest.mark.browser
def test_a_walk_with_the_keyboard(browser, opened):
    """Tab reaches the grid, then the tokens; arrows move in them, and not beyond their ends."""
    opened()
    browser.press("Tab")
    for key in ("ArrowDown", "ArrowRight", "ArrowDown", "ArrowDown", "ArrowUp"):
        browser.press(key)
    assert state(browser) == (2, 2, 1)
    browser.press("Home")
    browser.press("ArrowLeft")
    assert state(browser) == (2, 0, 1)
    browser.press("Tab")
    for key in ("ArrowLeft", "ArrowRight", "ArrowRight"):
        browser.press(key)
    assert state(browser) == (2, 0, 3)
    browser.press("End")
    assert state(browser) == (2, 0, 9)
    focused = "document.activeElement.getAttribute('aria-activedescendant')"
    assert browser.evaluate(focused) == "token-0-9"


@pytest.mark.browser
def test_the_numbers_of_the_page(browser, opened, looked):
    opened("#layer=2&head=1&token=3")
    model = looked[0]
    shape = (model["layers"], model["heads"], len(model["tokens"]), -1)
    for kind in ("attention", "kernels"):
        packed = np.frombuffer(base64.b64decode(model[kind]), np.uint8).reshape(shape) / 255
        found = browser.evaluate(f"[...weights(models[0], '{kind}', 3)]")
        np.testing.assert_allclose(found, packed[1, 0, 2])
        found = browser.evaluate(f"[...weights(models[0], '{kind}', 3, 0)]")
        np.testing.assert_allclose(found, packed[1, :, 2].mean(0))
    found = browser.evaluate("[...shareByOffset(models[0], 1)]")
    offsets = np.subtract.outer(np.arange(9), np.arange(9))  # of the attending token
    packed = np.frombuffer(base64.b64decode(model["attention"]), np.uint8).reshape(shape) / 255
    expected = [packed[1, 0][offsets == -o].sum() / 9 for o in range(-16, 17)]
    np.testing.assert_allclose(found, [*expected, 0])


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_large_page_loads_in_two_seconds(browser, tmp_path, scheme):
    """12 layers of 12 heads and 128 tokens, and as much convolution."""
    browser.errors.clear()
    L = N = 12
    S, K = 128, 9
    draw = np.random.default_rng(0)
    maps = draw.dirichlet(np.full(S, 0.1), [L, N, S])
    kernels = draw.dirichlet(np.ones(K), [L, N, S])
    model = {"name": "large", "trained": "nothing", "layers": L, "heads": N, "truncated": False}
    model |= {"tokens": [f"token{i}" for i in range(S)], "special": [False] * S}
    model |= {"taps": list(range(-4, 5)), "distance": draw.uniform(1, 40, [L, N]).tolist()}
    model |= {"attention": view.packed(list(maps)), "kernels": view.packed(list(kernels))}
    model |= {"concentration": [[1.0, 1.0]] * L, "replaced": draw.uniform(0, 1, S).tolist()}
    model["candidates"] = [[("other", 0.5)] * 5] * S
    path = tmp_path / "large.html"
    path.write_text(view.page([model]))
    assert path.stat().st_size < 5e6
    scheme = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.call("Emulation.setEmulatedMedia", features=scheme)
    assert browser.open(f"file://{path}#layer=12&head=12&token=128") < 2
    assert state(browser) == (12, 12, 128)
    assert browser.errors == []


@pytest.mark.browser
def test_without_javascript_the_summary_is_shown(browser, opened):
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        opened(go=browser.navigate)
        root = browser.call("DOM.getDocument")["root"]["nodeId"]
        for selector in ("noscript p", "#summary td"):
            found = browser.call("DOM.querySelector", nodeId=root, selector=selector)
            box = browser.call("DOM.getBoxModel", nodeId=found["nodeId"])  # raises if it is hidden
            assert box["model"]["height"] > 0
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)
