"""Folders of checkpoints: found by their files, damage named, leftovers of kills removed."""

import errno
import os
import shutil

import pytest
import tensorflow as tf

from convbert.checkpoints.tf1_file import find_checkpoint
from convbert.common import storage
from convbert.common.errors import InputError
from convbert.training import checkpointing
from convbert.training.run_record import reject_other_run
from tests.damage_support import delete, empty, flip, shorten

STEPS = (5, 10, 15)


class Run:
    """A variable that is "trained": each step adds one."""

    def __init__(self, model_dir, max_to_keep=3, **options):
        self.step, self.weights = tf.Variable(0, dtype=tf.int64), tf.Variable(tf.zeros([40, 30]))
        checkpoint = tf.train.Checkpoint(step=self.step, weights=self.weights)
        options |= {"step": self.step, "max_to_keep": max_to_keep}
        self.manager = checkpointing.create_manager(checkpoint, str(model_dir), **options)

    def train_to(self, step):
        self.step.assign(step)
        self.weights.assign(tf.fill([40, 30], float(step)))
        checkpointing.save(self.manager, step)


@pytest.fixture
def model_dir(tmp_path):
    run = Run(tmp_path / "m")
    for step in STEPS:
        run.train_to(step)
    return tmp_path / "m"


def path_of(model_dir, name):
    return model_dir / "checkpoints" / name


PARTS = ("model.ckpt-15.index", "model.ckpt-15.data-00000-of-00001")
DAMAGES = [(change, part) for part in PARTS for change in (shorten, empty, flip, delete)]


def kept(model_dir):
    return sorted(p.name for p in (model_dir / "checkpoints").glob("*.index"))


@pytest.mark.parametrize(
    ("change", "name"), DAMAGES, ids=[f"{d.__name__}-{n[14:19]}" for d, n in DAMAGES]
)
def test_of_a_damaged_checkpoint_the_one_before_is_taken(change, name, model_dir, capsys):
    change(path_of(model_dir, name))
    assert checkpointing.latest_checkpoint(str(model_dir)).endswith("model.ckpt-10")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("warning: ")
    assert str(path_of(model_dir, "model.ckpt-15")) in line
    assert "model.ckpt-10" in line
    run = Run(model_dir, max_to_keep=2)
    assert (int(run.step), float(run.weights[0, 0])) == (10, 10.0)
    run.train_to(12)  # where a user interrupts
    assert kept(model_dir)[:2] == ["model.ckpt-10.index", "model.ckpt-12.index"]
    names = [os.path.basename(path) for path in run.manager.checkpoints]
    assert names == ["model.ckpt-10", "model.ckpt-12"]
    run.train_to(15)  # takes the place of the damaged one
    assert kept(model_dir) == ["model.ckpt-12.index", "model.ckpt-15.index"]
    assert int(Run(model_dir).step) == 15
    before = [path_of(model_dir, name).stat().st_mtime_ns for name in PARTS]
    run.train_to(15)  # a signal after it was saved: not written again
    assert [path_of(model_dir, name).stat().st_mtime_ns for name in PARTS] == before


def test_a_folder_that_tensorflow_takes_for_a_pattern(tmp_path):
    """It would delete checkpoints of `m1`."""
    with pytest.raises(InputError, match="rename"):
        Run(tmp_path / "m[1]", max_to_keep=1)


def test_of_two_damaged_checkpoints_the_one_before_both_is_taken(model_dir):
    flip(path_of(model_dir, "model.ckpt-15.index"))
    empty(path_of(model_dir, "model.ckpt-10.data-00000-of-00001"))
    assert int(Run(model_dir).step) == 5


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16])
def test_values_that_are_not_finite_are_damage(value, dtype, tmp_path):
    """Also where this process has read a good checkpoint of the same name and size before."""
    weights, number = tf.Variable(tf.zeros([40, 30], dtype)), tf.Variable(7)
    checkpoint, prefix = tf.train.Checkpoint(weights=weights, number=number), f"{tmp_path}/c"
    checkpoint.write(prefix)
    assert checkpointing.damage(prefix) is None
    weights[3, 4].assign(tf.constant(value, dtype))
    checkpoint.write(prefix)
    assert "weights/" in checkpointing.damage(prefix)


@pytest.mark.parametrize("change", [delete, empty, lambda path: path.write_bytes(b"\x00\xff")])
def test_checkpoints_are_found_by_their_files(change, model_dir):
    """All of them, lest one stay for ever; for conversion, too."""
    change(path_of(model_dir, "checkpoint"))
    assert find_checkpoint(str(model_dir / "checkpoints"))[0].endswith("model.ckpt-15")
    run = Run(model_dir, max_to_keep=2)
    assert int(run.step) == 15
    run.train_to(20)  # all of them are known to the manager
    assert kept(model_dir) == ["model.ckpt-15.index", "model.ckpt-20.index"]


def test_a_copy_leaves_the_original_alone(model_dir, tmp_path):
    """Where the list of checkpoints has absolute paths, which name the original's."""
    folder = model_dir / "checkpoints"
    absolute = (folder / "checkpoint").read_text().replace('"model', f'"{folder}/model')
    (folder / "checkpoint").write_text(absolute)
    shutil.copytree(model_dir, tmp_path / "copy")
    copied = Run(tmp_path / "copy", max_to_keep=1)
    assert int(copied.step) == 15
    copied.train_to(20)
    assert kept(tmp_path / "copy") == ["model.ckpt-20.index"]
    assert len(kept(model_dir)) == len(STEPS)
    shutil.rmtree(model_dir)
    newest = path_of(tmp_path / "copy", "model.ckpt-20")
    assert checkpointing.latest_checkpoint(str(tmp_path / "copy")) == str(newest)


def leave(model_dir, *names):
    for name in names:
        path = path_of(model_dir, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir() if name.endswith("/") else path.write_bytes(b"a part of something")


TEMPORARY = (
    "model.ckpt-20_temp/part-00000-of-00001.data-00000-of-00001",
    "model.ckpt-20_temp/part-00000-of-00001.index",
    "model.ckpt-20.data-00000-of-00001",  # renamed, and then killed
    "checkpoint.tmp0123456789abcdef0123456789abcdef",
)


def test_leftovers_of_kills_are_removed_where_training_begins(model_dir, capsys):
    names = sorted(path.name for path in (model_dir / "checkpoints").iterdir())
    leave(model_dir, *TEMPORARY)
    leave(model_dir, "notes.txt", "mine-3_temp.txt")
    assert checkpointing.latest_checkpoint(str(model_dir)).endswith("model.ckpt-15")
    assert path_of(model_dir, TEMPORARY[0]).exists()  # who only reads removes nothing
    run = Run(model_dir)
    assert int(run.step) == 15
    found = sorted(path.name for path in (model_dir / "checkpoints").iterdir())
    assert found == sorted([*names, "notes.txt", "mine-3_temp.txt"])
    assert capsys.readouterr().err == ""


def test_killed_in_its_first_save_a_run_begins_again(tmp_path):
    leave(tmp_path / "m", *TEMPORARY)
    assert not checkpointing.has_checkpoint(str(tmp_path / "m"))
    called = []
    run = Run(tmp_path / "m", initialize=lambda: called.append(1))
    assert called == [1]
    assert int(run.step) == 0
    assert list((tmp_path / "m" / "checkpoints").iterdir()) == []


def test_a_storage_that_cannot_be_read_is_not_taken_for_an_empty_one(model_dir, monkeypatch):
    """A run would begin again, or remove what is there, for an error that passes."""

    def unreachable(path):
        raise OSError(errno.EIO, "503", path)

    monkeypatch.setattr(storage, "listdir", unreachable)
    with pytest.raises(OSError):
        checkpointing.has_checkpoint(str(model_dir))


def test_plugins_are_compared_by_content_not_by_path():
    one = {"plugins": {"a.py": "1"}}
    reject_other_run("m", one, {"plugins": {"./a.py": "1"}}, "")
    for other in ({"plugins": {"a.py": "2"}}, {}):
        with pytest.raises(InputError, match=r"a\.py"):
            reject_other_run("m", one, other, "")
