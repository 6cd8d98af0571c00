"""Slow: transformers itself makes models, loads what we write of them, and gives the same outputs.

Needs requirements-peers.txt (see tests/peers.py), 6 GiB of memory and
about three minutes on two cores; without these packages it is skipped and says so.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import pathlib
import re
import subprocess

import numpy as np
import pytest
import tensorflow as tf

from checkpoints import huggingface
from checkpoints.huggingface.tokenizer import read_vocabulary, write_tokenizer
from checkpoints.model_directory import Options
from data.tokenization import Tokenizer
from data.vocabulary import SPECIAL_TOKENS, Vocabulary
from model import SIZES, EncoderConfig
from tests import peers
from tests.huggingface_support import (
    FOLDER,
    NAMES,
    PLAIN,
    SPAN,
    assert_close,
    change_json,
    conversion,
    load,
    outputs,
    reference,
    tensors,
)
from tests.tf1_support import assert_equal_tensors

# See above for what it needs.
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("transformers")]

EPSILON = {"layer_norm_eps": 1e-3}  # large enough to be seen
CONFIGS: dict[str, tuple[str, EncoderConfig]] = {
    "convbert-toy": ("convbert", SPAN),
    "convbert-toy-grouped": ("convbert", SPAN.replace(linear_groups=2, conv_kernel_size=3)),
    "electra-toy": ("electra", PLAIN),
    "bert-toy": ("bert", PLAIN.replace(embedding_size=32)),
    "convbert-toy-gelu-new": ("convbert", SPAN.replace(hidden_act="gelu_new", **EPSILON)),
    "convbert-toy-silu": ("convbert", SPAN.replace(hidden_act="silu", linear_groups=2)),
    "electra-toy-gelu-new": ("electra", PLAIN.replace(hidden_act="gelu_new", **EPSILON)),
    "bert-toy-gelu-new": ("bert", PLAIN.replace(embedding_size=32, hidden_act="gelu_new")),
    "bert-toy-silu": ("bert", PLAIN.replace(embedding_size=32, hidden_act="silu", **EPSILON)),
    "bert-toy-relu": ("bert", PLAIN.replace(embedding_size=32, hidden_act="relu")),
    **{name: ("convbert", SIZES[name]) for name in SIZES if name.startswith("convbert")},
    "electra-small": ("electra", SIZES["electra-small"]),
    "electra-base": ("electra", SIZES["electra-base"]),
    "bert-small": ("bert", SIZES["bert-small"].replace(embedding_size=256)),
    "bert-base": ("bert", SIZES["bert-base"]),
}


def theirs(model_type: str, config: EncoderConfig):
    """transformers' configuration of the same numbers: its class and fields."""
    fields = {**vars(config)}
    groups = fields.pop("linear_groups")
    for name in ("token_mixer", "convolution", "share_layers", "mask_padding", "causal"):
        del fields[name]
    if model_type == "convbert":
        return "ConvBertConfig", {**fields, "num_groups": groups}
    for name in ("head_ratio", "conv_kernel_size"):
        del fields[name]
    if model_type == "bert":
        del fields["embedding_size"]
        return "BertConfig", fields
    return "ElectraConfig", fields


def save_vocabulary(size: int, folder: pathlib.Path) -> None:
    tokens = [*SPECIAL_TOKENS, *(f"piece{i}" for i in range(size - len(SPECIAL_TOKENS)))]
    ids = {token: i for i, token in enumerate(tokens)}
    peers.ask(peers.make_tokenizer, ids, folder)


def padded_batch(config: EncoderConfig) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(0)
    S = min(config.max_position_embeddings, 40)
    mask = (np.arange(S) < np.array([[S], [S // 2], [3]])).astype(np.int32)  # [B, S]
    return {
        "input_ids": draw.integers(1, config.vocab_size, mask.shape).astype(np.int32) * mask,
        "input_mask": mask,
        "segment_ids": draw.integers(0, 2, mask.shape).astype(np.int32) * mask,
    }


def run(class_name, folder, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """`sequence` and, where there is a head, `logits`, of the model that transformers loads.

    It finds every tensor and no other.
    """
    found = peers.ask(peers.outputs, class_name, folder, batch)
    assert not any(found[name] for name in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    whole = found["outputs"]
    logits = whole.get("logits", whole.get("prediction_logits"))
    return {"sequence": found["sequence"], "logits": logits, "class": found["class"]}


def assert_same_outputs(objective, expected, batch, generator=None):
    """Ours against theirs: hidden states at every position, padding too, and all logits."""
    assert np.abs(expected["sequence"]).max() > 1.0
    found = outputs(objective, {name: tf.constant(value) for name, value in batch.items()})
    for prefix, theirs in (("", expected), ("generator_", generator or {})):
        for name in ("sequence", "logits"):
            if theirs.get(name) is not None:
                assert_close(found[prefix + name], theirs[name])


CLASSES = {"convbert": "ConvBertForMaskedLM", "bert": "BertForPreTraining"}
WRITTEN = {"convbert": "ConvBertForMaskedLM", "bert": "BertForMaskedLM"}


def assert_written_back(classes, folder, batch, expected) -> None:
    """What was read is written with equal tensors, of which transformers computes the same."""
    for inside, class_name in classes.items():
        original, back = (tensors(folder / name / inside) for name in ("theirs", "back"))
        assert_equal_tensors(back, {name: original[name] for name in back})
        for name in set(original) - set(back):
            assert re.search(r"pooler|seq_relationship", name)
        again = run(class_name, folder / "back" / inside, batch)
        np.testing.assert_array_equal(again["logits"], expected[inside]["logits"])


# With padding: the vocabulary has so many tokens more than the tokenizer has entries.
MASKED_LM = [(name, 0) for name in CONFIGS if not name.startswith("electra")]
MASKED_LM += [("convbert-toy", 11), ("bert-toy", 11)]
ELECTRA = [(name, 0, None) for name in CONFIGS if name.startswith("electra")]
ELECTRA += [("electra-toy-gelu-new", 11, 40)]


@pytest.mark.parametrize(("name", "padding"), MASKED_LM)
def test_masked_lm_there_and_back(name, padding, tmp_path):
    model_type, config = CONFIGS[name]
    peers.ask(peers.make, CLASSES[model_type], *theirs(model_type, config), tmp_path / "theirs")
    entries = config.vocab_size - padding
    save_vocabulary(entries, tmp_path / "theirs")
    batch = padded_batch(config.replace(vocab_size=entries))
    expected = run(CLASSES[model_type], tmp_path / "theirs", batch)
    read = huggingface.read(str(tmp_path / "theirs"), Options())
    assert read.config == config.replace(mask_padding=False, **neutral(read.config))
    assert read.hparams.vocab_size == entries
    kept = {**expected, "logits": expected["logits"][..., :entries]}
    assert_same_outputs(read.objective, kept, batch)

    (tmp_path / "back").mkdir()
    huggingface.write(read, str(tmp_path / "back"))
    assert_written_back({"": WRITTEN[model_type]}, tmp_path, batch, {"": expected})
    base = peers.ask(peers.outputs, "AutoModel", tmp_path / "back", batch)
    np.testing.assert_array_equal(base["sequence"], expected["sequence"])


@pytest.mark.parametrize(("name", "padding", "inner"), ELECTRA)
def test_electra_there_and_back(name, padding, inner, tmp_path):
    """With `inner`, a generator of that inner width."""
    _, config = CONFIGS[name]
    share = 1 / 3 if name.endswith("base") else 1 / 4
    width = round(config.hidden_size * share)
    small = config.replace(
        hidden_size=width,
        num_attention_heads=round(config.num_attention_heads * share),
        intermediate_size=inner or 4 * width,
    )
    (_, fields), (_, of_small) = theirs("electra", config), theirs("electra", small)
    peers.ask(peers.make_electra, fields, of_small, tmp_path / "theirs")
    entries = config.vocab_size - padding
    save_vocabulary(entries, tmp_path / "theirs")
    batch = padded_batch(config.replace(vocab_size=entries))
    classes = {"": "ElectraForPreTraining", "generator": "ElectraForMaskedLM"}
    both = {name: run(kind, tmp_path / "theirs" / name, batch) for name, kind in classes.items()}
    expected, of_generator = both.values()
    read = huggingface.read(str(tmp_path / "theirs"), Options())
    assert read.hparams.objective.generator_intermediate_size == inner
    kept = {**of_generator, "logits": of_generator["logits"][..., :entries]}
    assert_same_outputs(read.objective, expected, batch, kept)

    (tmp_path / "back").mkdir()
    huggingface.write(read, str(tmp_path / "back"))
    assert_written_back(classes, tmp_path, batch, both)


def neutral(config: EncoderConfig) -> dict:
    """What an encoder without convolution has by default."""
    return {} if config.token_mixer == "mixed" else {"conv_kernel_size": 9}


@pytest.mark.parametrize("name", ["tiny", "medium-small", "base"])
def test_our_convbert_in_transformers(name, tmp_path):
    """With the generator, and the discriminator's head that transformers does not look for."""
    config = SPAN if name == "tiny" else SIZES[f"convbert-{name}"]
    config = config.replace(vocab_size=137, mask_padding=False, max_position_embeddings=40)
    ours = conversion(config, generator_hidden_size=1 / 3 if name == "base" else 1 / 4)
    for variable in ours.objective.trainable_variables:  # drawn for tiny widths
        if variable.shape.rank > 1:
            variable.assign(variable * min(1.0, 2 * variable.shape[-2] ** -0.5))
    huggingface.write(ours, str(tmp_path))
    batch = padded_batch(config)
    encoder = run("AutoModel", tmp_path, batch)
    assert encoder["class"] == "ConvBertModel"
    expected = {"sequence": encoder["sequence"], "logits": None}
    generator = run("ConvBertForMaskedLM", tmp_path / "generator", batch)
    assert_same_outputs(ours.objective, expected, batch, generator)


def test_our_bert_and_electra_encoders_in_transformers(tmp_path):
    read = load("bert")
    huggingface.write(read, str(tmp_path))
    pooler = ["pooler.dense.weight", "pooler.dense.bias"]
    found = peers.ask(peers.outputs, "AutoModel", tmp_path)
    assert found["class"] == "BertModel"
    assert found["missing_keys"] == set(pooler)  # which is said when it is written
    assert all(name.startswith("cls.predictions.") for name in found["unexpected_keys"])


@pytest.mark.parametrize("switches", [(True, True), (True, False), (False, True), (False, False)])
def test_ids_of_what_we_write(switches, tmp_path):
    texts = set()
    for name in NAMES:
        texts |= set(json.loads((FOLDER / name / "tokenized.json").read_text(encoding="utf-8")))
    texts = sorted(texts - {"pair"})
    read = load("bert")
    lower, strip = switches
    vocabulary = Vocabulary(read.vocabulary.tokens, do_lower_case=lower, strip_accents=strip)
    huggingface.write(dataclasses.replace(read, vocabulary=vocabulary), str(tmp_path))
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
    assert found["pad_token_id"] == vocabulary.pad_id
    assert found["model_max_length"] == 24


ADDED_TEXTS = (
    "the<X>of <X><Y> the",
    "<x> <y>Ünïted<Y>ing",
    "wordy theWord word<X>word",
    "<XX><XXX><X",
    "\u4e2d<X>\u4e2d <Y>\u0301 a\u0301<X>",
    "<X> ,<Y>.  <X>\t\n<Y>",
    "WORD w\u00f6rd <X\u200b> <Y\u200b>",
)


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("kind", ["whole", "vocab.txt", "generic"])
def test_ids_of_added_tokens(lower, kind, tmp_path):
    """Of what transformers writes, as we read it; of what we write, as transformers reads it."""
    ids = dict(load("bert").vocabulary.ids)
    by_id = peers.ask(peers.make_tokenizer, ids, tmp_path / "theirs", lower, added=True)
    if kind == "vocab.txt":
        (tmp_path / "theirs" / "tokenizer.json").unlink()
        lines = "".join(f"{token}\n" for token in ids)
        (tmp_path / "theirs" / "vocab.txt").write_text(lines, encoding="utf-8")
        change_json(tmp_path / "theirs" / "tokenizer_config.json", added_tokens_decoder=by_id)
    elif kind == "generic":
        path = tmp_path / "theirs" / "tokenizer_config.json"
        change_json(path, tokenizer_class="PreTrainedTokenizerFast")
    vocabulary, _ = read_vocabulary(str(tmp_path / "theirs"))
    (tmp_path / "back").mkdir()
    write_tokenizer(vocabulary, str(tmp_path / "back"), 24)
    tokens = ["<X>", "word"]
    before, after = (
        peers.ask(peers.tokenized, tmp_path / name, ADDED_TEXTS, tokens=tokens)
        for name in ("theirs", "back")
    )
    assert vocabulary.size == len(ids) + 4 == before["size"]
    for text, expected, back in zip(ADDED_TEXTS, before["ids"], after["ids"], strict=True):
        assert Tokenizer(vocabulary).tokenize([text])[0].tolist() == expected, text
        assert back == expected, text
    assert after["token_ids"] == [vocabulary.ids[token] for token in tokens]


def test_defaults_are_those_of_transformers():
    """What a config.json leaves out."""
    from checkpoints.huggingface.config import DEFAULTS

    for model_type, defaults in DEFAULTS.items():
        names = [*defaults, "layer_norm_eps"]
        expected = {**defaults, "layer_norm_eps": 1e-12}
        assert peers.ask(peers.defaults, model_type, names) == expected, model_type


def test_the_committed_files_are_what_their_command_makes(tmp_path):
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    command = readme.split("```")[1]
    path = f"{pathlib.Path(peers.PYTHON).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"}
    subprocess.run(["bash", "-c", command], cwd=tmp_path, env=environment, check=True)
    for name in NAMES:
        made, committed = tensors(tmp_path / name), tensors(FOLDER / name)
        assert_equal_tensors(made, committed)
        with np.load(tmp_path / name / "reference.npz") as arrays:
            for key, expected in reference(name).items():
                np.testing.assert_allclose(arrays[key], expected, rtol=0, atol=1e-5)
        ids = (tmp_path / name / "tokenized.json").read_text(encoding="utf-8")
        assert ids == (FOLDER / name / "tokenized.json").read_text(encoding="utf-8")
