"""Heads, the layer-wise learning rates, and that padding changes nothing."""

import gc
import threading

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from errors import InputError
from finetune.batches import EvaluationBatches, TrainingBatches
from finetune.encoded import Encoded
from finetune.hparams import resolve_hparams
from finetune.objective import FineTuning, learning_rate_scales
from finetune.predictor import predict
from finetune.task_data import Split
from model import build_encoder
from model.backbone import rematerialize
from model.heads.task import ClassificationHead, RegressionHead, TaggingHead
from model.kernels import fusion
from tests.finetune.kinds_support import task_of
from tests.model_support import TINY, randomize
from training.distribution import create_strategy
from training.loop import Trainer
from training.optimizer import create_optimizer

LONGEST = 40
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def sequences(kind: str, n: int = 50, seed: int = 0) -> Encoded:
    """Random sequences whose label can be read off the first token."""
    draw = np.random.default_rng(seed)
    lengths = draw.integers(3, LONGEST, n)
    ids = draw.integers(5, 31, lengths.sum()).astype(np.int32)
    splits = np.concatenate([[0], np.cumsum(lengths)])
    tokens = {"input_ids": ids, "segment_ids": np.zeros_like(ids)}
    columns = {"example": np.arange(n, dtype=np.int32)}
    first = ids[splits[:-1]]
    if kind == "classification":
        columns["label"] = (first % 3).astype(np.int32)
    elif kind == "regression":
        columns["label"] = (first / 31).astype(np.float32)
    else:
        tokens["tags"] = ids % 3
        tokens["tag_weight"] = (draw.random(len(ids)) < 0.7).astype(np.float32)
    return Encoded(splits, tokens, columns, 0)


HEADS = {
    "classification": lambda: ClassificationHead(3),
    "regression": RegressionHead,
    "tagging": lambda: TaggingHead(3),
}


def objective_of(kind: str, **changes) -> FineTuning:
    encoder = build_encoder(TINY.replace(**changes))
    objective = FineTuning(encoder, HEADS[kind]())
    randomize(encoder, scale=0.3)
    randomize(objective.head)
    return objective


def trainer_of(objective, encoded, strategy=None, **options):
    strategy = strategy or create_strategy("one_device")
    with strategy.scope():
        optimizer = create_optimizer("adam", 2e-3, 0.0, objective.trainable_variables)
    batches = TrainingBatches(encoded, 8, 3, max_seq_length=LONGEST)
    return Trainer(objective, optimizer, batches, seed=3, strategy=strategy, **options)


def train(objective, encoded, steps, *, strategy, **options):
    trainer = trainer_of(objective, encoded, strategy, **options)
    losses = [trainer.train(tf.constant(1))["loss"] for _ in range(steps)]
    assert trainer._step.experimental_get_tracing_count() == 1  # whatever the lengths
    return losses


@pytest.mark.parametrize(
    "kind",
    [
        # Each of the others traces a step of its own for seconds.
        kind if kind == "classification" else pytest.param(kind, marks=pytest.mark.slow)
        for kind in HEADS
    ],
)
def test_a_task_is_learned(kind):
    """The label is a function of the text; the loss must fall to a fraction."""
    objective = objective_of(kind, **NO_DROPOUT)
    losses = train(objective, sequences(kind), 150, strategy=create_strategy("one_device"))
    assert np.mean(losses[-5:]) < 0.5 * np.mean(losses[:5])


@pytest.mark.parametrize("kind", HEADS)
def test_padding_and_the_order_of_sequences_change_no_prediction(kind):
    objective, encoded = objective_of(kind), sequences(kind)
    hparams = {"max_seq_length": LONGEST}
    task = task_of(kind)
    found = [
        predict(
            objective,
            task,
            Split([], encoded),
            batch_size=batch_size,
            hparams=resolve_hparams({**hparams, "length_buckets": buckets}, task, TINY),
            strategy=create_strategy(strategy),
        )
        for batch_size, buckets, strategy in (
            (8, True, "one_device"),
            (8, False, "one_device"),
            (8, [20, 32], "one_device"),
            (6, True, "mirrored:2"),
        )
    ]
    (name,) = found[0]
    count = len(encoded.tokens["input_ids"]) if kind == "tagging" else len(encoded)
    assert len(found[0][name]) == count
    for other in found[1:]:
        np.testing.assert_allclose(other[name], found[0][name], rtol=0, atol=1e-5)
    # And they are the predictions of these sequences: the last one, alone and without padding.
    start, stop = encoded.row_splits[-2:]
    alone = {"input_ids": encoded.tokens["input_ids"][None, start:stop]}
    alone |= {"input_mask": np.ones_like(alone["input_ids"]), "segment_ids": 0 * alone["input_ids"]}
    expected = objective.predict({key: tf.constant(value) for key, value in alone.items()})[name][0]
    last = found[0][name][start:stop] if kind == "tagging" else found[0][name][-1]
    np.testing.assert_allclose(last, expected, rtol=0, atol=1e-5)


def test_sequences_that_fill_a_batch_do_not_count():
    encoded = sequences("classification", 5)
    objective = objective_of("classification")
    batch = next(iter(EvaluationBatches(encoded, 8, max_seq_length=LONGEST)()))
    short = {name: value[:5] for name, value in batch.items()}
    losses = [
        objective.loss(features, objective.normalizers(features), training=False)[0]
        for features in (batch, short)
    ]
    assert batch["weight"].numpy().tolist() == [1] * 5 + [0] * 3
    np.testing.assert_allclose(*losses, rtol=1e-6)


def test_the_sum_and_the_mean_of_the_losses():
    """The original adds the losses up; what is reported is the mean."""
    encoded = sequences("tagging", 6)
    batch = next(iter(EvaluationBatches(encoded, 8, max_seq_length=LONGEST)()))
    objective, found = objective_of("tagging"), {}
    for objective.reduction in ("sum", "mean"):
        loss, sums = objective.loss(batch, objective.normalizers(batch), training=False)
        found[objective.reduction] = float(loss)
        np.testing.assert_allclose(sums["loss"][0] / sums["loss"][1], found["sum"] / words(encoded))
    np.testing.assert_allclose(found["sum"] / words(encoded), found["mean"], rtol=1e-5)


def words(encoded):
    return encoded.tokens["tag_weight"].sum()


@pytest.mark.bfloat16
def test_scores_are_of_full_precision_under_mixed_bfloat16():
    tf_keras.mixed_precision.set_global_policy("mixed_bfloat16")
    for kind, head in HEADS.items():
        shape = [500, 1, 16] if kind == "tagging" else [500, 16]
        found = head()(tf.random.normal(shape, dtype=tf.bfloat16))
        assert found.dtype == tf.float32, kind
        assert len(np.unique(found.numpy()[..., 0])) > 450


@pytest.mark.slow  # needs three traces
def test_devices_and_micro_batches_learn_the_same():
    """With dropout, in batches of several lengths."""
    encoded, losses = sequences("classification"), []
    for name, options in (
        ("one_device", {}),
        ("mirrored:2", {"micro_batches": 2}),
        ("one_device", {"rematerialized": True}),
    ):
        strategy = create_strategy(name)
        with strategy.scope():
            objective = objective_of("classification", num_hidden_layers=1)
        if options.pop("rematerialized", False):
            rematerialize(objective)
        losses.append(train(objective, encoded, 10, strategy=strategy, **options))
    for other in losses[1:]:
        np.testing.assert_allclose(other, losses[0], rtol=1e-5)
    assert losses[0][-1] != losses[0][0]


@pytest.mark.slow  # compiles ten kernels
def test_kernels_are_compiled_for_each_length(monkeypatch):
    """Within one trace of the step; what is learned from batches of several lengths is the same."""
    encoded, losses, trainers = sequences("classification"), [], []
    for smallest in (2**40, 1):
        monkeypatch.setattr(fusion, "SMALLEST_FUSED", smallest)
        objective = objective_of("classification", num_hidden_layers=1)
        trainer = trainer_of(objective, encoded)
        losses.append([trainer.train(tf.constant(1))["loss"] for _ in range(8)])
        trainers.append(trainer)
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)
    for trainer, compiles in zip(trainers, (False, fusion.running_on_cpu_only()), strict=True):
        graph = trainer._run.get_concrete_function(trainer._iterator, tf.constant(1)).graph
        functions = graph.as_graph_def().library.function
        compiled = [f for f in functions if f.attr["_XlaMustCompile"].b]
        assert bool(compiled) == compiles
    lengths = {int(batch["input_ids"].shape[1]) for batch in trainer._create_dataset(0).take(8)}
    assert len(lengths) > 1


def test_the_original_scale_of_layerwise_decay():
    """Reference facts: layer l of n gets decay^(n + 2 - (l + 1)), embeddings decay^(n + 2)."""
    objective = objective_of("classification")
    names = [variable.name for variable in objective.trainable_variables]
    by_name = dict(zip(names, learning_rate_scales(objective, 0.8)))
    n = TINY.num_hidden_layers
    assert len(set(by_name.values())) == n + 2
    for name, scale in by_name.items():
        power = 0
        if "embeddings" in name:
            power = n + 2
        elif "layer_" in name:
            power = n + 2 - (int(name.split("layer_")[1][0]) + 1)
        assert scale == pytest.approx(0.8**power), name
    corrected = learning_rate_scales(objective, 0.8, corrected=True)
    for scale, original in zip(corrected, by_name.values()):
        assert scale == pytest.approx(original if original == 1 else original / 0.8)
    assert learning_rate_scales(objective, 0.0) is None


def test_scales_of_shared_layers_are_the_top_ones_and_reach_the_update():
    """One step of the optimizer without gradient noise: the first update is rate times scale."""
    objective = objective_of("classification", share_layers=True, num_hidden_layers=6)
    variables, scales = objective.trainable_variables, learning_rate_scales(objective, 0.5)
    assert set(np.round(scales, 9)) == {1, 0.5**2, round(0.5**8, 9)}
    optimizer = create_optimizer("adam", 1e-3, 0.0, variables, scales)
    before = [variable.numpy() for variable in variables]
    optimizer.apply_gradients((tf.ones_like(variable), variable) for variable in variables)
    moved = [np.abs(v.numpy() - b).max() for v, b in zip(variables, before)]
    ratio = np.array(moved) / np.array(scales)
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-2)


def test_the_stream_of_batches_ends_when_it_is_closed(monkeypatch):
    """Left to the end of the interpreter, TensorFlow would report FAILED_PRECONDITION."""
    ended = threading.Event()
    numbers_before = TrainingBatches.numbers

    def noted(self, start_step=0):
        try:
            yield from numbers_before(self, start_step)
        finally:
            ended.set()

    monkeypatch.setattr(TrainingBatches, "numbers", noted)
    gc.disable()  # what the trainer refers to, and is referred to by, shall not decide
    try:
        trainer = trainer_of(objective_of("classification"), sequences("classification"))
        first = trainer.train(tf.constant(1))
        assert not ended.is_set()
        trainer.close()
        assert ended.wait(60)
    finally:
        gc.enable()
    assert first["loss"] != trainer.train(tf.constant(1))["loss"]  # it begins anew
    trainer.close()


@pytest.mark.parametrize(
    ("strategy", "options"), [("one_device", {"micro_batches": 2}), ("mirrored:2", {})]
)
def test_a_loss_over_the_batch_is_not_given_parts(strategy, options):
    strategy, encoded = create_strategy(strategy), sequences("classification")
    with strategy.scope():
        objective = objective_of("classification")
    trainer_of(objective, encoded, strategy, **options)
    objective.head.reads_whole_batch = True
    with strategy.scope():
        objective = FineTuning(objective.encoder, objective.head)
    with pytest.raises(InputError):
        trainer_of(objective, encoded, strategy, **options)
