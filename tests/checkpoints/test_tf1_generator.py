"""Original checkpoints of a generator without its discriminator."""

from __future__ import annotations

import numpy as np
import pytest

from checkpoints.formats import to_elsewhere
from pretrain.load import load_encoder, load_objective
from tests.golden_support import load_golden
from tests.tf1_support import (
    assert_equal_tensors,
    convert,
    golden_tensors,
    kept,
    read_tensors,
    write_original,
)

TOLERANCE = 2e-5
GENERATOR = ("generator/", "generator_predictions/", "electra/embeddings/")


def generator_of(name, *, untied=False):
    """A golden folder's tensors without the discriminator's."""
    tensors = kept(golden_tensors(name), *GENERATOR)
    if untied:
        tensors = {k.replace("electra/", "generator/"): value for k, value in tensors.items()}
    return tensors


@pytest.mark.parametrize("untied", [False, True])
@pytest.mark.parametrize("config", [None, "sdconv"])
def test_a_generator_alone_is_a_masked_language_model(tmp_path, untied, config):
    """With a `config.json` that describes its discriminator, or none."""
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


def test_a_generator_without_its_head(tmp_path):
    """Described by a `config.json` of its own, in which heads are not of width 64."""
    tensors = kept(generator_of("electra"), "generator/", "electra/")
    heads = {"num_attention_heads": 2, "hidden_size": 16, "conv_type": "noconv"}
    notes = convert(
        write_original(tmp_path / "original", tensors, config=heads), tmp_path / "model"
    )
    assert any(n.startswith("not in the checkpoint: head; ") for n in notes)
    assert load_encoder(str(tmp_path / "model")).config.num_attention_heads == 2


def test_embeddings_of_a_discriminator_that_is_gone_are_named(tmp_path):
    tensors = generator_of("sdconv", untied=True)
    tensors["electra/embeddings/word_embeddings"] = np.zeros([97, 16], np.float32)
    notes = convert(write_original(tmp_path / "original", tensors), tmp_path / "model")
    left = "electra/embeddings/word_embeddings"
    assert any(left in note for note in notes)
