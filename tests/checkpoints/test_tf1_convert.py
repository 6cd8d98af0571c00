"""Original checkpoints to model directories and back: the same outputs, the same tensors."""

from __future__ import annotations

import json
import os
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from checkpoints import tf1
from checkpoints.formats import to_elsewhere
from checkpoints.model_directory import load
from checkpoints.tf1_config import config_fields
from data.vocabulary import Vocabulary
from errors import InputError
from model import load_config, named_size
from pretrain.hparams import resolve_hparams
from pretrain.load import load_encoder, load_hparams, load_objective, stored_parts
from tests import command_support
from tests.golden_support import CHECKPOINT, GOLDEN, MODELS, load_golden
from tests.tf1_support import (
    assert_equal_tensors,
    convert,
    golden_fields,
    golden_tensors,
    kept,
    random_tensors,
    read_tensors,
    write_original,
)
from training.checkpointing import latest_checkpoint

TOLERANCE = 2e-5


@pytest.fixture(scope="module", params=MODELS)
def golden(request, tmp_path_factory):
    """A golden folder's weights with moments and a step, converted: name, tensors, folders."""
    name, folder = request.param, tmp_path_factory.mktemp(request.param)
    tensors = golden_tensors(name)
    source = write_original(folder / "original", tensors, config=name)
    convert(source, folder / "model")
    return name, tensors, folder


def test_outputs_are_the_originals(golden):
    name, _, folder = golden
    loaded, reference = load_objective(str(folder / "model")), load_golden(name)
    expected = reference.reference
    large = loaded.encoder(reference.features("corrupted_input_ids"), output_attentions=True)
    small = loaded.generator(reference.features("masked_input_ids"), output_attentions=True)
    logits = loaded.generator_head(small.sequence, expected["masked_lm_positions"])
    computed = {
        "discriminator_embedding_output": large.embedding_output,
        "discriminator_layers": np.stack(large.hidden_states),
        "discriminator_attention": np.stack(large.attention_probs),
        "disc_probs": tf.sigmoid(loaded.head(large.sequence)),
        "generator_layers": np.stack(small.hidden_states),
        "generator_attention": np.stack(small.attention_probs),
        "mlm_logits": logits,
    }
    for key, value in computed.items():
        np.testing.assert_allclose(value, expected[key], rtol=0, atol=TOLERANCE, err_msg=key)


def test_back_again_bit_for_bit(golden):
    name, tensors, folder = golden
    notes = to_elsewhere("tf1", str(folder / "model"), str(folder / "back"))
    assert_equal_tensors(read_tensors(folder / "back"), tensors)
    assert os.path.exists(folder / "back" / "model.ckpt-1234.index")
    assert any(f"{len(tensors)} tensors, step 1234" in note for note in notes)
    fields = json.loads((folder / "back" / "config.json").read_text())
    expected = golden_fields(name)
    assert {key: fields[key] for key in expected} == expected
    original = (folder / "original" / "vocab.txt").read_bytes()
    assert (folder / "back" / "vocab.txt").read_bytes() == original


def test_what_the_model_directory_says(golden):
    name, _, folder = golden
    model = str(folder / "model")
    config, vocabulary = load_config(model), Vocabulary.load(model)
    assert config == load_golden(name).config
    assert config.mask_padding is False
    hparams, run = load_hparams(model)
    assert hparams.objective.generator_config(config) == load_golden(name).generator_config
    again = resolve_hparams(load_record(model), vocabulary.size)  # as run_pretraining.py reads it
    assert again == hparams
    assert run["converted"]["source"] == "tf1"
    assert run["converted"]["max_seq_length"] is None  # the original's file does not say it
    assert stored_parts(latest_checkpoint(model)) == {
        *("encoder", "head", "generator", "generator_head", "optimizer")
    }
    conversion = load(model)
    assert conversion.step == conversion.optimizer.iterations == 1234
    assert conversion.config == config
    for a, b in zip(load_encoder(model).get_weights(), conversion.objective.encoder.get_weights()):
        np.testing.assert_array_equal(a, b)


def load_record(model):
    record = json.loads((pathlib.Path(model) / "hparams.json").read_text())["hparams"]
    return {name: value for name, value in record.items() if name != "vocabulary"}


def test_moments_go_to_their_variables(golden):
    _, tensors, folder = golden
    conversion = load(str(folder / "model"))
    for name, variable in tf1.objective_variables(conversion.objective).items():
        for slot, moment in zip(tf1.SLOTS, conversion.optimizer.slots(variable)):
            np.testing.assert_array_equal(moment, tensors[f"{name}/{slot}"])


VARIANTS = {
    "untied embeddings": {"untied_generator_embeddings": True},
    "discriminator is the generator": {"untied_generator": False},
    "masked language model": {"objective": "masked_lm"},
    "fewer layers in the generator": {"generator_layers": 0.5},
}


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
def test_other_objectives_there_and_back(tmp_path, changes):
    config = load_golden("sdconv").config
    hparams = resolve_hparams(
        {
            **{"model_size": "tiny", "max_seq_length": 16, "generator_hidden_size": 0.5},
            **changes,
        },
        97,
    )
    tensors = random_tensors(hparams, config)
    moments = random_tensors(hparams, config, seed=1)
    tensors |= {f"{name}/adam_m": value for name, value in moments.items()}
    tensors |= {f"{name}/adam_v": value**2 for name, value in moments.items()}
    tensors["global_step"] = np.int64(5)
    fields = config_fields(
        config, getattr(hparams.objective, "generator_config", lambda c: None)(config), hparams
    )
    convert(write_original(tmp_path / "original", tensors, config=fields), tmp_path / "model")
    objective = load_objective(str(tmp_path / "model"))
    assert len(tf1.objective_variables(objective)) == len(moments)
    to_elsewhere("tf1", str(tmp_path / "model"), str(tmp_path / "back"))
    assert_equal_tensors(read_tensors(tmp_path / "back"), tensors)


@pytest.mark.parametrize(
    "size",
    [
        "convbert-small",
        "convbert-medium-small",
        "convbert-base",
        "electra-base",
    ],
)
@pytest.mark.slow  # needs ten to twenty seconds and up to 2 GB of memory each
def test_published_sizes_there_and_back(tmp_path, size):
    hparams = resolve_hparams({"model_size": size}, named_size(size).vocab_size)
    tensors = random_tensors(hparams, named_size(size))
    tensors["global_step"] = np.int64(1_000_000)
    source = write_original(
        tmp_path / "original", tensors, vocab_size=30522, name="model.ckpt-1000000"
    )
    convert(source, tmp_path / "model", model_size=size)
    config = load_config(str(tmp_path / "model"))
    assert config == named_size(size).replace(mask_padding=False)
    found, _ = load_hparams(str(tmp_path / "model"))
    assert found.model_size == size
    assert found.model_hparam_overrides == {"mask_padding": False}
    assert found.objective == hparams.objective
    to_elsewhere("tf1", str(tmp_path / "model"), str(tmp_path / "back"))
    assert_equal_tensors(read_tensors(tmp_path / "back"), tensors)


def test_a_fine_tuned_checkpoint_gives_its_encoder(tmp_path):
    tensors = kept(golden_tensors("sdconv"), "electra/")
    tensors["task_specific/cola/dense/kernel"] = np.zeros([32, 2], np.float32)
    tensors["task_specific/cola/dense/kernel/adam_m"] = np.zeros([32, 2], np.float32)
    source = write_original(tmp_path / "original", tensors, config="sdconv")
    notes = convert(source, tmp_path / "model")
    assert (
        "not in the checkpoint: head, generator, generator_head; what there is can be fine-tuned,"
        " or trained on with --new_networks"
    ) in notes
    left = "task_specific/cola/dense/kernel, task_specific/cola/dense/kernel/adam_m"
    reason = "the head of a fine-tuned task"
    assert any(reason in note and left in note for note in notes)
    assert any(n.startswith("left out: the optimizer's moments") for n in notes)
    np.testing.assert_array_equal(
        load_encoder(str(tmp_path / "model")).embeddings.word_embeddings,
        tensors["electra/embeddings/word_embeddings"],
    )
    with pytest.raises(InputError):
        load_objective(str(tmp_path / "model"))
    to_elsewhere("tf1", str(tmp_path / "model"), str(tmp_path / "back"))
    weights = {k: v for k, v in kept(tensors, "electra/").items() if "/adam_" not in k}
    assert_equal_tensors(read_tensors(tmp_path / "back"), weights)


@pytest.mark.parametrize(
    ("scopes", "config", "missing", "there"),
    [
        (
            ("electra/", "discriminator_predictions/"),
            "electra",
            "generator, generator_head",
            ["head"],
        ),
        # A `config.json` of its own, in which heads are not of width 64.
        (
            ("generator/", "electra/embeddings/"),
            {**golden_fields("electra"), "num_attention_heads": 2, "hidden_size": 16},
            "head",
            [],
        ),
    ],
)
def test_networks_that_are_missing_are_named(tmp_path, scopes, config, missing, there):
    tensors = kept(golden_tensors("electra"), *scopes)
    source = write_original(tmp_path / "original", tensors, config=config)
    notes = convert(source, tmp_path / "model")
    assert any(n.startswith(f"not in the checkpoint: {missing}; ") for n in notes)
    conversion = load(str(tmp_path / "model"))
    heads = ("head", "generator", "generator_head")
    assert [n for n in heads if getattr(conversion.objective, n) is not None] == there
    assert conversion.optimizer is None
    assert conversion.step == 1234


@pytest.mark.parametrize(
    ("name", "step", "origin"),
    [
        ("model.ckpt-77", 77, "from the name, as there is no global_step"),
        ("electra_small", 0, "as there is no global_step"),
    ],
)
def test_without_moments_or_step(tmp_path, name, step, origin):
    tensors = {k: v for k, v in golden_tensors("sdconv").items() if "/adam_" not in k}
    del tensors["global_step"]
    source = write_original(tmp_path / "original", tensors, config="sdconv", name=name)
    notes = convert(source, tmp_path / "model")
    assert "the checkpoint holds no moments of the optimizer: it starts afresh" in notes
    assert f"step {step}, {origin}" in notes
    assert load(str(tmp_path / "model")).optimizer is None
    to_elsewhere("tf1", str(tmp_path / "model"), str(tmp_path / "back"))
    expected = {**tensors, "global_step": np.int64(step)}
    assert_equal_tensors(read_tensors(tmp_path / "back"), expected)


def test_vocabulary_and_config_elsewhere(tmp_path):
    source = write_original(tmp_path / "original", golden_tensors("electra"))
    (tmp_path / "elsewhere").mkdir()
    os.rename(f"{source}/vocab.txt", tmp_path / "elsewhere" / "vocab.txt")
    config = {"config": str(GOLDEN / "electra")}
    with pytest.raises(InputError):
        convert(source, tmp_path / "model", **config)
    options = {"vocab": str(tmp_path / "elsewhere"), "do_lower_case": False}
    with pytest.raises(InputError):
        convert(source, tmp_path / "model", **options, config=str(tmp_path / "absent.json"))
    notes = convert(source, tmp_path / "model", **options, **config)
    assert any("97 tokens, do_lower_case False, strip_accents False" in note for note in notes)
    vocabulary = Vocabulary.load(tmp_path / "model")
    assert (vocabulary.do_lower_case, vocabulary.strip_accents) == (False, False)
    assert load_hparams(str(tmp_path / "model"))[0].do_lower_case is False
    assert load_config(str(tmp_path / "model")).num_attention_heads == 4


def test_single_moments_that_are_missing_are_zero_and_named(tmp_path):
    """The original keeps none of a variable that no loss reaches."""
    tensors, name = golden_tensors("sdconv"), "generator_predictions/output_bias"
    for slot in tf1.SLOTS:
        del tensors[f"{name}/{slot}"]
    source = write_original(tmp_path / "original", tensors, config="sdconv")
    notes = convert(source, tmp_path / "model")
    assert f"moments not in the checkpoint are zero: {name}/adam_m, {name}/adam_v" in notes
    conversion = load(str(tmp_path / "model"))
    for moment in conversion.optimizer.slots(conversion.objective.generator_head.output_bias):
        np.testing.assert_array_equal(moment, 0.0)


def test_the_length_of_training_goes_along_where_it_is_known(tmp_path):
    fields = {**golden_fields("sdconv"), "max_seq_length": 24}
    convert(
        write_original(tmp_path / "original", golden_tensors("sdconv"), config=fields),
        tmp_path / "model",
    )
    assert load(str(tmp_path / "model")).trained_length == 24
    to_elsewhere("tf1", str(tmp_path / "model"), str(tmp_path / "back"))
    assert json.loads((tmp_path / "back" / "config.json").read_text())["max_seq_length"] == 24
    source = write_original(tmp_path / "other", golden_tensors("sdconv"), config="sdconv")
    convert(source, tmp_path / "unknown")
    to_elsewhere("tf1", str(tmp_path / "unknown"), str(tmp_path / "again"))
    assert "max_seq_length" not in json.loads((tmp_path / "again" / "config.json").read_text())


def command(*arguments):
    return command_support.run("-m", "checkpoints.convert", *arguments)


def test_the_command_both_ways(tmp_path):
    source = GOLDEN / "sdconv_grouped"
    done = command(
        *("--source=tf1", f"--input={source}/{CHECKPOINT}", f"--output={tmp_path}/model")
    )
    assert done.returncode == 0, done.stderr
    assert f"written: {tmp_path}/model" in done.stdout
    done = command("--target=tf1", f"--input={tmp_path}/model", f"--output={tmp_path}/back")
    assert done.returncode == 0, done.stderr
    assert_equal_tensors(read_tensors(tmp_path / "back"), read_tensors(source / CHECKPOINT))


GENERATOR_FIELDS = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 64}
GENERATOR = ("generator/", "generator_predictions/", "electra/embeddings/")


def generator_of(name, *, untied=False):
    """A golden folder's tensors without the discriminator's."""
    tensors = kept(golden_tensors(name), *GENERATOR)
    if untied:
        tensors = {k.replace("electra/", "generator/"): value for k, value in tensors.items()}
    return tensors


@pytest.mark.parametrize("untied", [False, True])
@pytest.mark.parametrize(
    "config", ["sdconv", {**golden_fields("sdconv"), **GENERATOR_FIELDS}], ids=["both", "own"]
)
def test_a_generator_alone_is_a_masked_language_model(tmp_path, untied, config):
    """With a `config.json` that describes its discriminator, or itself."""
    tensors = generator_of("sdconv", untied=untied)
    source = write_original(tmp_path / "original", tensors, config=config)
    notes = convert(source, tmp_path / "model")
    assert any("generator without a discriminator" in n for n in notes)
    assert "the optimizer's moments are carried" in notes
    objective, reference = load_objective(str(tmp_path / "model")), load_golden("sdconv")
    assert objective.encoder.config == reference.generator_config
    states = objective.encoder(reference.features("masked_input_ids"), output_attentions=True)
    logits = objective.head(states.sequence, reference.reference["masked_lm_positions"])
    for found, name in (
        (np.stack(states.hidden_states), "generator_layers"),
        (logits, "mlm_logits"),
    ):
        np.testing.assert_allclose(found, reference.reference[name], rtol=0, atol=TOLERANCE)
    # Back again it is a masked language model of the original's code, with the same values.
    to_elsewhere("tf1", str(tmp_path / "model"), str(tmp_path / "back"))
    names = {k: k.replace("generator/", "electra/") for k in tensors}
    expected = {names[k]: value for k, value in tensors.items()}
    assert_equal_tensors(read_tensors(tmp_path / "back"), expected)
