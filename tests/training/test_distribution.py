"""Choices for GPUs and TPUs, which are simulated."""

import json

import pytest
import tensorflow as tf

from convbert.common.errors import InputError
from convbert.finetune import run as finetuning
from convbert.finetune.batches import FEW_LENGTHS
from convbert.finetune.declaration import TASKS
from convbert.finetune.plan import make_plan
from convbert.model import EncoderConfig
from convbert.pretrain import run as pretraining
from convbert.training import distribution
from convbert.training.distribution import create_strategy

H100 = (9, 0)
CONFIG = EncoderConfig(vocab_size=7)


@pytest.mark.parametrize(
    "name", ["mirrored:0", "mirrored:00", "mirrored:-1", "mirrored:two", "tpus", "tpu"]
)
def test_a_strategy_that_does_not_exist_is_rejected(name, capsys, monkeypatch):
    monkeypatch.delenv("TPU_NAME", raising=False)
    with pytest.raises(InputError):
        create_strategy(name)
    assert not capsys.readouterr().err  # nothing about devices that are not made


@pytest.fixture
def on(monkeypatch):
    """Makes a GPU of a compute capability be found, a "TPU", or nothing: None."""

    def found(device):
        for module in (distribution, finetuning):
            monkeypatch.setattr(module, "on_tpu", lambda _: device == "TPU")
        gpus = ["first"] if isinstance(device, tuple) else []
        monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind=None: gpus)
        details = {"compute_capability": device} if device else {}
        monkeypatch.setattr(tf.config.experimental, "get_device_details", lambda gpu: details)

    return found


HALF = {"precision": "mixed_bfloat16"}
FAST = {None: {}, H100: {**HALF, "xla": True}, (7, 5): {"xla": True}, "TPU": HALF}
FAST[()] = {"xla": True}  # another maker's


@pytest.mark.parametrize(("device", "expected"), FAST.items(), ids=str)
def test_what_is_fast(on, device, expected):
    on(device)
    assert distribution.fast_values(None) == expected


def record(folder, **hparams):
    """A folder as a run that resumes has it."""
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "checkpoints" / "model.ckpt-5.index").write_text("")
    (folder / "hparams.json").write_text(json.dumps({"hparams": {"seed": 0, **hparams}}))


def test_pre_training_resumes_with_what_was_decided(on, tmp_path):
    on(H100)
    folder, fast = str(tmp_path), {"precision": "mixed_bfloat16", "xla": True}
    assert pretraining.fast_values(folder, None, {}) == fast
    assert pretraining.fast_values(folder, None, {"xla": False}) == {"precision": "mixed_bfloat16"}
    record(tmp_path, precision="float32")
    assert pretraining.fast_values(folder, None, {}) == {"precision": "float32", "xla": True}
    on(None)
    assert pretraining.fast_values(folder, None, {}) == {}


def plan_of(folder, recipe=(), **given):
    folders = {"model_dir": str(folder), "data_dir": "", "output_dir": str(folder)}
    tasks = [TASKS[name] for name in ("cola", "rte")]
    return make_plan(tasks, dict(recipe), given, {}, grid={}, **folders)


def values_of(plan, config=CONFIG, task="cola"):
    return finetuning.with_fast_values(plan, config, None).values[task]


def test_fine_tuning_has_few_lengths_on_a_tpu(on, tmp_path):
    """And is not compiled for each length on a GPU."""
    plan = plan_of(tmp_path)
    for device, expected in ((H100, {"precision": "mixed_bfloat16"}), (None, {})):
        on(device)
        assert values_of(plan) == expected
    on("TPU")
    found = values_of(plan)
    assert found == {"precision": "mixed_bfloat16", "length_buckets": FEW_LENGTHS}
    original = CONFIG.replace(mask_padding=False)  # whose padding is not free
    assert "length_buckets" not in values_of(plan, original)
    own = plan_of(tmp_path, length_buckets=False, precision="float32")
    assert values_of(own) == {"length_buckets": False, "precision": "float32"}
    one = plan_of(tmp_path, {"tasks": {"cola": {"length_buckets": False}}})
    assert values_of(one)["length_buckets"] is False
    assert values_of(one, task="rte")["length_buckets"] == FEW_LENGTHS
    task = tmp_path / "cola" / "defaults" / "trial_0"
    record(task, precision="float32", length_buckets=True)
    assert values_of(plan) == {"precision": "float32", "length_buckets": True}
