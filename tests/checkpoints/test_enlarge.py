"""A larger model that begins with a smaller one's weights."""

from __future__ import annotations

import numpy as np
import pytest

from convbert.checkpoints.enlarge import enlarge, tiled
from convbert.checkpoints.model_directory import Conversion, describe_pretraining, save
from convbert.common.errors import InputError
from convbert.data.vocabulary import SPECIAL_TOKENS, Vocabulary
from convbert.pretrain.load import SpecialIds, load_hparams, load_objective
from tests.model.test_modern import TINY as MODERN
from tests.model_support import TINY, randomize

LARGER = {"hidden_size": 24, "embedding_size": 24, "num_hidden_layers": 7, "intermediate_size": 20}


def written(config, folder, **values):
    tokens = [*SPECIAL_TOKENS, *(f"w{i}" for i in range(config.vocab_size - 5))]
    words = Vocabulary(tuple(tokens))
    hparams = describe_pretraining(config, words, **values)
    objective = hparams.build_objective(config, SpecialIds(words))
    for name in hparams.objective.networks:
        randomize(getattr(objective, name))
    save(Conversion(config, hparams, words, objective), str(folder), {})
    return load_objective(str(folder))


def test_the_centre_is_the_smaller_array():
    value = np.arange(6).reshape(2, 3)
    found = tiled(value, (4, 8))
    np.testing.assert_array_equal(found[1:3, 2:5], value)
    np.testing.assert_array_equal(found[1], [1, 2, 0, 1, 2, 0, 1, 2])
    np.testing.assert_array_equal(found[:, 2], [3, 0, 3, 0])
    np.testing.assert_array_equal(tiled(value, (2, 3)), value)


def test_every_variable(tmp_path):
    """Layer i of 7 begins with layer (i - 1) mod 4; halves of the gated layer apart."""
    small = written(MODERN, tmp_path / "small", objective="masked_lm").encoder
    fields = {**vars(MODERN), **LARGER}
    del fields["vocab_size"]
    notes = enlarge(str(tmp_path / "small"), "modern-tiny", fields, str(tmp_path / "large"))
    large = load_objective(str(tmp_path / "large"))
    for i, layer in enumerate(large.encoder.encoder_layers):
        source = small.encoder_layers[(i - 1) % 4]
        query = tiled(source.mixer.query.kernel.numpy(), (24, 24))
        np.testing.assert_array_equal(layer.mixer.query.kernel, query)
        halves = np.split(source.intermediate.kernel.numpy(), 2, -1)
        expected = np.concatenate([tiled(half, (24, 20)) for half in halves], -1)
        np.testing.assert_array_equal(layer.intermediate.kernel, expected)
        if i and source.mixer_norm is not None:
            gamma = tiled(source.mixer_norm.gamma.numpy(), (24,))
            np.testing.assert_array_equal(layer.mixer_norm.gamma, gamma)
    words = small.embeddings.word_embeddings.numpy()
    np.testing.assert_array_equal(
        large.encoder.embeddings.word_embeddings, tiled(words, (len(words), 24))
    )
    assert large.head.embeddings is large.encoder.embeddings
    assert "layer_1/mixer_norm" in notes[0]  # of a layer that begins with the first, without norm
    assert load_hparams(str(tmp_path / "large"))[0].objective.name == "masked_lm"


def test_generator_and_discriminator(tmp_path):
    small = written(TINY, tmp_path / "small", generator_hidden_size=0.5)
    fields = {**vars(TINY), "num_hidden_layers": TINY.num_hidden_layers + 2}
    del fields["vocab_size"]
    assert not enlarge(str(tmp_path / "small"), "convbert-tiny", fields, str(tmp_path / "large"))
    large = load_objective(str(tmp_path / "large"))
    for name in ("encoder", "generator"):
        layers, deeper = (getattr(of, name).encoder_layers for of in (small, large))
        before = (len(deeper) - len(layers)) // 2
        for i, layer in enumerate(deeper):
            source = layers[(i - before) % len(layers)]
            np.testing.assert_array_equal(layer.output_dense.kernel, source.output_dense.kernel)
    for one, other in zip(large.head.variables, small.head.variables, strict=True):
        np.testing.assert_array_equal(one, other)


def test_what_is_not_larger(tmp_path):
    written(TINY, tmp_path / "small", objective="masked_lm")
    narrower = {**vars(TINY), "intermediate_size": TINY.intermediate_size // 2}
    del narrower["vocab_size"]
    for size, fields in (("convbert-tiny", narrower), ("modern-tiny", {})):
        with pytest.raises(InputError, match="--model_size"):
            enlarge(str(tmp_path / "small"), size, fields, str(tmp_path / "large"))
    assert not (tmp_path / "large").exists()
