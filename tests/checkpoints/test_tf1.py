"""The original's names of our variables, and its files: which one is taken, what is written."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from checkpoints import tf1
from checkpoints.tf1_file import TensorFile, find_checkpoint, write_checkpoint
from model import build_encoder
from tests.golden_support import CHECKPOINT, GOLDEN, load_golden
from tests.model_support import TINY
from tests.tf1_support import read_tensors


def test_every_network_variable_has_a_name():
    golden = load_golden("sdconv_grouped")
    for network, names in (
        (golden.discriminator, tf1.encoder_variables(golden.discriminator)),
        (golden.generator, tf1.encoder_variables(golden.generator, "generator")),
        (golden.discriminator_head, tf1.head_variables(golden.discriminator_head)),
    ):
        assert {v.ref() for v in names.values()} == {v.ref() for v in network.variables}
        assert len(names) == len(network.variables)


def test_every_tensor_has_a_variable_and_two_moments():
    stored = dict(tf.train.list_variables(str(GOLDEN / "sdconv" / CHECKPOINT)))
    names = load_golden("sdconv").variables
    moments = {f"{name}/{slot}" for name in names for slot in tf1.SLOTS}
    assert set(stored) == {*names, *moments, tf1.GLOBAL_STEP}


def test_scopes():
    names = tf1.encoder_variables(build_encoder(TINY), "generator", embeddings_scope="generator")
    assert all(name.startswith("generator/") for name in names)
    assert "generator/embeddings/word_embeddings" in names


PREFIX = str(GOLDEN / "sdconv" / CHECKPOINT)


def test_what_is_written_is_read_by_tensorflow(tmp_path):
    tensors = {"b/a": np.float32([[1, 2], [3, 4]]), "global_step": np.int64(7)}
    write_checkpoint(str(tmp_path / "model.ckpt-7"), tensors)
    found = read_tensors(tmp_path)  # the folder: its `checkpoint` file names the checkpoint
    assert set(found) == set(tensors)
    for name, value in tensors.items():
        np.testing.assert_array_equal(found[name], value)
        assert found[name].dtype == value.dtype
    assert TensorFile(str(tmp_path / "model.ckpt-7")).read_step("global_step") == 7


def test_a_path_or_a_folder():
    for path in (PREFIX, PREFIX + ".index", str(GOLDEN / "sdconv")):
        assert find_checkpoint(path) == (PREFIX, [])


def test_of_several_the_latest_is_taken_and_said(tmp_path):
    for step in (9, 100, 20):
        write_checkpoint(str(tmp_path / f"model.ckpt-{step}"), {"a": np.float32([step])})
    chosen, _ = find_checkpoint(str(tmp_path))  # `checkpoint` names what was written last
    assert chosen.endswith("model.ckpt-20")
    (tmp_path / "checkpoint").unlink()
    chosen, (note,) = find_checkpoint(str(tmp_path))
    assert chosen.endswith("model.ckpt-100")
    assert all(f"model.ckpt-{step}" in note for step in (9, 100, 20))
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "/elsewhere/model.ckpt-300"')
    assert find_checkpoint(str(tmp_path))[0] == chosen
