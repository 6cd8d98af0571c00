"""Files of TensorFlow 1 checkpoints: which one is taken, and what damage is called."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from checkpoints.tf1_file import TensorFile, find_checkpoint, step_of_name, write_checkpoint
from errors import InputError
from tests.golden_support import CHECKPOINT, GOLDEN
from tests.tf1_support import read_tensors

PREFIX = str(GOLDEN / "sdconv" / CHECKPOINT)
NAME = "electra/encoder/layer_0/attention/self/query/kernel"


def test_what_is_written_is_read_by_tensorflow(tmp_path):
    tensors = {"b/a": np.float32([[1, 2], [3, 4]]), "global_step": np.int64(7)}
    write_checkpoint(str(tmp_path / "model.ckpt-7"), tensors)
    found = read_tensors(tmp_path)  # the folder: its `checkpoint` file names the checkpoint
    assert set(found) == set(tensors)
    for name, value in tensors.items():
        np.testing.assert_array_equal(found[name], value)
        assert found[name].dtype == value.dtype
    assert TensorFile(str(tmp_path / "model.ckpt-7")).read_integer("global_step") == 7


def test_a_path_or_a_folder(tmp_path):
    assert find_checkpoint(PREFIX) == (PREFIX, [])
    assert find_checkpoint(PREFIX + ".index") == (PREFIX, [])
    assert find_checkpoint(str(GOLDEN / "sdconv")) == (PREFIX, [])
    assert step_of_name(PREFIX) == 0
    assert step_of_name("electra_small") is None
    with pytest.raises(InputError, match=r"there is no checkpoint \(NAME\.index\) here$"):
        find_checkpoint(str(tmp_path))
    (tmp_path / "checkpoints").mkdir()
    with pytest.raises(InputError, match="it is a model directory, which --target takes"):
        find_checkpoint(str(tmp_path))


def test_of_several_the_latest_is_taken_and_said(tmp_path):
    for step in (9, 100, 20):
        write_checkpoint(str(tmp_path / f"model.ckpt-{step}"), {"a": np.float32([step])})
    chosen, notes = find_checkpoint(str(tmp_path))  # `checkpoint` names what was written last
    assert chosen.endswith("model.ckpt-20")
    (tmp_path / "checkpoint").unlink()
    chosen, notes = find_checkpoint(str(tmp_path))
    assert chosen.endswith("model.ckpt-100")
    assert notes == [
        f"of several checkpoints the latest, {tmp_path}/model.ckpt-100, is taken;"
        " not model.ckpt-20, model.ckpt-9"
    ]
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "/elsewhere/model.ckpt-300"')
    assert find_checkpoint(str(tmp_path))[0] == chosen


@pytest.fixture
def damaged(tmp_path):
    """A copy of a golden checkpoint, to be damaged; its prefix."""
    for part in (".index", ".data-00000-of-00001"):
        shutil.copyfile(PREFIX + part, tmp_path / f"{CHECKPOINT}{part}")
    return tmp_path / CHECKPOINT


def test_no_checkpoint(tmp_path):
    with pytest.raises(InputError, match=r"model\.ckpt-0\.index: there is no such file"):
        TensorFile(str(tmp_path / "model.ckpt-0"))


def test_missing_parts_are_named(damaged):
    data = damaged.with_name(f"{CHECKPOINT}.data-00000-of-00001")
    data.rename(damaged.with_name(f"{CHECKPOINT}.data-00000-of-00002"))
    with pytest.raises(InputError, match=r"data-00001-of-00002: this part .* one of 2, is missing"):
        TensorFile(str(damaged))
    damaged.with_name(f"{CHECKPOINT}.data-00000-of-00002").unlink()
    with pytest.raises(InputError, match=r"data-00000-of-00001: there is no such file"):
        TensorFile(str(damaged))


def test_truncated_data_names_the_tensor(damaged):
    data = damaged.with_name(f"{CHECKPOINT}.data-00000-of-00001")
    data.write_bytes(data.read_bytes()[:100_000])
    file = TensorFile(str(damaged))
    file.read("electra/embeddings/word_embeddings", [97, 16])  # stands before the cut
    expected = "generator_predictions/output_bias cannot be read, as from a file that was cut short"
    with pytest.raises(InputError, match=expected):
        file.read("generator_predictions/output_bias", [97])


@pytest.mark.parametrize("length", [0, 3000])
def test_truncated_index(damaged, length):
    index = damaged.with_name(f"{CHECKPOINT}.index")
    index.write_bytes(index.read_bytes()[:length])
    with pytest.raises(InputError, match=r"\.index: not a readable checkpoint"):
        TensorFile(str(damaged))


def test_what_a_tensor_should_be():
    file = TensorFile(PREFIX)
    assert file.read(NAME, [32, 16]).dtype == np.float32
    with pytest.raises(InputError, match=r"query/kernel should have shape \[32, 8\]\. Received"):
        file.read(NAME, [32, 8])
    with pytest.raises(InputError, match=r"tensor electra/x of shape \[2\] is missing"):
        file.read("electra/x", [2])
    with pytest.raises(InputError, match="query/kernel should have 3 axes"):
        file.shape(NAME, 3)
    with pytest.raises(InputError, match="electra/x is missing"):
        file.shape("electra/x", 1)
    with pytest.raises(InputError, match="global_step should be of type float32"):
        file.read("global_step", [])


def test_numbers_that_are_not_finite_or_whole(tmp_path):
    bad = {"a": np.float32([1, np.nan, np.inf]), "step": np.float32(1.5)}
    write_checkpoint(str(tmp_path / "c"), bad)
    file = TensorFile(str(tmp_path / "c"))
    with pytest.raises(InputError, match=r"a should hold finite .* 2 of 3 are NaN"):
        file.read("a", [3])
    with pytest.raises(InputError, match="step should be an integer"):
        file.read_integer("step")


def test_what_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        write_checkpoint(str(tmp_path / "file" / "c"), {"a": np.float32([1])})
