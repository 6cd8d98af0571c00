"""Shares of several workers: together the batches of one, none twice; choices for GPUs and TPUs."""

import itertools
import json
import types

import numpy as np
import pytest
import tensorflow as tf

from convbert.common.errors import InputError
from convbert.finetune import learner
from convbert.finetune import run as finetuning
from convbert.finetune.batches import FEW_LENGTHS, EvaluationBatches, TrainingBatches
from convbert.finetune.declaration import TASKS
from convbert.finetune.plan import make_plan
from convbert.model import EncoderConfig
from convbert.pretrain import run as pretraining
from convbert.training import distribution, workers
from convbert.training.distribution import create_strategy, own_rows
from tests.data.test_input_pipeline import _small_windows, files, first_ids  # noqa: F401
from tests.finetune.test_batches import S_MAX, encoded_of, take


@pytest.fixture
def as_worker(monkeypatch):
    """Makes this process one of several workers; the others' arrays are given."""

    def become(index, count, others=()):
        def gather(arrays):
            return [*others[:index], dict(arrays), *others[index:]]

        for name, value in {"index": index, "count": count, "gather": gather}.items():
            monkeypatch.setattr(workers, name, value)

    return become


HELD_OUT = {"batch_size": 8, "training": False}


@pytest.mark.parametrize(
    ("count", "steps", "options"), [(4, 25, {}), (2, 18, {"start_step": 7}), (4, None, HELD_OUT)]
)
def test_workers_share_every_batch_of_pre_training(files, count, steps, options):  # noqa: F811
    """25 records: four epochs; a start within the second; held out, one in the last batch."""
    together = first_ids(files, steps, **options)
    workers = [{"worker": number, "workers": count, **options} for number in range(count)]
    shares = [first_ids(files, steps, **worker) for worker in workers]
    assert [[*itertools.chain(*parts)] for parts in zip(*shares, strict=True)] == together
    if options == HELD_OUT:
        assert len(together) == 4
        assert together[-1][1:] == [0] * 7
    if not options:
        assert np.bincount(np.ravel(shares)).tolist() == [4] * 25


@pytest.mark.parametrize("batches_of", [TrainingBatches, EvaluationBatches])
def test_workers_share_every_batch_of_fine_tuning(as_worker, batches_of):
    """With the padding of the whole batch."""

    def batches():
        seed = {"seed": 3} if batches_of is TrainingBatches else {}
        made = batches_of(encoded_of(37), 8, max_seq_length=S_MAX, **seed)
        return made, take(made(), 5)

    _, together = batches()
    shares, own = [], []
    for index in range(4):
        as_worker(index, 4)
        made, share = batches()
        shares.append(share)
        own.append(getattr(made, "own", None))
        assert {len(batch["input_ids"]) for batch in share} == {2}
    for number, batch in enumerate(together):
        for name, value in batch.items():
            found = np.concatenate([share[number][name] for share in shares])
            np.testing.assert_array_equal(found, value)
    if batches_of is EvaluationBatches:
        for numbers, share in zip(own, shares):
            assert numbers.tolist() == [n for batch in share for n in batch["example"]]


def test_predictions_of_all_workers_are_put_together(as_worker):
    """Numbers that say which sequence, or token, they are of; 5 sequences for 2 workers."""
    lengths, shares = np.array([2, 1, 3, 1, 2]), [np.array([4, 2, 1, 3]), np.array([0, 3, 3, 3])]

    def emitted(own):
        tokens = [np.pad(100 * i + np.arange(lengths[i]), (0, 3 - lengths[i])) for i in own]
        return {"logits": [np.array([i, -i]) for i in own], "tags": tokens}

    def packed(own):
        flat = np.concatenate([100 * i + np.arange(lengths[i]) for i in own])
        return {"logits": np.stack(emitted(own)["logits"]), "tags": flat, "": own}

    for index in range(2):
        as_worker(index, 2, [packed(shares[1 - index])])
        found = learner._collect(emitted(shares[index]), shares[index], lengths, ("tags",))
        assert found["logits"].tolist() == [[i, -i] for i in range(5)]
        assert found["tags"].tolist() == [0, 1, 100, 200, 201, 202, 300, 400, 401]


@pytest.mark.parametrize("replica", range(4))
def test_a_worker_with_two_devices(as_worker, monkeypatch, replica):
    """Four replicas on two workers; the features are the worker's own four sequences."""
    as_worker(replica // 2, 2)
    ids = {"num_replicas_in_sync": 4, "replica_id_in_sync_group": tf.constant(replica)}
    context = types.SimpleNamespace(**ids)
    monkeypatch.setattr(tf.distribute, "get_replica_context", lambda: context)
    features = {"x": tf.range(8)[replica // 2 * 4 :][:4]}
    assert own_rows(features)["x"].numpy().tolist() == [2 * replica, 2 * replica + 1]


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


def record(folder, **hparams):
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "checkpoints" / "model.ckpt-5.index").write_text("")
    (folder / "hparams.json").write_text(json.dumps({"hparams": {"seed": 0, **hparams}}))


def test_pre_training_resumes_with_what_was_decided(on, tmp_path):
    fast = {(7, 5): {"xla": True}, (): {"xla": True}, "TPU": {"precision": "mixed_bfloat16"}}
    for device, values in fast.items():  # an older GPU, another maker's
        on(device)
        assert distribution.fast_values(None) == values
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
