"""Memory of the text before: the order of batches, what is kept, and runs of the command."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import tensorflow as tf

from data import records
from errors import InputError
from model.xlnet.network import next_memory
from pretrain.batches import Batches
from pretrain.hparams import RunSettings, parse_hparams, resolve_hparams, split_hparams
from pretrain.load import load_objective
from pretrain.permutation import permitted, permute_tokens
from tests.model_support import SPECIAL, tensors
from tests.pretrain.test_permutation import STARTS, local_perm, texts
from tests.pretrain.test_permutation import S as LENGTH
from tests.pretrain.test_permutation_lm import CONFIG, SEED, B, S, build, make_features
from tests.pretraining_support import HPARAMS as OF_CONVBERT
from tests.pretraining_support import assert_same_run, build_data, checkpoint_tensors, run
from training.distribution import create_strategy

MEMORY = {
    **{name: value for name, value in OF_CONVBERT.items() if name != "generator_hidden_size"},
    **{"objective": "permutation_lm", "model_size": "xlnet-tiny", "memory_length": 12},
    "model_hparam_overrides": {"hidden_size": 32, "num_hidden_layers": 1, "intermediate_size": 64},
    **{"num_train_steps": 6, "iterations_per_loop": 3, "save_checkpoints_steps": 3},
}
SETTINGS = split_hparams(MEMORY)[0]  # without those of the run


def test_records_are_of_what_is_new():
    hparams = resolve_hparams({**SETTINGS, "memory_length": 8, "reuse_length": 16}, 8192)
    assert hparams.record_length == 16


def test_halves_have_orders_of_their_own():
    """As get_dataset of data_utils.py joins two masks: the first half is blind to the second."""
    half = LENGTH // 2
    features = tensors(texts(30))
    hparams = parse_hparams(
        {
            **{"objective": "permutation_lm", "max_seq_length": LENGTH},
            **{"memory_length": 8, "reuse_length": half},
        }
    )
    drawn = permute_tokens(features, hparams, SPECIAL, tf.constant(STARTS), tf.constant([1, 2]))
    sees = permitted(drawn["order"], drawn["limit"]).numpy()
    assert not sees[:, :half, half:].any()
    assert sees[:, half:, :half].all()
    positions, used = drawn["target_positions"].numpy(), drawn["target_weights"].numpy() > 0
    assert positions.shape[1] == 21
    most = [], []  # predictions of the second half and of the first
    for i, ids in enumerate(features["input_ids"].numpy()):
        masked = np.zeros(LENGTH, bool)
        masked[positions[i][used[i]]] = True
        np.testing.assert_array_equal(ids[positions[i][used[i]]], drawn["target_ids"][i][used[i]])
        for part in (slice(half), slice(half, None)):
            index = np.argsort(np.argsort(drawn["order"][i].numpy()[part], kind="stable"))
            target, blind = local_perm(ids[part], masked[part], index)
            np.testing.assert_array_equal(target, masked[part])
            np.testing.assert_array_equal(sees[i, part, part], ~blind)
            most[part.start is None].append(masked[part].sum())
    # Of 21 slots. What falls on [CLS] or [SEP] is not predicted.
    assert [max(counts) for counts in most] == [10, 11]


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    """Five files of text in order, in records of 16 tokens."""
    folder = tmp_path_factory.mktemp("memory")
    options = {"parts": 5, "num_shards": 5, "example_layout": "ordered", "max_seq_length": 16}
    return build_data(folder, **options)


def batches(data_dir, length=32, **changes):
    values = {**SETTINGS, "max_seq_length": length, **changes}
    strategy = create_strategy(values.pop("strategy", "one_device"))
    hparams = resolve_hparams(values, 65)
    return Batches(data_dir, "train", hparams, RunSettings(), strategy)


def ids_of(dataset, count):
    return np.stack([batch["input_ids"].numpy() for batch in dataset.take(count)])


def test_batches_follow_the_text(data_dir):
    """Of every file in its order, and from every step on as they are without an interruption."""
    made = batches(data_dir, length=32, reuse_length=16)
    found = ids_of(made(), 16)  # [steps, B, S]
    files = [
        records.parse_examples(next(iter(tf.data.TFRecordDataset(file).batch(16))), 16)
        for file in made.files
    ]
    for row in range(4):
        first = found[:, row, :16]
        assert any(np.array_equal(text["input_ids"], first) for text in files), row
    np.testing.assert_array_equal(found[:-1, :, 16:], found[1:, :, :16])
    np.testing.assert_array_equal(ids_of(made(7), 9), found[7:16])


def test_files_for_every_sequence(data_dir):
    with pytest.raises(InputError):
        batches(data_dir, length=16, train_batch_size=8)
    with pytest.raises(InputError):
        batches(data_dir, length=16, strategy="mirrored:2")


@pytest.mark.parametrize(("reuse", "parts"), [(0, 2), (S // 2, 1)])
def test_what_is_kept(reuse, parts):
    """What went into each layer at the batch before, by parts of the batch or at once."""
    config = CONFIG.replace(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    objective = build(config, memory_length=14, reuse_length=reuse, train_batch_size=B)
    for variable in objective.trainable_variables:
        noise = np.random.default_rng(len(variable.shape)).normal(0, 0.3, variable.shape)
        variable.assign_add(noise)
    expected = [tf.zeros([B, 14, 16])] * 3
    for step in range(3):
        features = make_features((S,) * B)
        ids = tf.roll(features["input_ids"], step, 0)
        batch = objective.prepare({**features, "input_ids": ids}, SEED)
        arguments = permitted(batch["order"], batch["limit"]), batch["target_positions"]
        arguments += (objective.head.mask_embedding,)
        with_memory = objective.encoder.two_streams(batch, *arguments, memory=expected)
        without = objective.encoder.two_streams(batch, *arguments)
        assert np.abs(with_memory.queries - without.queries).max() > 0.01
        normalizers = objective.normalizers(batch)
        split = {name: tf.split(value, parts) for name, value in batch.items()}
        losses = [
            objective.loss(
                {name: value[i] for name, value in split.items()},
                normalizers,
                training=True,
                seed=tf.constant([1, 2, i]),
            )[0]
            for i in range(parts)
        ]
        assert np.isfinite(losses).all()
        expected = next_memory(
            with_memory.memory, expected, memory_length=14, reuse_length=reuse or None
        )
        for variable, states in zip(objective.memory, expected, strict=True):
            np.testing.assert_allclose(variable, states, atol=1e-5)


@pytest.mark.slow  # needs four runs, one of them compiled
@pytest.mark.parametrize("reuse", [0, 16])
def test_it_resumes_to_the_bit(tmp_path, data_dir, reuse):
    """Memories are of the checkpoint; compiled and by parts of a batch they are the same."""
    whole, resumed, parts = (tmp_path / name for name in ("whole", "resumed", "parts"))
    changes = {"max_seq_length": 16 + reuse, "reuse_length": reuse}
    arguments = {"defaults": MEMORY, "do_eval": True}
    run(data_dir, whole, changes, **arguments)
    shutil.copytree(whole, resumed)
    for path in (resumed / "checkpoints").glob("model.ckpt-6.*"):
        path.unlink()
    run(data_dir, resumed, changes, **arguments)
    assert_same_run(resumed, whole, 6)
    run(data_dir, resumed, changes, defaults=MEMORY, do_eval=True, do_train=False)
    run(data_dir, parts, changes, micro_batch_size=2, xla=True, **arguments)
    expected, found = checkpoint_tensors(whole, 6), checkpoint_tensors(parts, 6)
    memories = [name for name in expected if "memory" in name]
    assert len(memories) == 1
    assert np.abs(expected[memories[0]]).max() > 0
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, atol=1e-5, err_msg=name)
    load_objective(str(whole))  # which needs no memory
    more = {"additional_steps": 2, "continue_from": whole, "defaults": {}}
    without = {"max_seq_length": 16, "memory_length": 0, "reuse_length": 0, "train_batch_size": 2}
    other = {"memory_length": 14, "train_batch_size": 3}
    for name, values in (("without", without), ("with", other)):
        run(data_dir, tmp_path / name, values, **more)
        assert checkpoint_tensors(tmp_path / name, 8)


def test_data_that_does_not_follow_the_text(tmp_path):
    segments = build_data(tmp_path, max_seq_length=16)
    with pytest.raises(InputError):
        run(segments, tmp_path / "model", {"max_seq_length": 16}, defaults=MEMORY)
    assert not (tmp_path / "model").exists()
