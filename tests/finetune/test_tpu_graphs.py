"""What a TPU would be given to compile of a fine-tuning."""

import pytest
import tensorflow as tf

from finetune import predictor
from finetune.glue import TASKS
from finetune.hparams import resolve_hparams
from finetune.objective import FineTuning
from finetune.task_data import Split
from model import build_encoder
from tests.finetune.kinds_support import task_of
from tests.finetune.test_objective import objective_of, sequences, trainer_of
from tests.model_support import TINY
from tests.tpu_support import operations, tracing_strategy, unsupported
from training.loop import Evaluator

B, S = 8, 16


@pytest.fixture(scope="module")
def strategy():
    return tracing_strategy()


def span_objective():
    names = ("input_ids", "input_mask", "segment_ids")
    batch = {name: tf.ones([B, S], tf.int32) for name in names}
    batch |= {name: tf.ones([B], tf.int32) for name in ("start_position", "end_position")}
    batch |= {"is_impossible": tf.zeros([B], tf.int32), "weight": tf.ones([B])}
    settings = {"max_seq_length": 40, "max_query_length": 8, "doc_stride": 8}
    task = TASKS["squad"]
    head = task.plugin.head(task, TINY, resolve_hparams(settings, task, TINY))
    return FineTuning(build_encoder(TINY), head), batch


def choice_objective():
    names = ("input_ids", "input_mask", "segment_ids")
    batch = {name: tf.ones([B, S], tf.int32) for name in names}
    batch |= {"label": tf.ones([B], tf.int32), "present": tf.ones([B]), "weight": tf.ones([B])}
    task = TASKS["race"]
    head = task.plugin.head(task, TINY, resolve_hparams({"max_seq_length": 40}, task, TINY))
    return FineTuning(build_encoder(TINY), head), batch


OWN_BATCH = {"span": span_objective, "multiple_choice": choice_objective}


@pytest.mark.slow  # two graphs each
@pytest.mark.parametrize("kind", ["classification", "regression", "tagging", *OWN_BATCH])
def test_steps_and_evaluation_have_operations_of_a_tpu_alone(strategy, kind):
    encoded = sequences("classification" if kind in OWN_BATCH else kind)
    with strategy.scope():
        objective, batch = OWN_BATCH[kind]() if kind in OWN_BATCH else (objective_of(kind), None)
    trainer = trainer_of(objective, encoded, strategy)
    assert trainer._passed
    batch = batch or next(trainer._batches(0))
    graph = trainer._batch_step.get_concrete_function(batch).graph
    assert unsupported(graph) == set()
    assert "ResourceApplyAdam" in operations(graph)[0]
    evaluator = Evaluator(objective, None, seed=0, strategy=strategy)
    graph = evaluator._run.get_concrete_function(batch, tf.constant(0, tf.int64)).graph
    assert unsupported(graph) == set()


class Traced(Exception):
    """Instead of what only a TPU could do."""


@pytest.mark.parametrize("kind", ["classification"])
def test_predictions_have_operations_of_a_tpu_alone(strategy, kind, monkeypatch):
    with strategy.scope():
        objective = objective_of(kind, num_hidden_layers=1)
    assert_predicts(strategy, objective, task_of(kind), sequences(kind), monkeypatch)


@pytest.mark.slow  # a graph each
@pytest.mark.parametrize("kind", ["regression", "tagging"])
def test_predictions_of_other_kinds(strategy, kind, monkeypatch):
    with strategy.scope():
        objective = objective_of(kind)
    assert_predicts(strategy, objective, task_of(kind), sequences(kind), monkeypatch)


@pytest.mark.slow  # two graphs
def test_predictions_of_spans(strategy, monkeypatch):
    with strategy.scope():
        objective, _ = span_objective()
    assert_predicts(strategy, objective, TASKS["squad"], sequences("classification"), monkeypatch)


@pytest.mark.slow  # a graph
def test_predictions_of_choices(strategy, monkeypatch):
    with strategy.scope():
        objective, _ = choice_objective()
    encoded = sequences("classification", 48)
    encoded.sequences["example"] //= 4
    assert_predicts(strategy, objective, TASKS["race"], encoded, monkeypatch)


def assert_predicts(strategy, objective, task, encoded, monkeypatch):
    graphs = []

    def traced_only(function, **options):
        assert not options  # one trace of all lengths would have shapes that are not static

        def call(features):
            traced = tf.function(function, autograph=False)
            graphs.append(traced.get_concrete_function(features).graph)
            raise Traced

        return call

    monkeypatch.setattr(predictor, "plain_function", traced_only)
    hparams = resolve_hparams(
        {"max_seq_length": 40, "length_buckets": [16, 32]}, task_of("regression"), TINY
    )
    with pytest.raises(Traced):
        predictor.predict(
            objective, task, Split([], encoded), batch_size=B, hparams=hparams, strategy=strategy
        )
    assert unsupported(graphs[0]) == set()
    device, _ = operations(graphs[0])
    assert "MatMul" in device
