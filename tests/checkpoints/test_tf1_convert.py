"""Original checkpoints to model directories and back: the same numbers, the same tensors."""

import json
import os

import numpy as np
import pytest
import tensorflow as tf

from convbert.checkpoints.formats import to_elsewhere
from convbert.checkpoints.model_directory import load
from convbert.checkpoints.tf1 import MOMENTS, _encoder_fields
from convbert.common.errors import InputError
from convbert.data.vocabulary import Vocabulary
from convbert.model import EncoderConfig, load_config, named_size
from convbert.pretrain.hparams import resolve_hparams
from convbert.pretrain.load import load_encoder, load_hparams, load_objective
from convbert.pretrain.objectives import masked_lm
from convbert.training.metrics import summarize
from tests import tf1_support as tf1
from tests.model_support import slow_but
from tests.tf1_support import MODELS, features, masked_batch, reference

TOLERANCE = 2e-5
LOSS_TOLERANCE = 1e-5
GRADIENT_TOLERANCE = 1e-4  # norm of the difference, as a share of the reference's norm


@pytest.fixture(scope="module", params=MODELS)
def golden(request, tmp_path_factory):
    """A golden folder's weights with moments and a step, converted: name, tensors, folders."""
    name, folder = request.param, tmp_path_factory.mktemp(request.param)
    tensors = tf1.golden_tensors(name)
    source = tf1.write_original(folder / "original", tensors, config=name)
    tf1.convert(source, folder / "model")
    return name, tensors, folder


@pytest.fixture(scope="module")
def loaded(golden):
    name, _, folder = golden
    return load_objective(str(folder / "model")), reference(name)


def test_outputs_are_the_originals(loaded):
    objective, expected = loaded
    large = objective.encoder(features(expected, "corrupted_input_ids"), output_attentions=True)
    small = objective.generator(features(expected, "masked_input_ids"), output_attentions=True)
    logits = objective.generator_head(small.sequence, expected["masked_lm_positions"])
    computed = {
        "discriminator_embedding_output": large.embedding_output,
        "discriminator_layers": np.stack(large.hidden_states),
        "discriminator_attention": np.stack(large.attention_probs),
        "disc_probs": tf.sigmoid(objective.head(large.sequence)),
        "generator_layers": np.stack(small.hidden_states),
        "generator_attention": np.stack(small.attention_probs),
        "mlm_logits": logits,
    }
    for key, value in computed.items():
        np.testing.assert_allclose(value, expected[key], rtol=0, atol=TOLERANCE, err_msg=key)


def test_losses_and_every_gradient_are_the_originals(loaded, monkeypatch):
    objective, expected = loaded
    batch, sampled = masked_batch(expected)
    monkeypatch.setattr(masked_lm, "draw_tokens", lambda *_: sampled)
    variables = tf1.original_variables(objective)
    trained = {variable.ref() for variable in objective.trainable_variables}
    assert trained == {variable.ref() for variable in variables.values()}
    with tf.GradientTape() as tape:
        loss, sums = objective.loss(batch, objective.normalizers(batch), training=False)
    found = summarize(sums)
    assert found["masked_lm_loss"] == pytest.approx(expected["mlm_loss"], abs=LOSS_TOLERANCE)
    assert found["disc_loss"] == pytest.approx(expected["disc_loss"], abs=LOSS_TOLERANCE)
    assert float(loss) == pytest.approx(float(expected["total_loss"]), rel=1e-6)
    assert set(variables) == {key[5:] for key in expected if key[:5] == "grad/"}
    # A key's bias shifts all scores of a query alike, so its true gradient is zero and the
    # reference holds rounding errors; those are measured against the kernel's norm instead.
    for name, gradient in tape.gradient(loss, variables).items():
        scale = np.linalg.norm(expected["grad/" + name.replace("/key/bias", "/key/kernel")])
        error = np.linalg.norm(tf.convert_to_tensor(gradient) - expected[f"grad/{name}"])
        assert error <= GRADIENT_TOLERANCE * scale, f"{name}: {error:.2e} of {scale:.2e}"


def test_back_again_bit_for_bit(golden):
    name, tensors, folder = golden
    notes = to_elsewhere("tf1", str(folder / "model"), str(folder / "back"))
    tf1.assert_equal_tensors(tf1.read_tensors(folder / "back"), tensors)
    assert os.path.exists(folder / "back" / "model.ckpt-1234.index")
    assert any(f"{len(tensors)} tensors, step 1234" in note for note in notes)
    fields = json.loads((folder / "back" / "config.json").read_text())
    expected = tf1.golden_fields(name)
    assert {key: fields[key] for key in expected} == expected
    assert "max_seq_length" not in fields  # the source does not say it
    converted = load_hparams(str(folder / "model"))[1]["converted"]
    assert (converted["source"], converted["max_seq_length"]) == ("tf1", None)
    original = (folder / "original" / "vocab.txt").read_bytes()
    assert (folder / "back" / "vocab.txt").read_bytes() == original


UNTIED = {"untied_generator_embeddings": True, "generator_layers": 0.5}
VARIANTS = {
    "untied embeddings, fewer layers": UNTIED,
    "disentangled embeddings": {"disentangled_embeddings": True},
    "discriminator is the generator": {"untied_generator": False},
    "masked language model": {"objective": "masked_lm", "mask_token_prob": 0.8},
}


# Five seconds each.
@pytest.mark.parametrize("variant", slow_but(["untied embeddings, fewer layers"], VARIANTS))
def test_other_objectives_there_and_back(tmp_path, variant):
    """Also their settings of training."""
    config = EncoderConfig(**_encoder_fields(tf1.golden_fields("sdconv")), mask_padding=False)
    values = {"model_size": "tiny", "max_seq_length": 16, "generator_hidden_size": 0.5}
    values |= {"mask_prob": 0.25, "learning_rate": 1e-4, **VARIANTS[variant]}
    hparams = resolve_hparams(values, 97)
    tensors = tf1.random_tensors(hparams, config)
    moments = tf1.random_tensors(hparams, config, seed=1)
    tensors |= {f"{name}/adam_m": value for name, value in moments.items()}
    tensors |= {f"{name}/adam_v": value**2 for name, value in moments.items()}
    tensors["global_step"] = np.int64(5)
    fields = {**tf1.golden_fields("sdconv"), **values, "colour": "red"}
    source = tf1.write_original(tmp_path / "original", tensors, config=fields)
    assert any("colour" in note for note in tf1.convert(source, tmp_path / "model"))
    objective = load_objective(str(tmp_path / "model"))
    assert len(tf1.original_variables(objective)) == len(moments)
    to_elsewhere("tf1", str(tmp_path / "model"), str(tmp_path / "back"))
    tf1.assert_equal_tensors(tf1.read_tensors(tmp_path / "back"), tensors)
    tf1.convert(tmp_path / "back", tmp_path / "again")
    read, again = (load_hparams(str(tmp_path / name))[0] for name in ("model", "again"))
    if hparams.objective.own_networks()[2:] != ("generator_head",):  # which need no width
        assert again == read
    expected = {"learning_rate": 1e-4, "mask_prob": 0.25, **VARIANTS[variant]}
    assert {name: read.as_json()[name] for name in expected} == expected
    assert load(str(tmp_path / "again")).trained_length == 16


@pytest.mark.parametrize("size", ["convbert-medium-small", "convbert-base"])
@pytest.mark.slow  # needs ten to twenty seconds and up to 2 GB of memory each
def test_published_sizes_there_and_back(tmp_path, size):
    hparams = resolve_hparams({"model_size": size}, named_size(size).vocab_size)
    tensors = tf1.random_tensors(hparams, named_size(size))
    tensors["global_step"] = np.int64(1_000_000)
    named = {"vocab_size": 30522, "name": "model.ckpt-1000000"}
    source = tf1.write_original(tmp_path / "original", tensors, **named)
    tf1.convert(source, tmp_path / "model", model_size=size)
    config = load_config(str(tmp_path / "model"))
    assert config == named_size(size).replace(mask_padding=False)
    found, _ = load_hparams(str(tmp_path / "model"))
    assert (found.model_size, found.model_hparam_overrides) == (size, {"mask_padding": False})
    assert found.objective == hparams.objective
    to_elsewhere("tf1", str(tmp_path / "model"), str(tmp_path / "back"))
    tf1.assert_equal_tensors(tf1.read_tensors(tmp_path / "back"), tensors)


def test_a_fine_tuned_checkpoint_gives_its_encoder(tmp_path):
    tensors = tf1.kept(tf1.golden_tensors("sdconv"), "electra/")
    tensors["task_specific/cola/dense/kernel"] = np.zeros([32, 2], np.float32)
    tensors["task_specific/cola/dense/kernel/adam_m"] = np.zeros([32, 2], np.float32)
    source = tf1.write_original(tmp_path / "original", tensors, config="sdconv")
    notes = tf1.convert(source, tmp_path / "model")
    assert any("not in" in note and "head, generator, generator_head" in note for note in notes)
    left = "task_specific/cola/dense/kernel, task_specific/cola/dense/kernel/adam_m"
    assert any(left in note for note in notes)
    np.testing.assert_array_equal(
        load_encoder(str(tmp_path / "model")).embeddings.word_embeddings,
        tensors["electra/embeddings/word_embeddings"],
    )
    with pytest.raises(InputError):
        load_objective(str(tmp_path / "model"))
    to_elsewhere("tf1", str(tmp_path / "model"), str(tmp_path / "back"))
    weights = {k: v for k, v in tf1.kept(tensors, "electra/").items() if "/adam_" not in k}
    tf1.assert_equal_tensors(tf1.read_tensors(tmp_path / "back"), weights)


@pytest.mark.parametrize(
    ("name", "step", "origin"),
    [
        ("model.ckpt-77", 77, "from the name, as there is no global_step"),
        ("electra_small", 0, "as there is no global_step"),
    ],
)
def test_without_moments_or_step(tmp_path, name, step, origin):
    tensors = {k: v for k, v in tf1.golden_tensors("sdconv").items() if "/adam_" not in k}
    del tensors["global_step"]
    source = tf1.write_original(tmp_path / "original", tensors, config="sdconv", name=name)
    notes = tf1.convert(source, tmp_path / "model")
    assert any("it starts afresh" in note for note in notes)
    assert f"step {step}, {origin}" in notes
    assert load(str(tmp_path / "model")).optimizer is None
    to_elsewhere("tf1", str(tmp_path / "model"), str(tmp_path / "back"))
    expected = {**tensors, "global_step": np.int64(step)}
    tf1.assert_equal_tensors(tf1.read_tensors(tmp_path / "back"), expected)


def test_a_vocabulary_elsewhere(tmp_path):
    tensors = tf1.golden_tensors("electra")
    source = tf1.write_original(tmp_path / "original", tensors, config="electra")
    (tmp_path / "elsewhere").mkdir()
    os.rename(f"{source}/vocab.txt", tmp_path / "elsewhere" / "vocab.txt")
    with pytest.raises(InputError):
        tf1.convert(source, tmp_path / "model")
    options = {"vocab": str(tmp_path / "elsewhere"), "do_lower_case": False}
    notes = tf1.convert(source, tmp_path / "model", **options)
    assert any("97 tokens, do_lower_case False, strip_accents False" in note for note in notes)
    vocabulary = Vocabulary.load(tmp_path / "model")
    assert (vocabulary.do_lower_case, vocabulary.strip_accents) == (False, False)
    assert load_hparams(str(tmp_path / "model"))[0].do_lower_case is False


def test_single_moments_that_are_missing_are_zero_and_named(tmp_path):
    """The original keeps none of a variable that no loss reaches."""
    tensors, name = tf1.golden_tensors("sdconv"), "generator_predictions/output_bias"
    for ending in MOMENTS:
        del tensors[name + ending]
    source = tf1.write_original(tmp_path / "original", tensors, config="sdconv")
    notes = tf1.convert(source, tmp_path / "model")
    assert f"moments not in the checkpoint are zero: {name}/adam_m, {name}/adam_v" in notes
    conversion = load(str(tmp_path / "model"))
    for moment in conversion.optimizer.slots(conversion.objective.generator_head.output_bias):
        np.testing.assert_array_equal(moment, 0.0)
