"""analysis.view: what the page holds, and what it does in headless Chromium (marker `browser`)."""

import base64
import hashlib
import html.parser
import json
import re
import shutil
import subprocess

import numpy as np
import pytest
import tensorflow as tf

from convbert.analysis import view
from convbert.analysis.attention import maps_of
from convbert.common.errors import InputError
from convbert.data.vocabulary import SPECIAL_TOKENS, Vocabulary
from convbert.pretrain.load import load_encoder
from tests.serving.support import fine_tuned, pretrained, task

# With tokens that would end the element that holds the data, or mean a part of the template.
WORDS = ("</script>", "<!--", "&amp;", '"', "{{summary}}", *(f"w{i}" for i in range(40)))


def vocabulary():
    pieces = {character: None for word in WORDS for character in word}
    return Vocabulary(tuple(dict.fromkeys((*SPECIAL_TOKENS, *WORDS, *pieces))))


@pytest.fixture(scope="module")
def models(tmp_path_factory):
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


def test_a_layer_without_attention(looked):
    first, *others = looked[0]["distance"]
    model = {**looked[0], "distance": [[None] * len(first), *others]}
    assert "<td>undefined</td>" in view.page([model])


def features_of(model):
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
    assert "open" in next(of for _, of in found.elements if of.get("id") == "summary")
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


@pytest.fixture
def browsed(tmp_path):
    """Opens a page in Chromium, where it must have no errors. Returns its elements then, or what a
    script finds in it."""
    names = ("chromium", "chromium-browser", "google-chrome")
    chromium = next(filter(None, map(shutil.which, names)), None)
    if chromium is None:
        pytest.skip("there is no Chromium")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"]
    options += [f"--user-data-dir={tmp_path}/profile", "--dump-dom"]

    def browse(text, fragment="", script="", *flags):
        if script:  # which the page's own policy would not let run
            script = f"document.body.dataset.found = JSON.stringify((() => {{{script}}})())"
            text = re.sub("<meta http-equiv.*>", "", text)
            text = text.replace("</body>", f"<script>{script}</script></body>")
        path = tmp_path / "page.html"
        path.write_text(text)
        line = [chromium, *options, *flags, f"file://{path}{fragment}"]
        done = subprocess.run(line, capture_output=True, text=True, check=True)
        assert [line for line in done.stderr.splitlines() if "CONSOLE" in line] == []
        page = Page(done.stdout)
        return json.loads(dict(page.elements)["body"]["data-found"]) if script else page

    return browse


@pytest.mark.browser
@pytest.mark.parametrize(
    ("fragment", "layer", "head", "token"),
    [
        ("", 1, 1, 1),
        ("#layer=3&head=2&token=5", 3, 2, 5),
        ("#layer=2&head=mean&token=900", 2, 0, 9),
        ("#layer=x&head=-4&token=", 1, 0, 1),
    ],
)
def test_a_deep_link_selects(browsed, looked, fragment, layer, head, token):
    page = browsed(view.page(looked), fragment)
    cells, options = ([of for _, of in page.elements if of.get("role") == role]
                      for role in ("gridcell", "option"))  # fmt: skip
    cell = next(of for of in cells if of["aria-selected"] == "true")
    assert (cell["data-layer"], cell["data-head"]) == (str(layer), str(head))
    assert [of.get("aria-selected") for of in options].index("true") + 1 == token
    said = f"Layer {layer}, {f'head {head}' if head else 'mean of heads'}, token {token} "
    assert any(text.startswith(said) for texts in page.texts.values() for text in texts)


@pytest.mark.browser
@pytest.mark.parametrize("number", [0, 1])  # with and without kernels
def test_the_page_of_a_layer_without_attention(browsed, looked, number):
    model = looked[number]
    distance = [[None] * model["heads"], *model["distance"][1:]]
    text = view.page([{**model, "distance": distance}])
    said = "return [document.querySelectorAll('canvas').length, spoken(models[0])]"
    for layer in (1, 2):
        matrices, spoken = browsed(text, f"#layer={layer}", said)
        assert (matrices, "attends" in spoken) == (layer - 1, layer == 2)


WALK = """
const [grid, tokens] = document.querySelectorAll("[tabindex='0']"), found = [];
for (const [part, keys] of [[grid, "Down Right Down Down Up"], [grid, "Home Left"],
                            [tokens, "Left Right Right"], [tokens, "End"]]) {
  part.focus();
  for (const name of keys.split(" ")) {
    const key = name.replace(/^(?!Home|End)/, "Arrow");
    document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
  }
  found.push([state.layer, state.head, state.token]);
}
return [...found, location.hash, document.activeElement.getAttribute("aria-activedescendant")];
"""


@pytest.mark.browser
def test_a_walk_with_the_keyboard(browsed, looked):
    """The grid comes first, then the tokens; arrows move in them, and not beyond their ends."""
    *places, address, focused = browsed(view.page(looked), "", WALK)
    assert places == [[2, 2, 1], [2, 0, 1], [2, 0, 3], [2, 0, 9]]
    assert (address, focused) == ("#layer=2&head=mean&token=9", "token-0-9")


NUMBERS = """
const of = (kind, ...head) => [...weights(models[0], kind, 3, ...head)];
return [of("attention"), of("attention", 0), of("kernels"), of("kernels", 0),
        [...shareByOffset(models[0], 1)]];
"""


@pytest.mark.browser
def test_the_numbers_of_the_page(browsed, looked):
    model, expected = looked[0], []
    found = browsed(view.page(looked), "#layer=2&head=1&token=3", NUMBERS)
    shape = (model["layers"], model["heads"], len(model["tokens"]), -1)
    for kind in ("kernels", "attention"):
        packed = np.frombuffer(base64.b64decode(model[kind]), np.uint8).reshape(shape) / 255
        expected = [packed[1, 0, 2], packed[1, :, 2].mean(0), *expected]
    offsets = np.subtract.outer(np.arange(9), np.arange(9))  # of the attending token
    shares = [packed[1, 0][offsets == -o].sum() / 9 for o in range(-16, 17)]
    for one, other in zip(found, [*expected, [*shares, 0]], strict=True):
        np.testing.assert_allclose(one, other)


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_large_page_loads_in_two_seconds(browsed, scheme):
    """12 layers of 12 heads and 128 tokens, and as much convolution."""
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
    text = view.page([model])
    assert len(text) < 5e6
    script = f"const is = matchMedia('(prefers-color-scheme: {scheme})').matches;"
    script += "document.body.offsetHeight; return [is, state.token, performance.now()]"
    flag = f"--blink-settings=preferredColorScheme={int(scheme == 'light')}"
    is_scheme, token, milliseconds = browsed(text, "#layer=12&head=12&token=128", script, flag)
    assert (is_scheme, token) == (True, 128)
    assert milliseconds < 2000
