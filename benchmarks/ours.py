"""Systems of this project, each a function that returns what is timed. Imports TensorFlow.

Where a function takes `fields`, that is `dataclasses.asdict` of an EncoderConfig.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

from analysis.operations import EXECUTED, pretraining
from benchmarks.texts import texts
from model import EncoderConfig, build_encoder, named_size
from model.backbone import rematerialize
from model.encoder import EncoderLayer, attention_bias
from pretrain.build import build_objective
from pretrain.hparams import PretrainingHParams, encoder_config, resolve_hparams
from training.loop import Trainer
from training.optimizer import WarmupTimesDecay, create_optimizer
from training.strategies import micro_batches

SPECIAL_IDS = {"cls": 101, "sep": 102, "mask": 103}  # of BERT's vocabulary
SCHEDULE = (10**6, 10**4)  # steps of training and of warm-up; no benchmark gets that far


def random_ids(batch: int, length: int, vocab_size: int = 30522) -> np.ndarray:
    """int32 [batch, length] of ordinary tokens between [CLS] and [SEP]."""
    ids = np.random.default_rng(0).integers(1000, vocab_size, [batch, length], np.int32)
    ids[:, 0], ids[:, -1] = SPECIAL_IDS["cls"], SPECIAL_IDS["sep"]
    return ids


def matmul(m: int, k: int, n: int, dtype: str = "float32", products: int = 8):
    """[m, k] times [k, n], `products` times over."""
    tf.random.set_seed(0)
    left = tf.Variable(tf.cast(tf.random.normal([m, k]), dtype))
    right = tf.Variable(tf.cast(tf.random.normal([k, n]), dtype))

    @tf.function
    def multiply():
        done = []
        for _ in range(products):
            # One after the other; without this, TensorFlow would compute their like only once.
            with tf.control_dependencies(done[-1:]):
                done.append(tf.matmul(left, right))
        return tf.stack([product[0, 0] for product in done])

    def run():
        multiply().numpy()

    run.facts = {"flops": 2 * m * k * n * products}
    return run


def inference(
    fields: dict[str, Any], batch: int, length: int, precision: str = "float32", xla: bool = False
):
    """The encoder's forward pass over a full batch (no padding)."""
    tf_keras.mixed_precision.set_global_policy(precision)
    config = EncoderConfig(**fields)
    encoder = build_encoder(config)

    @tf.function(jit_compile=xla)
    def forward(ids, mask):
        return encoder({"input_ids": ids, "input_mask": mask}).sequence

    ids = tf.constant(random_ids(batch, length, config.vocab_size))
    mask = tf.ones_like(ids)  # given; without it the mask's operations are optimized away
    return lambda: forward(ids, mask).numpy()


def mixer_block(
    fields: dict[str, Any],
    batch: int,
    length: int,
    precision: str = "float32",
    training: bool = False,
    xla: bool = False,
):
    """A layer without its feed-forward block: token mixer, output projection, residual, norm.

    When training, with dropout and the gradients with respect to inputs and weights.
    """
    tf_keras.utils.set_random_seed(0)
    tf_keras.mixed_precision.set_global_policy(precision)
    config = EncoderConfig(**fields)
    layer = EncoderLayer(config)
    dtype = layer.compute_dtype
    hidden, upstream = (
        tf.cast(tf.random.normal([batch, length, config.hidden_size]), dtype) for _ in range(2)
    )
    bias = attention_bias(tf.ones([batch, length], tf.int32), dtype)
    padding_mask = tf.ones([batch, length, 1], dtype)
    seeds = tf.constant([[1, 2], [3, 4]])

    def block(hidden):
        mixed, *_ = layer.mixer(hidden, bias, padding_mask, training=training, seed=seeds[0])
        output = layer.mixer_output(mixed, training=training)
        rate = config.hidden_dropout_prob
        return layer.mixer_norm(output, hidden, rate, training=training, seed=seeds[1])

    block(hidden)  # creates the weights

    @tf.function(jit_compile=xla)
    def compute(hidden, upstream):
        if not training:
            return [block(hidden)]
        with tf.GradientTape() as tape:
            tape.watch(hidden)
            output = block(hidden)
        weights = [layer.mixer, layer.mixer_output, layer.mixer_norm]
        weights = [variable for part in weights for variable in part.trainable_variables]
        return tape.gradient(output, [hidden, *weights], upstream)

    return lambda: _wait(compute(hidden, upstream))


def step_hparams(
    size: str, batch: int, length: int, precision: str = "float32", **hparams: Any
) -> PretrainingHParams:
    """The resolved hyper-parameters of `pretraining_step`; `model_size` may say "xlnet-{size}"."""
    overrides = hparams.get("model_hparam_overrides", {})
    size = hparams.pop("model_size", "{size}").format(size=size)
    values = {
        "model_size": size,
        "vocab_size": overrides.get("vocab_size", named_size(size).vocab_size),
        "max_seq_length": length,
        "train_batch_size": batch,
        "precision": precision,
        **hparams,
    }
    return resolve_hparams(values, values["vocab_size"])


def step_flops(hparams: PretrainingHParams) -> float:
    """Operations of the model's matrix products in one training step.

    Forward and backward pass; nothing for lookups, and masked slots alone for the generator's head.
    """
    tokens = hparams.train_batch_size * hparams.max_seq_length
    return pretraining(hparams, EXECUTED).matrix * (1 + EXECUTED.backward) * tokens


def step_features(hparams: PretrainingHParams) -> dict[str, np.ndarray]:
    """One batch without padding, int32 [B, S]."""
    ids = random_ids(hparams.train_batch_size, hparams.max_seq_length, hparams.vocab_size)
    return {"input_ids": ids, "input_mask": np.ones_like(ids), "segment_ids": 0 * ids}


def step_trainer(hparams: PretrainingHParams, schedule, **options: Any) -> Trainer:
    """The trainer of a new network, fed with `step_features` over and over.

    `options` are those of `Trainer`.
    """
    tf_keras.utils.set_random_seed(0)
    tf_keras.mixed_precision.set_global_policy(hparams.precision)
    config = encoder_config(hparams, hparams.vocab_size)
    objective = build_objective(hparams, config, SPECIAL_IDS)
    variables = objective.trainable_variables
    optimizer = create_optimizer(hparams.optimizer, schedule, 0.01, variables)
    return Trainer(
        objective,
        optimizer,
        lambda start_step: tf.data.Dataset.from_tensors(step_features(hparams)).repeat(),
        seed=0,
        strategy=tf.distribute.get_strategy(),
        **options,
    )


def pretraining_step(
    size: str,
    batch: int,
    length: int,
    precision: str = "float32",
    xla: bool = False,
    steps: int = 1,
    micro_batch_size: int | None = None,
    rematerialized: bool = False,
    **hparams,
):
    """Whole training steps as run_pretraining.py takes them, input apart."""
    hparams = step_hparams(size, batch, length, precision, **hparams)
    count = micro_batches(batch, 1, micro_batch_size)
    schedule = WarmupTimesDecay(1e-4, *SCHEDULE)
    trainer = step_trainer(hparams, schedule, xla=xla, micro_batches=count)
    if rematerialized:
        rematerialize(trainer.objective)
    count = tf.constant(steps)

    def run():
        trainer.train(count)

    run.facts = {"flops": steps * step_flops(hparams)}
    return run


def vectors(folder: str, batch: int, length: int):
    """Strings to the vectors of [CLS], by the signature `embeddings` of a SavedModel."""
    import tensorflow_text  # noqa: F401  the graph's tokenizer

    model = tf.saved_model.load(folder)
    embed, strings = model.signatures["embeddings"], tf.constant(texts(batch, length))

    def run():
        return embed(text=strings)["pooled"].numpy()

    run.facts = {"vector": run()[0].tolist()}
    run.model = model  # signatures do not keep it alive
    return run


def _wait(tensors: list[tf.Tensor]) -> None:
    """Waits for the tensors, results of one function; copies next to nothing."""
    tf.reshape(tensors[-1], [-1])[0].numpy()
