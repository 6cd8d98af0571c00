"""Networks read from Hugging Face's files compute what transformers computed, and go back whole."""

from __future__ import annotations

import dataclasses
import json

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from checkpoints import huggingface, model_directory
from checkpoints.formats import to_elsewhere
from checkpoints.model_directory import Networks, Options
from data.tokenization import Tokenizer
from errors import InputError
from model import DiscriminatorHead, MaskedLMHead
from pretrain.hparams import encoder_config, parse_hparams
from pretrain.load import load_encoder, load_objective
from pretrain.objectives.masked_lm_loss import MaskedLM
from pretrain.objectives.replaced_token_detection_loss import ReplacedTokenDetection
from pretrain.objectives.self_critic_loss import SelfCritic
from tests.huggingface_support import (
    FOLDER,
    NAMES,
    PADDED,
    PLAIN,
    ROWS,
    SPAN,
    TENSOR_TOLERANCE,
    V,
    all_positions,
    change_tensors,
    conversion,
    copied,
    features,
    hparams_of,
    load,
    reference,
    tensors,
)


def assert_close(actual, expected):
    assert actual.shape == expected.shape
    np.testing.assert_allclose(actual, expected, rtol=0, atol=TENSOR_TOLERANCE)


def predicted(head, sequence):
    return head(sequence, all_positions(sequence)).numpy()


@pytest.mark.parametrize("name", NAMES + PADDED)
def test_the_networks_of_a_model_directory(name, folders):
    """Hidden states at padding, too: it enters Hugging Face's convolution, and so it does here."""
    _, directory = folders[name]
    batch, expected = (of(name.removeprefix("padded ")) for of in (features, reference))
    assert_close(load_encoder(directory)(batch).sequence.numpy(), expected["sequence"])
    if name == "convbert_grouped":
        with pytest.raises(InputError):
            load_objective(directory)
        return
    objective = load_objective(directory)
    sequence = objective.encoder(batch).sequence
    if "electra" not in name:
        assert isinstance(objective, MaskedLM)
        assert_close(predicted(objective.head, sequence), expected["logits"])
        return
    assert isinstance(objective, ReplacedTokenDetection)
    assert_close(objective.head(sequence).numpy(), expected["logits"])
    small = objective.generator(batch).sequence
    assert_close(small.numpy(), expected["generator_sequence"])
    assert_close(predicted(objective.generator_head, small), expected["generator_logits"])
    # One table, so that training continues as ELECTRA's.
    assert objective.generator.embeddings is objective.encoder.embeddings


@pytest.mark.parametrize("name", NAMES + PADDED)
def test_there_and_back_to_the_bit(name, folders, tmp_path):
    folder, directory = folders[name]
    read = huggingface.read(str(folder), Options())
    rows = ROWS if "padded" in name else V
    assert (read.config.vocab_size, read.hparams.vocab_size, read.vocabulary.size) == (rows, V, V)
    assert any(f"{ROWS} rows for {V} tokens" in note for note in read.notes) == (rows == ROWS)
    loaded = model_directory.load(directory)
    assert (loaded.config, loaded.hparams) == (read.config, read.hparams)
    notes = huggingface.write(loaded, str(tmp_path))
    for inside in ["", "generator"] if "electra" in name else [""]:
        original, written = tensors(folder / inside), tensors(tmp_path / inside)
        for key, tensor in written.items():
            assert tensor.dtype == np.float32
            np.testing.assert_array_equal(tensor, original[key], err_msg=key, strict=True)
        for key in set(original) - set(written):  # accounted for, by name
            assert any(f"left out: {key}" in note or f", {key}" in note for note in read.notes), key
        assert ("bert" in name.split()) == (set(original) != set(written))
        there = json.loads((folder / inside / "config.json").read_text())
        back = json.loads((tmp_path / inside / "config.json").read_text())
        differ = {key for key in back if key in there and back[key] != there[key]}
        expected = {"pad_token_id", "bos_token_id", "eos_token_id"} if "conv" in name else set()
        if name == "convbert_grouped":
            expected |= {"num_attention_heads", "head_ratio"}
        if "bert" in name.split():
            expected |= {"architectures"}
        assert differ == expected
    assert any("pooler" in note for note in notes) == ("bert" in name.split())
    again = huggingface.read(str(tmp_path), Options())
    for field in ("vocabulary", "config", "hparams"):
        assert getattr(again, field) == getattr(read, field)


@pytest.mark.parametrize("name", NAMES)
def test_hyper_parameters_describe_the_networks(name):
    read = load(name)
    assert encoder_config(read.hparams, read.vocabulary.size) == read.config
    assert (read.hparams.objective.name == "masked_lm") == (name in ("bert", "convbert"))
    assert read.config.mask_padding is False
    assert read.objective.encoder.config == read.config
    if name == "electra":
        small = read.hparams.objective.generator_config(read.config)
        assert read.objective.generator.config == small
        assert (small.hidden_size, small.num_attention_heads) == (8, 2)


def test_head_ratio_that_is_not_two():
    # Hugging Face's heads are 8 wide: N' = 4 / 4 = 1, and 16 / 1 / 2 wide.
    config = load("convbert_grouped").config
    assert (config.num_heads, config.head_size, config.linear_groups) == (1, 8, 2)
    assert any(
        "num_attention_heads 4 with head_ratio 4" in n for n in load("convbert_grouped").notes
    )


@pytest.mark.parametrize(
    ("config", "values"),
    [
        (SPAN, {"generator_hidden_size": 0.25}),
        (SPAN.replace(linear_groups=2), {"generator_hidden_size": 0.25}),
        (SPAN.replace(hidden_act="silu", layer_norm_eps=1e-6), {"masked_lm_act": "gelu"}),
        (PLAIN.replace(hidden_act="gelu_new", layer_norm_eps=1e-5), {"masked_lm_act": "gelu"}),
        (PLAIN, {"generator_intermediate_size": 40}),
        (PLAIN, {"untied_generator_embeddings": True}),
        # As ELECTRA-small was published: another network of the same size, the embeddings shared.
        (PLAIN.replace(intermediate_size=128), {"generator_hidden_size": 1.0}),
        (PLAIN, {"untied_generator": False}),
    ],
)
def test_discriminators_and_generators_there_and_back(config, values, tmp_path):
    hparams = hparams_of(config, **{"generator_hidden_size": 0.5, **values})
    ours = conversion(ReplacedTokenDetection, hparams, config)
    notes = huggingface.write(ours, str(tmp_path))
    assert not any(note.startswith("left out: the generator") for note in notes)
    said = any("discriminator_predictions.safetensors" in note for note in notes)
    assert said == (config.token_mixer == "mixed")
    assert any("step (7)" in note for note in notes)
    again = huggingface.read(str(tmp_path), Options())
    assert again.config == config
    for name, value in values.items():
        if name != "generator_hidden_size":
            assert getattr(again.hparams.objective, name) == value
    model_directory.save(again, str(tmp_path / "model"), {})
    restored = load_objective(str(tmp_path / "model"))
    assert_same_variables(ours.objective, restored)
    drawn = ours.objective.prepare(features("electra"), tf.constant([3, 4]))
    np.testing.assert_array_equal(
        restored.generator_logits(drawn), ours.objective.generator_logits(drawn)
    )


@pytest.mark.parametrize(
    ("config", "share", "named"),
    [
        # ConvBERT-small's: a single head, as wide as the layer; Hugging Face's is half of it.
        (SPAN.replace(num_attention_heads=4), 0.25, "`hidden_size` / 2 = 4 wide together"),
        (PLAIN.replace(hidden_act="relu"), 0.5, "hidden_act"),
    ],
)
def test_a_generator_that_cannot_be_said_is_left_out(config, share, named, tmp_path):
    hparams = hparams_of(config, generator_hidden_size=share)
    notes = huggingface.write(conversion(ReplacedTokenDetection, hparams, config), str(tmp_path))
    assert not (tmp_path / "generator").exists()
    assert named in next(note for note in notes if note.startswith("left out: the generator"))
    again = huggingface.read(str(tmp_path), Options())
    assert isinstance(again.objective.head, DiscriminatorHead)
    assert again.objective.generator is None
    assert any("there is no generator" in note for note in again.notes)


@pytest.mark.parametrize(
    ("config", "architecture"),
    [
        (PLAIN, "ElectraForMaskedLM"),  # BERT, but for its factorised embeddings
        (PLAIN.replace(embedding_size=32, hidden_act="relu"), "BertForMaskedLM"),
        (SPAN, "ConvBertForMaskedLM"),
    ],
)
def test_masked_lm_there_and_back(config, architecture, tmp_path):
    ours = conversion(MaskedLM, hparams_of(config, objective="masked_lm"), config)
    huggingface.write(ours, str(tmp_path))
    assert json.loads((tmp_path / "config.json").read_text())["architectures"] == [architecture]
    again = huggingface.read(str(tmp_path), Options())
    assert_same_variables(ours.objective, again.objective)
    assert again.config == config


def test_a_self_critic_becomes_a_masked_lm(tmp_path):
    """Which transformers has a name for; a model directory keeps what it is."""
    config = PLAIN.replace(embedding_size=32)
    ours = conversion(SelfCritic, hparams_of(config, objective="self_critic"), config)
    (tmp_path / "model").mkdir()
    model_directory.save(ours, str(tmp_path / "model"), {})
    assert type(load_objective(str(tmp_path / "model"))) is SelfCritic
    to_elsewhere("huggingface", str(tmp_path / "model"), str(tmp_path / "theirs"))
    fields = json.loads((tmp_path / "theirs" / "config.json").read_text())
    assert fields["architectures"] == ["BertForMaskedLM"]
    again = huggingface.read(str(tmp_path / "theirs"), Options())
    assert again.hparams.objective.name == "masked_lm"
    assert_same_variables(ours.objective, again.objective, MaskedLM)


def assert_same_variables(ours, again, kind=None):
    assert type(again) is (kind or type(ours))
    assert len(ours.trainable_variables) == len(again.trainable_variables) > 40
    for mine, theirs in zip(ours.trainable_variables, again.trainable_variables):
        assert mine.name == theirs.name
        np.testing.assert_array_equal(mine, theirs)


def test_encoder_alone(tmp_path):
    """As of a fine-tuned model: the class without a head."""
    parts = load("bert")
    of = {"replaced_token_detection": "ElectraModel", "masked_lm": "BertModel"}
    for name, architecture in of.items():
        hparams = parse_hparams({**parts.hparams.as_json(), "objective": name})
        encoder = Networks(parts.objective.encoder)
        alone = dataclasses.replace(parts, objective=encoder, hparams=hparams)
        folder = tmp_path / architecture
        folder.mkdir()
        notes = huggingface.write(alone, str(folder))
        assert any("pooler" in note for note in notes) == (architecture == "BertModel")
        assert json.loads((folder / "config.json").read_text())["architectures"] == [architecture]
        assert "embeddings.word_embeddings.weight" in tensors(folder)
        again = huggingface.read(str(folder), Options())
        assert again.hparams.objective.name == name
        assert again.objective.head is None
        for one, other in zip(again.objective.variables, encoder.variables, strict=True):
            np.testing.assert_array_equal(one, other)


def test_generator_by_itself_and_elsewhere(tmp_path):
    alone = huggingface.read(str(FOLDER / "electra" / "generator"), Options(vocab=vocab(tmp_path)))
    assert isinstance(alone.objective, MaskedLM)
    sequence = alone.objective.encoder(features("electra")).sequence
    assert_close(sequence.numpy(), reference("electra")["generator_sequence"])
    folder = copied("electra", tmp_path)
    (folder / "generator").rename(tmp_path / "small")
    discriminator = huggingface.read(str(folder), Options())
    assert discriminator.objective.generator is None
    assert isinstance(discriminator.objective.head, DiscriminatorHead)
    whole = huggingface.read(str(folder), Options(generator=str(tmp_path / "small")))
    assert_same_variables(load("electra").objective, whole.objective)


def vocab(tmp_path) -> str:
    load("electra").vocabulary.save(tmp_path)
    return str(tmp_path / "vocab.txt")


def test_generator_of_an_encoder_without_a_head(tmp_path):
    """What was published of ConvBERT: the discriminator's head is missing, and said to be."""
    folder = copied("electra", tmp_path)
    change_tensors(folder, lambda held: {k: v for k, v in held.items() if "discriminator" not in k})
    read = huggingface.read(str(folder), Options())
    assert read.objective.head is None
    assert isinstance(read.objective.generator_head, MaskedLMHead)
    assert any("there is no discriminator head" in note for note in read.notes)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_precision_is_widened(dtype, tmp_path):
    folder = copied("convbert", tmp_path)
    change_tensors(folder, lambda held: {k: v.astype(dtype) for k, v in held.items()})
    read = huggingface.read(str(folder), Options())
    assert any("58 tensors" in note for note in read.notes)
    pairs = list(zip(read.objective.variables, load("convbert").objective.variables, strict=True))
    for ours, full in pairs:
        assert ours.dtype == tf.float32
        np.testing.assert_array_equal(ours, full.numpy().astype(dtype).astype(np.float32))
    assert any(np.any(ours.numpy() != full.numpy()) for ours, full in pairs)


def test_old_names_and_copies(tmp_path):
    """As in the first published BERT: TensorFlow's names of layer norms, shared tensors twice."""
    folder = copied("bert", tmp_path)

    def older(held):
        new = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
        for now, then in new.items():
            held = {name.replace(now, then): tensor for name, tensor in held.items()}
        held["cls.predictions.decoder.weight"] = held["bert.embeddings.word_embeddings.weight"]
        held["cls.predictions.decoder.bias"] = held["cls.predictions.bias"].copy()
        held["bert.embeddings.position_ids"] = np.arange(24)[None]
        return held

    change_tensors(folder, older)
    read = huggingface.read(str(folder), Options())
    assert_same_variables(load("bert").objective, read.objective)
    said = "\n".join(read.notes)
    assert "cls.predictions.decoder.weight (a copy of bert.embeddings.word_embeddings" in said
    assert "position_ids (the numbers of the positions" in said


@pytest.mark.parametrize("name", NAMES)
def test_ids_are_those_of_their_tokenizer(name, tmp_path):
    texts = json.loads((FOLDER / name / "tokenized.json").read_text(encoding="utf-8"))
    del texts["pair"]
    huggingface.write(load(name), str(tmp_path))
    written = huggingface.read(str(tmp_path), Options()).vocabulary
    for vocabulary in (load(name).vocabulary, written):
        ids, splits = Tokenizer(vocabulary).tokenize(list(texts))
        for i, (text, expected) in enumerate(texts.items()):
            assert ids[splits[i] : splits[i + 1]].tolist() == expected, text
