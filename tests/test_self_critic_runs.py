"""A self-critic through the commands: converted, continued."""

import shutil

import numpy as np
import pytest

from checkpoints.formats import from_elsewhere, to_elsewhere
from checkpoints.model_directory import Options
from pretrain.load import load_encoder, load_objective
from pretrain.objectives.masked_lm_loss import MaskedLM
from pretrain.objectives.self_critic_loss import SelfCritic
from tests.pretraining_support import build_data, run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Data, and a finished run."""
    folder = tmp_path_factory.mktemp("critic")
    run(build_data(folder), folder / "whole", {"objective": "self_critic", "num_train_steps": 4})
    return folder


@pytest.mark.slow  # needs half a minute each: two runs
@pytest.mark.parametrize("target", ["huggingface", "tf1"])
def test_it_goes_elsewhere_and_comes_back(target, folder, tmp_path, capsys):
    """As a masked LM, of which a critic is made again; encoder and head are carried."""
    to_elsewhere(target, str(folder / "whole"), str(tmp_path / "theirs"))
    if target == "tf1" and not (tmp_path / "theirs" / "vocab.txt").exists():
        shutil.copy(folder / "whole" / "vocab.txt", tmp_path / "theirs")
    from_elsewhere(target, str(tmp_path / "theirs"), str(tmp_path / "back"), Options())
    ours, again = (load_objective(str(path)) for path in (folder / "whole", tmp_path / "back"))
    assert type(again) is MaskedLM
    for one, other in zip(ours.variables, again.variables, strict=True):
        np.testing.assert_array_equal(one, other)
    hparams = {"objective": "self_critic", "train_batch_size": 4, "max_seq_length": 32}
    options = {"continue_from": tmp_path / "back", "additional_steps": 2}
    run(folder / "data", tmp_path / "m", hparams, defaults={}, **options)
    assert "encoder, head;" in capsys.readouterr().err
    assert type(load_objective(str(tmp_path / "m"))) is SelfCritic
    assert (
        load_encoder(str(tmp_path / "m")).config == again.encoder.config
    )  # without `mask_padding`
