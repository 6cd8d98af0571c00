"""Networks read from Hugging Face's files compute what transformers computed, and go back whole."""

import json
import shutil
import subprocess

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from convbert.checkpoints import huggingface, model_directory, tf1
from convbert.checkpoints.formats import from_elsewhere, to_elsewhere
from convbert.checkpoints.model_directory import Options
from convbert.common.errors import InputError
from convbert.data.tokenization import Tokenizer
from convbert.model import DiscriminatorHead, MaskedLMHead
from convbert.pretrain.hparams import parse_hparams
from convbert.pretrain.load import load_encoder, load_objective
from convbert.pretrain.objectives.masked_lm import MaskedLM
from convbert.pretrain.objectives.replaced_token_detection import ReplacedTokenDetection
from convbert.serving.load import load_model_directory as load_served
from convbert.serving.load import signatures
from tests import command_support
from tests import huggingface_support as hf
from tests.finetune.kinds_support import rejects
from tests.tf1_support import assert_equal_tensors


@pytest.mark.parametrize("name", hf.NAMES + hf.PADDED)
def test_the_networks_of_a_model_directory(name, folders):
    """Hidden states at padding, too: it enters Hugging Face's convolution, and so it does here."""
    _, directory = folders(name)
    batch, expected = (of(name.removeprefix("padded ")) for of in (hf.features, hf.reference))
    hf.assert_close(load_encoder(directory)(batch).sequence, expected["sequence"])
    if name == "convbert_grouped":
        with pytest.raises(InputError):
            load_objective(directory)
        return
    objective = load_objective(directory)
    found = hf.outputs(objective, batch)
    assert {*found} == {*expected} - {*batch}
    for key, value in found.items():
        hf.assert_close(value, expected[key])
    electra = "electra" in name
    assert type(objective) is (ReplacedTokenDetection if electra else MaskedLM)
    if electra:  # one table, so that training continues as ELECTRA's
        assert objective.generator.embeddings is objective.encoder.embeddings


@pytest.mark.parametrize("name", hf.NAMES + hf.PADDED)
def test_there_and_back_to_the_bit(name, folders, tmp_path):
    folder, directory = folders(name)
    theirs, of_bert = hf.read(folder), "bert" in name.split()
    rows = hf.ROWS if "padded" in name else hf.V
    sizes = (theirs.config.vocab_size, theirs.hparams.vocab_size, theirs.vocabulary.size)
    assert sizes == (rows, hf.V, hf.V)
    said = any(f"{hf.ROWS} rows for {hf.V} tokens" in note for note in theirs.notes)
    assert said == (rows == hf.ROWS)
    loaded = model_directory.load(directory)
    assert (loaded.config, loaded.hparams) == (theirs.config, theirs.hparams)
    notes = huggingface.write(loaded, str(tmp_path))
    for inside in ["", "generator"] if "electra" in name else [""]:
        original, written = hf.tensors(folder / inside), hf.tensors(tmp_path / inside)
        for key, tensor in written.items():
            assert tensor.dtype == np.float32
            np.testing.assert_array_equal(tensor, original[key], err_msg=key, strict=True)
        for key in set(original) - set(written):  # accounted for, by name
            said = (f"left out: {key}", f", {key}")
            assert any(part in note for note in theirs.notes for part in said), key
        assert of_bert == (set(original) != set(written))
    assert any("pooler" in note for note in notes) == of_bert
    again = hf.read(tmp_path)
    for field in ("vocabulary", "config", "hparams"):
        assert getattr(again, field) == getattr(theirs, field)


SLOW = pytest.mark.slow
EXACT = hf.SPAN.replace(hidden_act="silu", layer_norm_eps=1e-6)
APPROXIMATE = hf.PLAIN.replace(hidden_act="gelu_new", layer_norm_eps=1e-5)


@pytest.mark.parametrize(
    ("config", "values"),
    [
        (hf.SPAN, {"generator_hidden_size": 0.25}),
        pytest.param(EXACT, {"masked_lm_act": "gelu"}, marks=SLOW),
        pytest.param(
            APPROXIMATE, {"masked_lm_act": "gelu", "generator_intermediate_size": 40}, marks=SLOW
        ),
        pytest.param(hf.PLAIN, {"untied_generator_embeddings": True}, marks=SLOW),
        pytest.param(hf.PLAIN, {"disentangled_embeddings": True}, marks=SLOW),
        # As ELECTRA-small was published: another network of the same size, the embeddings shared.
        (hf.PLAIN.replace(intermediate_size=128), {"generator_hidden_size": 1.0}),
        pytest.param(hf.PLAIN, {"untied_generator": False}, marks=SLOW),
    ],
)
def test_discriminators_and_generators_there_and_back(config, values, tmp_path):
    ours = hf.conversion(config, **{"generator_hidden_size": 0.5, **values})
    notes = huggingface.write(ours, str(tmp_path))
    assert not any(note.startswith("left out: the generator") for note in notes)
    said = any("discriminator_predictions.safetensors" in note for note in notes)
    assert said == (config.token_mixer == "mixed")
    assert any("step (7)" in note for note in notes)
    again = hf.read(tmp_path)
    assert again.config == config
    for name, value in values.items():
        if name != "generator_hidden_size":
            assert getattr(again.hparams.objective, name) == value
    model_directory.save(again, str(tmp_path / "model"), {})
    restored = load_objective(str(tmp_path / "model"))
    assert_same_variables(ours.objective, restored, ReplacedTokenDetection)
    drawn = ours.objective.prepare(hf.features("electra"), tf.constant([3, 4]))
    found, expected = (of.generator_logits(drawn) for of in (restored, ours.objective))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("config", "share", "named"),
    [
        # ConvBERT-small's: a single head, as wide as the layer; Hugging Face's is half of it.
        (hf.SPAN.replace(num_attention_heads=4), 0.25, "num_attention_heads"),
        (hf.PLAIN.replace(hidden_act="relu"), 0.5, "hidden_act"),
    ],
)
def test_a_generator_that_cannot_be_said_is_left_out(config, share, named, tmp_path):
    notes = huggingface.write(hf.conversion(config, generator_hidden_size=share), str(tmp_path))
    assert not (tmp_path / "generator").exists()
    assert named in next(note for note in notes if note.startswith("left out: the generator"))
    again = hf.read(tmp_path)
    assert isinstance(again.objective.head, DiscriminatorHead)
    assert again.objective.generator is None
    assert any("not in" in note and "generator, generator_head" in note for note in again.notes)


OF_BERT = hf.PLAIN.replace(embedding_size=32)
GELU_NEW = OF_BERT.replace(hidden_act="gelu_new")


@pytest.mark.parametrize(
    ("config", "objective", "architecture"),
    [
        (hf.PLAIN, "masked_lm", "ElectraForMaskedLM"),  # BERT, but for its factorised embeddings
        pytest.param(GELU_NEW, "masked_lm", "BertForMaskedLM", marks=SLOW),
        (OF_BERT.replace(layer_norm_eps=1e-5), "self_critic", "BertForMaskedLM"),
        pytest.param(hf.SPAN, "masked_lm", "ConvBertForMaskedLM", marks=SLOW),
    ],
)
def test_masked_lm_there_and_back(config, objective, architecture, tmp_path):
    """So does a self-critic; a model directory keeps what it is."""
    ours, model, theirs = hf.conversion(config, objective=objective), tmp_path / "m", tmp_path / "t"
    model_directory.save(ours, str(model), {})
    assert type(load_objective(str(model))) is type(ours.objective)
    to_elsewhere("huggingface", str(model), str(theirs))
    assert json.loads((theirs / "config.json").read_text())["architectures"] == [architecture]
    again = hf.read(theirs)
    assert_same_variables(ours.objective, again.objective, MaskedLM)
    assert (again.config, again.hparams.objective.name) == (config, "masked_lm")
    expected, found = (hf.outputs(of.objective, hf.features("bert")) for of in (ours, again))
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


def assert_same_variables(ours, again, kind):
    assert type(again) is kind
    assert len(ours.trainable_variables) > 40
    for mine, theirs in zip(ours.trainable_variables, again.trainable_variables, strict=True):
        assert mine.name == theirs.name
        np.testing.assert_array_equal(mine, theirs)


def test_a_generator_of_an_encoder_without_a_head(tmp_path):
    """The published ConvBERT lacks the discriminator's head; a note says so."""
    folder = hf.copied("electra", tmp_path)
    own = lambda held: {k: v for k, v in held.items() if "discriminator" not in k}  # noqa: E731
    hf.change_tensors(folder, own)
    found = hf.read(folder)
    assert found.objective.head is None
    assert isinstance(found.objective.generator_head, MaskedLMHead)
    assert any("not in" in note and ": head;" in note for note in found.notes)


def test_old_names_and_copies(tmp_path):
    """As in the first published BERT: TensorFlow's names of layer norms, shared tensors twice."""
    folder = hf.copied("bert", tmp_path)

    def older(held):
        new = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
        for now, then in new.items():
            held = {name.replace(now, then): tensor for name, tensor in held.items()}
        held["cls.predictions.decoder.weight"] = held["bert.embeddings.word_embeddings.weight"]
        held["cls.predictions.decoder.bias"] = held["cls.predictions.bias"].copy()
        held["bert.embeddings.position_ids"] = np.arange(24)[None]
        return held

    hf.change_tensors(folder, older)
    found = hf.read(folder)
    assert_same_variables(hf.load("bert").objective, found.objective, MaskedLM)
    said = "\n".join(found.notes)
    assert all(name in said for name in ("cls.predictions.decoder.weight", "position_ids"))


@pytest.mark.parametrize("name", hf.NAMES)
def test_ids_are_those_of_their_tokenizer(name, tmp_path):
    texts = json.loads((hf.FOLDER / name / "tokenized.json").read_text(encoding="utf-8"))
    del texts["pair"]
    huggingface.write(hf.load(name), str(tmp_path))
    for vocabulary in (hf.load(name).vocabulary, hf.read(tmp_path).vocabulary):
        ids, splits = Tokenizer(vocabulary).tokenize(list(texts))
        for i, (text, expected) in enumerate(texts.items()):
            assert ids[splits[i] : splits[i + 1]].tolist() == expected, text


OTHER_OUTPUT = {"generator_lm_head.weight": np.zeros([hf.V, 12], np.float32)}
UNTIED = {"tie_word_embeddings": False}


@pytest.mark.parametrize(
    ("source", "fields", "added", "named"),
    [
        # BertForSequenceClassification's.
        ("bert", {}, ["classifier.weight", "classifier.bias"], "--task"),
        ("electra", {}, ["classifier.dense.weight", "classifier.out_proj.bias"], "--task"),
        ("electra", {}, ["qa_outputs.weight", "qa_outputs.bias"], "--task"),
        ("convbert", {}, OTHER_OUTPUT, "generator_lm_head.weight"),
        ("convbert", UNTIED, OTHER_OUTPUT, "generator_predictions.dense.weight"),
        ("convbert", UNTIED, {}, "generator_lm_head.bias"),
    ],
)
def test_heads_that_are_not_taken_are_named(source, fields, added, named, tmp_path):
    """Those of tasks, and of untied masked LMs. The encoder goes back as the class without one."""
    folder, model, back = hf.copied(source, tmp_path), str(tmp_path / "model"), tmp_path / "back"
    shutil.rmtree(folder / "generator", ignore_errors=True)
    hf.change_json(folder / "config.json", **fields)

    def change(held):
        own = ("discriminator", "cls.")
        held = {name: tensor for name, tensor in held.items() if not name.startswith(own)}
        return held | (added if isinstance(added, dict) else dict.fromkeys(added, np.ones(3, "f")))

    hf.change_tensors(folder, change)
    notes = from_elsewhere("huggingface", str(folder), model, Options())
    assert any(all(name in note for name in (*added, named)) for note in notes)
    found, expected = model_directory.load(model), hf.load(source)
    assert found.objective.head is None
    assert found.config == expected.config
    notes = to_elsewhere("huggingface", model, str(back))
    assert any("pooler" in note for note in notes) == (source == "bert")
    architecture = {"bert": "Bert", "electra": "Electra", "convbert": "ConvBert"}[source] + "Model"
    assert json.loads((back / "config.json").read_text())["architectures"] == [architecture]
    original = hf.tensors(hf.FOLDER / source)
    written = {f"{source}.{name}": tensor for name, tensor in hf.tensors(back).items()}
    assert_equal_tensors(written, {name: original[name] for name in written})


@pytest.mark.parametrize(
    ("dtype", "said"),
    [(np.float16, "58 tensors"), (ml_dtypes.bfloat16, "58 tensors"), (np.float64, "F64")],
)
def test_other_precisions_become_float32(dtype, said, tmp_path):
    def changed(tensor):
        return tensor.astype(dtype) + dtype(1e-12)

    folder = hf.copied("convbert", tmp_path)
    hf.change_tensors(folder, lambda held: {k: changed(v) for k, v in held.items()})
    found = hf.read(folder)
    assert any(said in note for note in found.notes)
    full = hf.load("convbert").objective.variables
    for ours, exact in zip(found.objective.variables, full, strict=True):
        assert ours.dtype == tf.float32
        np.testing.assert_array_equal(ours, changed(exact.numpy()).astype(np.float32))


def convert(*arguments: str) -> subprocess.CompletedProcess:
    return command_support.run("-m", "convbert.checkpoints.convert", *arguments)


def test_command_both_ways(tmp_path):
    away = hf.copied("electra", tmp_path) / "generator"
    away.rename(tmp_path / "small")
    hf.change_json(away.parent / "tokenizer_config.json", model_max_length=9)
    options = [f"--input={away.parent}", f"--generator={tmp_path}/small", "--strip_accents"]
    done = convert("--source=huggingface", f"--output={tmp_path}/model", *options)
    assert "generator: 0.5 of the discriminator's width" in done.stdout
    assert "strip_accents True" in done.stdout
    done = convert("--target=huggingface", f"--input={tmp_path}/model", f"--output={tmp_path}/back")
    assert "ElectraForPreTraining, 43 tensors" in done.stdout
    settings = json.loads((tmp_path / "back" / "tokenizer_config.json").read_text())
    assert settings["model_max_length"] == 9
    assert load_served(f"{tmp_path}/model").max_seq_length == 9
    for inside in ("", "generator"):
        assert_equal_tensors(
            hf.tensors(tmp_path / "back" / inside), hf.tensors(hf.FOLDER / "electra" / inside)
        )


def test_a_uniform_generator_draws_no_padding(folders):
    """The logits of others have the tokenizer's width: test_the_networks_of_a_model_directory."""
    padded = hf.read(folders("padded electra")[0])
    hparams = parse_hparams({**padded.hparams.as_json(), "uniform_generator": True})
    objective = ReplacedTokenDetection(hparams, padded.config, padded.objective.special_ids)
    batch = objective.prepare(hf.features("electra"), tf.constant([3, 4]))
    assert objective.generator_logits(batch).shape[-1] == hf.V


@pytest.mark.parametrize("name", ["electra", "bert"])
def test_padding_is_never_served(name, folders, tmp_path):
    """Nor is it written for the original, whose generator would draw it."""
    served = signatures(load_served(folders(f"padded {name}")[1]))
    words = hf.load(name).vocabulary.tokens
    answer = served["masked_tokens"].trace()(tf.constant(["the [MASK] is [MASK]", "[MASK]"]))
    candidates = {piece.decode() for piece in answer["candidates"].numpy().ravel()} - {""}
    assert candidates <= set(words)
    assert len(candidates) >= 10
    assert np.all(answer["probabilities"].numpy()[0, :, 0] > 0)
    raw = served["token_ids"].trace()
    row = tf.constant([[3, hf.V - 1, 4]])
    raw(input_ids=row, input_mask=tf.ones_like(row), segment_ids=tf.zeros_like(row))
    with pytest.raises(tf.errors.InvalidArgumentError, match=rf"in \[0, {hf.V}\)"):
        raw(input_ids=row + 1, input_mask=tf.ones_like(row), segment_ids=tf.zeros_like(row))
    if name == "electra":
        with rejects("vocab_size"):
            tf1.write(model_directory.load(folders("padded electra")[1]), str(tmp_path))
