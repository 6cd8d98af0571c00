"""The training loop: it learns, repeats itself, and does not care how many devices there are."""

import gc
import weakref

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from convbert.model.kernels import gelu
from convbert.pretrain.hparams import parse_hparams
from convbert.training.distribution import create_strategy
from convbert.training.loop import Trainer
from convbert.training.optimizer import create_optimizer
from convbert.training.tracing import plain_function, temporary_graphs
from tests.model_support import SPECIAL, TINY, TINY_XLNET

V, B, S = 120, 8, 32
SIZES = {"vocab_size": V, "hidden_size": 32, "num_hidden_layers": 1, "intermediate_size": 64}
CONFIG = TINY.replace(embedding_size=16, conv_kernel_size=9, **SIZES)
XLNET = TINY_XLNET.replace(**SIZES)


def corpus(batches=4):
    rng = np.random.default_rng(0)
    starts = rng.integers(0, V - 5, [batches * B, 1])
    ids = (starts + 7 * np.arange(S)) % (V - 5) + 5
    ids[:, 0], ids[:, -1] = SPECIAL["cls"], SPECIAL["sep"]
    mask = np.ones_like(ids)
    mask[::3, 20:] = 0  # uneven lengths: replicas have unequal shares of the tokens
    arrays = {"input_ids": ids * mask, "input_mask": mask, "segment_ids": 0 * ids}
    arrays = {name: value.astype(np.int32) for name, value in arrays.items()}
    dataset = tf.data.Dataset.from_tensor_slices(arrays).repeat()
    return lambda start_step=0: dataset.skip(start_step * B).batch(B, drop_remainder=True)


def make(strategy=None, dropout=0.0, lr=1e-3, optimizer="adam", data=None, config=None, **changes):
    tf_keras.utils.set_random_seed(5)
    strategy = strategy or tf.distribute.get_strategy()
    options = {name: changes.pop(name) for name in ("xla", "micro_batches") if name in changes}
    sizes = {"vocab_size": V, "max_seq_length": S, "train_batch_size": B}
    hparams = parse_hparams({**sizes, "generator_hidden_size": 0.5, **changes})
    default = XLNET if hparams.objective.name == "permutation_lm" else CONFIG
    config = (config or default).replace(vocab_size=V)
    config = config.replace(hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)
    with strategy.scope():
        objective = hparams.build_objective(config, SPECIAL)
        optimizer = create_optimizer(optimizer, lr, 0.01, objective.trainable_variables)
    return Trainer(objective, optimizer, data or corpus(), seed=3, strategy=strategy, **options)


def losses(trainer, steps):
    return [trainer.train(1)["loss"] for _ in range(steps)]


def weights(trainer):
    return [variable.numpy() for variable in trainer.objective.trainable_variables]


@pytest.mark.parametrize(
    ("strategy", "options"),
    [
        ("one_device", {}),
        pytest.param("mirrored:2", {}, marks=pytest.mark.slow),
        pytest.param("one_device", {"xla": True, "micro_batches": 2}, marks=pytest.mark.slow),
    ],
)
def test_followers_move_with_their_leaders(strategy, options):
    """DeBERTaV3's E_D = E_G + E_delta: the optimizer updates E_delta, also its weight decay."""
    changes = {"objective": "replaced_token_detection", "disentangled_embeddings": True}
    trainer = make(create_strategy(strategy), disc_weight=0.0, **options, **changes)
    pairs = trainer.objective.followers
    assert len(pairs) == 3
    for variable, leader in pairs:
        np.testing.assert_array_equal(variable, leader)
    delta = [0.1 + 0.2 * n for n in range(3)]
    for (variable, _), by in zip(pairs, delta):
        variable.assign_add(by * tf.ones_like(variable))
    before = [leader.numpy() for _, leader in pairs]
    trainer.train(3)
    kept = (1 - 1e-3 * 0.01) ** 3  # without a gradient only weight decay acts
    for (variable, leader), old, by in zip(pairs, before, delta):
        assert np.abs(leader - old).max() > 1e-3
        own = variable.numpy() - leader.numpy()
        np.testing.assert_allclose(own, by * kept, atol=2e-7 * 3)


def checkpoint(trainer):
    return tf.train.Checkpoint(objective=trainer.objective, optimizer=trainer.optimizer)


def test_neither_loops_nor_a_checkpoint_in_the_middle_matter(tmp_path):
    """The same steps in loops of 1, 1, 3 and 2, and four from a checkpoint: equal to the bit."""
    trainer, expected = make(dropout=0.1), []
    for step in range(1, 8):  # each a loop of its own
        expected.append((*losses(trainer, 1), weights(trainer)))
        if step == 3:
            path = checkpoint(trainer).write(str(tmp_path / "c"))
    trainer = make(dropout=0.1)
    assert losses(trainer, 2) == [loss for loss, _ in expected[:2]]
    for steps, done in ((3, 5), (2, 7)):
        trainer.train(steps)
        np.testing.assert_equal(weights(trainer), expected[done - 1][1])
    trainer.close()
    checkpoint(trainer).read(path).assert_consumed()
    trainer.train(4)
    np.testing.assert_equal(weights(trainer), expected[6][1])


def traced():
    """A function of `gelu`, whose gradient is a custom one, and a reference to its graph."""
    function = plain_function(lambda x: gelu(x) * 2.0, input_signature=[tf.TensorSpec([3])])
    return function, weakref.ref(function.get_concrete_function().graph)


def slope(function):
    x = tf.constant([1.0, 2.0, 3.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = function(x)
    return tape.gradient(y, x)


def test_graphs_are_freed():
    """And those from before keep their gradients."""
    older, _ = traced()
    with temporary_graphs():
        function, graph = traced()
        assert slope(function).shape == [3]
    assert graph() is not None  # that of a function which is still there
    del function
    gc.collect()
    assert graph() is None
    assert slope(older).shape == [3]
