"""What a TPU would be given to compile, and ways to feed it that a CPU can run as well."""

import types

import numpy as np
import pytest
import tensorflow as tf

import backend
from model.kernels import fusion
from tests.tpu_support import operations, tracing_strategy, unsupported
from tests.training.test_loop import B, corpus, losses, make
from training.distribution import own_rows
from training.randomness import uniform_for_batch


@pytest.fixture(scope="module")
def strategy():
    return tracing_strategy()


class InGraph:
    """Batches that a loop of steps reads in its graph."""

    in_graph = True

    def __call__(self, step):
        return corpus()(step)


def graphs_of(trainer):
    """The graph of the loop of steps, and that of a step in it, where shapes can be seen."""
    iterator = trainer._batches(0)
    steps = trainer._run.get_concrete_function(iterator, tf.constant(2)).graph
    return steps, trainer._step.get_concrete_function(iterator).graph


def test_a_step_of_pre_training_has_operations_of_a_tpu_alone(strategy):
    trainer = make(strategy=strategy, dropout=0.1, data=InGraph(), xla=True)
    graph, step = graphs_of(trainer)
    assert unsupported(graph) == unsupported(step) == set()
    device, host = operations(graph)
    assert {"MatMul", "ResourceApplyAdam", "CrossReplicaSum"} <= {*device}
    assert "While" in host  # the loop of steps is in the graph
    assert not {"MatMul", "ResourceApplyAdam"} & {*host}
    compiled = [
        node.op
        for function in [graph.as_graph_def(), *graph.as_graph_def().library.function]
        for node in getattr(function, "node", None) or function.node_def
        if node.attr["_XlaMustCompile"].b
    ]
    assert not compiled  # by a compiler within the compiler


@pytest.mark.slow  # five graphs
@pytest.mark.parametrize(
    "changes",
    [
        {"objective": "masked_lm", "optimizer": "lamb"},
        {"mask_with_replacement": True, "micro_batches": 2},
        {"untied_generator": False},
        {"disallow_correct": True},
        {"temperature": 0.5},
        {"objective": "permutation_lm"},
    ],
    ids=str,
)
def test_steps_of_other_settings(strategy, changes):
    trainer = make(strategy=strategy, dropout=0.1, data=InGraph(), **changes)
    graph, step = graphs_of(trainer)
    assert unsupported(graph) == unsupported(step) == set()


UNSUPPORTED = {
    "print": lambda loss: tf.print(loss),
    "Python": lambda loss: tf.py_function(lambda x: x, [loss], tf.float32),
    "strings": lambda loss: tf.strings.as_string(loss),
    "a dynamic shape": lambda loss: tf.boolean_mask(loss[None], loss[None] > 0),
}


@pytest.mark.parametrize(
    ("name", "where"),
    [*((name, "replica") for name in UNSUPPORTED), *((n, "host") for n in list(UNSUPPORTED)[:3])],
)
def test_what_a_tpu_cannot_run_is_seen(strategy, name, where):
    def step(x):
        if where == "replica":
            UNSUPPORTED[name](x)
        return x * 2.0

    def steps(x):
        if where == "host":
            UNSUPPORTED[name](x)
        return strategy.run(step, args=(x,))

    def plain(x):
        return strategy.run(double, args=(x,))

    def double(x):
        return x * 2.0

    scalar = tf.TensorSpec([], tf.float32)
    assert unsupported(tf.function(steps).get_concrete_function(scalar).graph)
    assert not unsupported(tf.function(plain).get_concrete_function(scalar).graph)


def test_a_replica_s_share_compiles_with_a_number_that_is_not_known_before(monkeypatch):
    """A core of a TPU is given its number as a tensor; shapes are to be static all the same."""
    trainer = make(objective="masked_lm")
    features = next(iter(corpus()(0)))

    def of_replica(number):
        context = types.SimpleNamespace(
            num_replicas_in_sync=2,
            replica_id_in_sync_group=number,
        )
        with monkeypatch.context() as patch:
            patch.setattr(tf.distribute, "get_replica_context", lambda: context)
            noise = uniform_for_batch(tf.constant([1, 2]), tf.constant(B // 2), [3])
            rows = own_rows(features)
            batch = trainer.objective.prepare(rows, tf.constant([1, 2]))
            return noise, rows["input_ids"], batch["masked_input_ids"]

    compiled = tf.function(of_replica, jit_compile=True, autograph=False)
    parts = [compiled(tf.constant(number)) for number in range(2)]
    whole = tf.concat([part[0] for part in parts], 0)
    np.testing.assert_array_equal(whole, uniform_for_batch(tf.constant([1, 2]), B, [3]))
    ids = tf.concat([part[1] for part in parts], 0)
    np.testing.assert_array_equal(ids, features["input_ids"])
    masked = trainer.objective.prepare(features, tf.constant([1, 2]))["masked_input_ids"]
    np.testing.assert_array_equal(tf.concat([part[2] for part in parts], 0), masked)


def test_batches_are_passed_to_a_tpu_unless_they_are_in_its_graph(strategy):
    """Passed one by one, they give the same."""
    settings = {"dropout": 0.1, "objective": "masked_lm"}
    assert not make(strategy=strategy, data=InGraph(), **settings)._passed
    assert make(strategy=strategy, **settings)._passed
    plain, other = make(**settings), make(**settings)
    assert not plain._passed
    other._passed = True
    np.testing.assert_allclose(losses(other, 3), losses(plain, 3), rtol=1e-5)


def test_a_tpu_is_no_cpu(strategy):
    seen = []

    def replica():
        seen.append((fusion.running_on_cpu_only(), fusion.compiles([tf.TensorShape([2**20])])))
        return tf.constant(0.0)

    def run():
        return strategy.run(replica)

    tf.function(run).get_concrete_function()
    assert seen[-1] == (False, False)
    assert not backend.on_tpu()
