"""An objective from outside the package: one file, one call, and the ordinary commands."""

import hashlib
import json
import pathlib
import shutil

import numpy as np
import pytest

from convbert.checkpoints.formats import to_elsewhere
from convbert.common import plugins
from convbert.common.errors import InputError
from convbert.model import DiscriminatorHead
from convbert.pretrain import objectives
from convbert.pretrain.hparams import parse_hparams, resolve_hparams, split_hparams
from convbert.pretrain.load import load_encoder, load_hparams, load_objective
from convbert.pretrain.objectives.base import REPLACED_TOKENS
from convbert.serving.load import load_model_directory
from tests import command_support
from tests.pretraining_support import HPARAMS as SMALL
from tests.pretraining_support import arguments, build_data, metrics

FILE = pathlib.Path(__file__).parents[1] / "outside" / "shuffled_token_detection.py"
NAME = "shuffled_token_detection"
HPARAMS = {
    **SMALL,
    **{"objective": NAME, "shuffle_prob": 0.3, "train_batch_size": 8, "num_train_steps": 6},
    **{"iterations_per_loop": 1, "save_checkpoints_steps": 3},
}


@pytest.fixture(scope="module", autouse=True)
def registered():
    plugins.load([str(FILE)])


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("outside")
    build_data(folder, words=[f"w{i}" for i in range(30)], count=60, heldout_fraction=0.2)
    shutil.copy(FILE, folder / FILE.name)
    pretrain(folder, folder / "model", "--do_eval")
    return folder


def pretrain(folder, model_dir, *flags, status=0):
    plugin = folder / FILE.name
    line = arguments(folder / "data", model_dir, defaults=HPARAMS, plugins=plugin)
    return command_support.run("run_pretraining.py", *line, *flags, status=status).stderr


def test_its_settings_are_read_beside_the_others():
    values = {"objective": NAME, "shuffle_prob": 0.2, "num_train_steps": 10, "gen_weight": 2.0}
    hparams = resolve_hparams(split_hparams(values)[0], 100)
    assert hparams.as_json().items() >= {"objective": NAME, "shuffle_prob": 0.2}.items()
    assert "gen_weight" not in hparams.as_json()
    assert parse_hparams(hparams.as_json()) == hparams
    with pytest.raises(InputError):
        resolve_hparams({"objective": NAME, "shuffle_prob": 2.0}, 100)


@pytest.mark.slow  # a command each
def test_it_trains_and_resumes_but_not_when_the_file_is_edited(trained, tmp_path):
    copy, model = trained / FILE.name, trained / "model"
    record = json.loads((model / "hparams.json").read_text())["hparams"]
    assert record["shuffle_prob"] == 0.3
    assert "mask_prob" not in record
    whole = metrics(model)
    assert [(row["step"], row["split"]) for row in whole][-2:] == [(6, "train"), (6, "heldout")]
    shutil.copytree(model, tmp_path / "model")
    for path in (tmp_path / "model" / "checkpoints").glob("model.ckpt-6.*"):
        path.unlink()
    assert "resuming from step 3 of 6" in pretrain(trained, tmp_path / "model", "--do_eval")
    assert metrics(tmp_path / "model") == whole
    digest = hashlib.sha256(FILE.read_bytes()).hexdigest()
    assert record["plugins"] == {str(copy): digest}
    copy.write_text(FILE.read_text() + "\n# edited\n")
    try:
        assert str(copy) in pretrain(trained, model, "--do_eval", status=1)
    finally:
        shutil.copy(FILE, copy)


@pytest.mark.slow  # a command each
def test_it_is_evaluated_loaded_and_served(trained, tmp_path):
    shutil.copytree(trained / "model", tmp_path / "model")
    before = metrics(tmp_path / "model")
    said = pretrain(trained, tmp_path / "model", "--nodo_train", "--do_eval")
    assert said.splitlines()[-1].startswith("heldout: ")
    after = metrics(tmp_path / "model")
    assert len(after) == len(before)
    for found, expected in zip(after, before, strict=True):
        assert found.pop("split") == expected.pop("split")
        assert found == pytest.approx(expected, rel=1e-5)
    objective = load_objective(str(tmp_path / "model"))
    encoder = load_encoder(str(tmp_path / "model"))  # what fine-tuning starts from
    for one, other in zip(encoder.variables, objective.encoder.variables, strict=True):
        np.testing.assert_array_equal(one, other)
    model = load_model_directory(str(trained / "model"))  # and what is served
    assert [offer.name for offer in model.offers] == ["replaced_tokens"]
    assert isinstance(model.offers[REPLACED_TOKENS][1], DiscriminatorHead)
    assert model.scoring_method.name == "discriminator_heuristic"
    hparams, _ = load_hparams(str(trained / "model"))
    assert model.hparams == hparams


@pytest.mark.slow  # a command each
def test_a_conversion_takes_the_encoder_alone(trained, tmp_path):
    with open(trained / "model" / "hparams.json") as file:
        assert objectives.get(json.load(file)["hparams"]["objective"]).converted == ("encoder",)
    for target in ("huggingface", "tf1"):  # the second's head has an activation, this one none
        notes = to_elsewhere(target, str(trained / "model"), str(tmp_path / target))
        assert any(NAME in note for note in notes)
    assert (tmp_path / "huggingface" / "model.safetensors").exists()
