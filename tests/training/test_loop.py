"""The training loop: it learns, repeats itself, and does not care how many devices there are."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from errors import TrainingStopped
from model import EncoderConfig
from model.xlnet.config import XLNetConfig
from pretrain.build import build_objective
from pretrain.hparams import parse_hparams
from training.distribution import create_strategy
from training.loop import Evaluator, Trainer
from training.objective import Objective
from training.optimizer import create_optimizer

SPECIAL = {"cls": 2, "sep": 3, "mask": 4}
V, B, S = 120, 8, 32
CONFIG = EncoderConfig(
    vocab_size=V,
    embedding_size=16,
    hidden_size=32,
    num_hidden_layers=1,
    num_attention_heads=4,
    intermediate_size=64,
    max_position_embeddings=S,
)

XLNET = XLNetConfig(
    vocab_size=V,
    hidden_size=32,
    num_hidden_layers=1,
    num_attention_heads=4,
    intermediate_size=64,
    max_position_embeddings=S,
)


def corpus(batches=4):
    """Sentences in which every token follows from the one before."""
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


def make(strategy=None, dropout=0.0, lr=1e-3, optimizer="adam", data=None, **changes):
    tf_keras.utils.set_random_seed(5)
    strategy = strategy or tf.distribute.get_strategy()
    options = {name: changes.pop(name) for name in ("xla", "micro_batches") if name in changes}
    sizes = {"vocab_size": V, "max_seq_length": S, "train_batch_size": B}
    hparams = parse_hparams({**sizes, "generator_hidden_size": 0.5, **changes})
    config = XLNET if hparams.objective.name == "permutation_lm" else CONFIG
    config = config.replace(hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)
    with strategy.scope():
        objective = build_objective(hparams, config, SPECIAL)
        optimizer = create_optimizer(optimizer, lr, 0.01, objective.trainable_variables)
    return Trainer(objective, optimizer, data or corpus(), seed=3, strategy=strategy, **options)


def losses(trainer, steps):
    return [trainer.train(tf.constant(1))["loss"] for _ in range(steps)]


def weights(trainer):
    return [variable.numpy() for variable in trainer.objective.trainable_variables]


@pytest.mark.parametrize(
    ("objective", "accuracy"),
    [pytest.param("replaced_token_detection", 0.25, marks=pytest.mark.slow), ("masked_lm", 0.9)],
)
def test_one_batch_is_overfitted(objective, accuracy):
    changes = {"objective": objective, "generator_hidden_size": 1.0}
    trainer = make(data=corpus(batches=1), lr=2e-3, **changes)
    first = trainer.train(tf.constant(5))
    for _ in range(6):
        last = trainer.train(tf.constant(60))
    assert last["masked_lm_accuracy"] > accuracy > 0.2 > first["masked_lm_accuracy"]
    if "disc_loss" in last:
        assert last["disc_loss"] < 0.5 * first["disc_loss"]
        assert last["disc_auc"] > 0.8


def assert_equal(found, expected):
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)


def checkpoint(trainer):
    return tf.train.Checkpoint(objective=trainer.objective, optimizer=trainer.optimizer)


@pytest.fixture(scope="module")
def one_by_one(tmp_path_factory):
    """Seven steps, each a loop of its own: losses, weights after each, a checkpoint after three."""
    trainer = make(dropout=0.1)
    found = {"losses": [], "weights": []}
    for step in range(1, 8):
        found["losses"] += losses(trainer, 1)
        found["weights"].append(weights(trainer))
        if step == 3:
            folder = tmp_path_factory.mktemp("loop")
            found["checkpoint"] = checkpoint(trainer).write(str(folder / "c"))
    return found


@pytest.fixture(scope="module")
def in_loops():
    """The same steps in loops of 1, 1, 3 and 2."""
    trainer = make(dropout=0.1)
    first = losses(trainer, 1)
    traced = calls_of_the_loss(trainer)
    first += losses(trainer, 1)
    trainer.train(tf.constant(3))
    after_five = weights(trainer)
    trainer.train(tf.constant(2))
    return {
        "trainer": trainer,
        "traced": traced,  # after the first loop
        "losses": first,
        "after five": after_five,
        "weights": weights(trainer),
    }


def calls_of_the_loss(trainer) -> list[None]:
    """A list that grows whenever Python computes the loss: when the step is traced, that is."""
    found, loss = [], trainer.objective.loss

    def counted(*args, **kwargs):
        found.append(None)
        return loss(*args, **kwargs)

    trainer.objective.loss = counted
    return found


def test_two_runs_are_equal_to_the_bit(one_by_one, in_loops):
    assert in_loops["losses"] == one_by_one["losses"][:2]
    assert_equal(in_loops["after five"], one_by_one["weights"][4])


def test_steps_per_loop_do_not_matter(one_by_one, in_loops):
    assert_equal(in_loops["weights"], one_by_one["weights"][6])


def test_the_step_is_traced_once(in_loops):
    """Of 7 steps in 4 loops only the first is, by whichever function."""
    assert in_loops["traced"] == []


@pytest.mark.slow  # needs half a minute
def test_what_counts_traces_does():
    trainer = make()
    traced = calls_of_the_loss(trainer)
    losses(trainer, 1)
    assert traced


def test_the_graph_of_a_loop_holds_one_step(in_loops):
    """A second copy, of the first step before the loop, would be optimized and placed as well."""
    trainer = in_loops["trainer"]
    run = trainer._run.get_concrete_function(trainer._iterator, tf.constant(1))
    loop = run.graph.as_graph_def()
    nodes = [*loop.node, *(node for body in loop.library.function for node in body.node_def)]
    called = [node.attr["f"].func.name for node in nodes if "PartitionedCall" in node.op]
    assert sum("_step_fn" in name for name in called) == 1
    assert sum(node.op == "ResourceApplyAdam" for node in nodes) == len(weights(trainer))


def test_a_checkpoint_in_the_middle_does_not_matter(one_by_one):
    trainer = make(dropout=0.1)
    assert_resumes(trainer, one_by_one["checkpoint"], one_by_one["weights"][6])


@pytest.mark.slow  # needs half a minute
def test_a_checkpoint_in_the_middle_does_not_matter_to_lamb(tmp_path):
    whole = make(dropout=0.1, optimizer="lamb")
    whole.train(tf.constant(3))
    path = checkpoint(whole).write(str(tmp_path / "c"))
    whole.train(tf.constant(4))
    assert_resumes(make(dropout=0.1, optimizer="lamb"), path, weights(whole))


def assert_resumes(trainer, path, expected):
    """Four steps from a checkpoint, which gives all that training depends on."""
    for variable in trainer.objective.trainable_variables:
        variable.assign(variable * 0.0)
    checkpoint(trainer).read(path).assert_consumed()
    trainer.train(tf.constant(4))
    assert_equal(weights(trainer), expected)


@pytest.fixture(scope="module")
def losses_on_one_device():
    """Of 20 steps without dropout, by objective."""
    return {
        name: losses(make(objective=name), 20) for name in ("masked_lm", "replaced_token_detection")
    }


@pytest.mark.parametrize(
    ("objective", "xla"),
    [
        pytest.param("replaced_token_detection", False, marks=pytest.mark.slow),  # two networks
        ("masked_lm", False),
        pytest.param("replaced_token_detection", True, marks=pytest.mark.slow),  # compiles: 1 min
    ],
)
def test_two_devices_give_the_losses_of_one(objective, xla, losses_on_one_device):
    """20 steps at the same global batch, without dropout, within 1e-5 of the loss."""
    one = losses_on_one_device[objective]
    mirrored = create_strategy("mirrored:2")
    assert mirrored.num_replicas_in_sync == 2
    two = losses(make(mirrored, objective=objective, xla=xla), 20)
    np.testing.assert_allclose(two, one, rtol=1e-5)
    assert one[-1] < one[0]


@pytest.mark.slow  # compiles for a minute
def test_xla_gives_the_same_losses():
    one, two = losses(make(dropout=0.1), 10), losses(make(dropout=0.1, xla=True), 10)
    np.testing.assert_allclose(two, one, rtol=1e-4)


@pytest.mark.bfloat16
def test_bfloat16_follows_float32(losses_on_one_device):
    one = losses_on_one_device["replaced_token_detection"][:10]
    tf_keras.mixed_precision.set_global_policy("mixed_bfloat16")
    trainer = make()
    two = losses(trainer, 10)
    np.testing.assert_allclose(two, one, rtol=0.02)
    assert all(variable.dtype == tf.float32 for variable in trainer.objective.trainable_variables)


def test_a_loss_that_is_not_finite_names_its_step():
    trainer = make()
    trainer.train(tf.constant(3))
    trainer.objective.encoder.embeddings.word_embeddings.assign(tf.fill([V, 16], np.inf))
    with pytest.raises(TrainingStopped):
        trainer.train(tf.constant(5))


@pytest.mark.slow  # needs a trained model
def test_evaluation_repeats_itself_and_changes_nothing():
    trainer = make(dropout=0.1)
    before = weights(trainer)

    def evaluate(steps):
        evaluator = Evaluator(
            trainer.objective,
            lambda: corpus()().take(3),
            seed=3,
            strategy=trainer.strategy,
        )
        return evaluator.evaluate(tf.constant(steps))

    whole = evaluate(-1)
    assert whole == evaluate(-1) == evaluate(3)
    assert whole["loss"] != evaluate(1)["loss"]
    assert_equal(before, weights(trainer))


def test_terms_of_a_loss_are_taken_one_after_the_other():
    """Their gradients add up; the first's are there before the second is computed."""
    variable, happened = tf.Variable([2.0, 3.0]), []

    @tf.custom_gradient
    def squared(value, name):
        def gradient(upstream):
            happened.append(f"gradient {name}")
            return 2 * value * upstream, None

        happened.append(f"term {name}")
        return tf.reduce_sum(value**2), gradient

    class Terms(Objective):
        def __init__(self):
            super().__init__()
            self.encoder = variable

        prepare = normalizers = loss = None

        def losses(self, batch, normalizers, *, training, seed=None):
            for number in (1, 2):
                yield number * squared(variable, number), {f"loss {number}": tf.constant(1.0)}

    Terms.__abstractmethods__ = frozenset()
    trainer = Trainer(Terms(), None, None, seed=0, strategy=tf.distribute.get_strategy())
    loss, sums, (gradient,) = trainer._part_gradients_fn({}, {}, None)
    assert happened == ["term 1", "gradient 1", "term 2", "gradient 2"]
    assert float(loss) == 3 * (4 + 9)
    assert set(sums) == {"loss 1", "loss 2"}
    np.testing.assert_array_equal(gradient, [12.0, 18.0])
