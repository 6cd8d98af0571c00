"""The original's files: which one is taken."""

from __future__ import annotations

import numpy as np

from checkpoints.tf1_file import find_checkpoint, write_checkpoint
from tests.golden_support import CHECKPOINT, GOLDEN


def test_a_path_or_a_folder():
    prefix = str(GOLDEN / "sdconv" / CHECKPOINT)
    for path in (prefix, prefix + ".index", str(GOLDEN / "sdconv")):
        assert find_checkpoint(path) == (prefix, [])


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
