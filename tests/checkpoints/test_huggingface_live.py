"""Slow: transformers itself makes models, loads what we write of them, and gives the same outputs.
Needs the extra `peers` (see tests/peers.py), 6 GiB of memory and about three minutes on two cores;
without these packages it is skipped and says so."""

import dataclasses
import itertools
import json
import re

import numpy as np
import pytest
import tensorflow as tf

from convbert.checkpoints import huggingface
from convbert.data.tokenization import Tokenizer
from convbert.data.vocabulary import SPECIAL_TOKENS, Vocabulary
from convbert.model import SIZES, EncoderConfig
from tests import huggingface_support as hf
from tests import peers
from tests.model_support import random_features
from tests.tf1_support import assert_equal_tensors

# See above for what it needs.
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("transformers")]

EPSILON = {"layer_norm_eps": 1e-3}  # large enough to be seen
CONFIGS: dict[str, EncoderConfig] = {  # whose names begin with Hugging Face's type
    "convbert-toy": hf.SPAN,
    "convbert-toy-grouped": hf.SPAN.replace(linear_groups=2, conv_kernel_size=3),
    "electra-toy": hf.PLAIN,
    "bert-toy": hf.PLAIN.replace(embedding_size=32),
    "electra-toy-gelu-new": hf.PLAIN.replace(hidden_act="gelu_new", **EPSILON),
    "bert-toy-silu": hf.PLAIN.replace(embedding_size=32, hidden_act="silu", **EPSILON),
    **{name: SIZES[name] for name in SIZES if name.startswith("convbert")},
    "electra-small": SIZES["electra-small"],
    "bert-small": SIZES["bert-small"].replace(embedding_size=256),
}
OURS = {"token_mixer", "convolution", "span_kernel", "share_layers", "mask_padding", "causal"}
OF_CONVBERT = {"head_ratio", "conv_kernel_size", "linear_groups"}
LACKING = {"convbert": OURS, "electra": OURS | OF_CONVBERT}
LACKING["bert"] = LACKING["electra"] | {"embedding_size"}


def theirs(model_type: str, config: EncoderConfig):
    fields = {n: value for n, value in vars(config).items() if n not in LACKING[model_type]}
    if model_type == "convbert":
        fields["num_groups"] = fields.pop("linear_groups")
    names = {"convbert": "ConvBertConfig", "electra": "ElectraConfig", "bert": "BertConfig"}
    return names[model_type], fields


def padded_batch(config: EncoderConfig) -> dict[str, np.ndarray]:
    S = min(config.max_position_embeddings, 40)
    return random_features(3, S, (S, S // 2, 3), config.vocab_size)


def run(class_name, folder, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """`sequence` and perhaps `logits` of what transformers loads: every tensor and no other."""
    found = peers.ask(peers.outputs, class_name, folder, batch)
    assert not any(found[name] for name in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    whole = found["outputs"]
    logits = whole.get("logits", whole.get("prediction_logits"))
    return {"sequence": found["sequence"], "logits": logits, "class": found["class"]}


def assert_same_outputs(objective, expected, batch):
    """Hidden states at every position, padding too, and logits; perhaps of a "generator", too."""
    assert np.abs(expected[""]["sequence"]).max() > 1.0
    found = hf.outputs(objective, {name: tf.constant(value) for name, value in batch.items()})
    for inside, theirs in expected.items():
        for name in ("sequence", "logits"):
            if theirs[name] is not None:
                ours = found[f"{inside}_{name}" if inside else name]
                hf.assert_close(ours, theirs[name][..., : ours.shape[-1]])  # without the padding's


CLASSES = {  # by the folder inside
    "convbert": {"": "ConvBertForMaskedLM"},
    "bert": {"": "BertForPreTraining"},
    "electra": {"": "ElectraForPreTraining", "generator": "ElectraForMaskedLM"},
}


# Of some the vocabulary has more tokens than the tokenizer has entries; `inner` is the generator's.
@pytest.mark.parametrize(
    ("name", "padding", "inner"),
    [(name, 0, None) for name in CONFIGS]
    + [("convbert-toy", 11, None), ("bert-toy", 11, None), ("electra-toy-gelu-new", 11, 40)],
)
def test_there_and_back(name, padding, inner, tmp_path):
    model_type, config = name.split("-")[0], CONFIGS[name]
    classes, folder, back = CLASSES[model_type], tmp_path / "theirs", tmp_path / "back"
    if model_type == "electra":
        width, heads = (n // 4 for n in (config.hidden_size, config.num_attention_heads))
        small = {"hidden_size": width, "num_attention_heads": heads}
        small = config.replace(**small, intermediate_size=inner or 4 * width)
        both = (theirs("electra", of)[1] for of in (config, small))
        peers.ask(peers.make_electra, *both, folder)
    else:
        peers.ask(peers.make, classes[""], *theirs(model_type, config), folder)
    entries = config.vocab_size - padding
    tokens = [*SPECIAL_TOKENS, *(f"piece{i}" for i in range(entries - len(SPECIAL_TOKENS)))]
    peers.ask(peers.make_tokenizer, {token: i for i, token in enumerate(tokens)}, folder)
    batch = padded_batch(config.replace(vocab_size=entries))
    expected = {inside: run(kind, folder / inside, batch) for inside, kind in classes.items()}
    found = hf.read(folder)
    kernel = config.conv_kernel_size if model_type == "convbert" else 9  # the default
    assert found.config == config.replace(mask_padding=False, conv_kernel_size=kernel)
    assert found.hparams.vocab_size == entries
    if model_type == "electra":
        assert found.hparams.objective.generator_intermediate_size == inner
    assert_same_outputs(found.objective, expected, batch)

    back.mkdir()
    huggingface.write(found, str(back))
    for inside, kind in classes.items():
        original, written = (hf.tensors(place / inside) for place in (folder, back))
        assert_equal_tensors(written, {key: original[key] for key in written})
        for key in set(original) - set(written):
            assert re.search(r"pooler|seq_relationship", key)
        kind = kind.replace("ForPreTraining", "ForMaskedLM") if model_type == "bert" else kind
        again = run(kind, back / inside, batch)
        np.testing.assert_array_equal(again["logits"], expected[inside]["logits"])
    base = peers.ask(peers.outputs, "AutoModel", back, batch)
    np.testing.assert_array_equal(base["sequence"], expected[""]["sequence"])


@pytest.mark.parametrize("name", ["tiny", "medium-small"])
def test_our_convbert_in_transformers(name, tmp_path):
    """With the generator, and the discriminator's head that transformers does not look for."""
    config = hf.SPAN if name == "tiny" else SIZES[f"convbert-{name}"]
    config = config.replace(vocab_size=137, mask_padding=False, max_position_embeddings=40)
    ours = hf.conversion(config, generator_hidden_size=1 / 4)
    for variable in ours.objective.trainable_variables:  # drawn for tiny widths
        if variable.shape.rank > 1:
            variable.assign(variable * min(1.0, 2 * variable.shape[-2] ** -0.5))
    huggingface.write(ours, str(tmp_path))
    batch = padded_batch(config)
    encoder = run("AutoModel", tmp_path, batch)
    assert (encoder["class"], encoder["logits"]) == ("ConvBertModel", None)
    generator = run("ConvBertForMaskedLM", tmp_path / "generator", batch)
    assert_same_outputs(ours.objective, {"": encoder, "generator": generator}, batch)


@pytest.mark.parametrize("switches", [(True, True), (True, False), (False, True), (False, False)])
def test_ids_of_what_we_write(switches, tmp_path):
    texts = set()
    for name in hf.NAMES:
        texts |= set(json.loads((hf.FOLDER / name / "tokenized.json").read_text(encoding="utf-8")))
    texts = sorted(texts - {"pair"})
    vocabulary = Vocabulary(hf.load("bert").vocabulary.tokens, *switches)
    huggingface.write(dataclasses.replace(hf.load("bert"), vocabulary=vocabulary), str(tmp_path))
    found = peers.ask(peers.tokenized, tmp_path, texts, whole=texts[:2])
    assert found["class"] == "BertTokenizer"
    assert all(found["decoded"])
    ids, splits = Tokenizer(vocabulary).tokenize(texts)
    expected = [ids[i:j].tolist() for i, j in itertools.pairwise(splits)]
    for text, one, other in zip(texts, found["ids"], expected, strict=True):
        assert one == other, text
    (a, b), pair = expected[:2], found["whole"]
    cls, sep = vocabulary.cls_id, vocabulary.sep_id
    assert pair["input_ids"] == [cls, *a, sep, *b, sep]
    assert pair["token_type_ids"] == [0] * (len(a) + 2) + [1] * (len(b) + 1)
    assert found["mask_token_id"] == vocabulary.mask_id
    assert (found["pad_token_id"], found["model_max_length"]) == (vocabulary.pad_id, 24)
