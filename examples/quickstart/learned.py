"""Compares a pre-trained model with n-gram baselines on masked tokens of held-out text.

    python -m convbert.examples.quickstart.learned --data_dir DATA --model_dir MODEL

The model and the baselines predict the same hidden tokens of DATA's held-out records: 15 % are
chosen, whatever the model was trained with, and the share of them that the model's masking says is
hidden. DATA need not be what the model was trained on, but has its vocabulary. The baselines count
DATA's training records.
"""

from __future__ import annotations

import convbert.common.startup  # noqa: F401  TensorFlow reads the environment when it is imported

# isort: split

import numpy as np
import tensorflow as tf
import tf_keras
from absl import app, flags

from convbert.common.errors import InputError, main_with_clear_errors
from convbert.common.files import check_there, write_json
from convbert.common.settings import present
from convbert.data.input_pipeline import clear_read_errors, pretraining_dataset, record_files
from convbert.examples.quickstart.ngrams import BigramModel, baseline_accuracies, hidden_weights
from convbert.pretrain.batches import Batches
from convbert.pretrain.evaluation import check_vocabulary, describe_data, read_settings
from convbert.pretrain.hparams import PretrainingHParams, check_data
from convbert.pretrain.load import load_objective
from convbert.pretrain.objectives.masked_lm import MaskedLMSettings
from convbert.training import checkpointing, metrics
from convbert.training.distribution import create_strategy
from convbert.training.loop import evaluation_seed
from convbert.training.objective import Objective
from convbert.training.tracing import plain_function

FLAGS = flags.FLAGS
flags.DEFINE_string("data_dir", None, "Data folder, of the model's vocabulary.", required=True)
flags.DEFINE_string("model_dir", None, "Model directory of run_pretraining.py.", required=True)
flags.DEFINE_string("output", None, "JSON file for the figures.")
MASK_PROB = 0.15  # of BERT and ELECTRA, whatever the model was trained with
_WIDTH = 34  # of a name in the table


def masked_heldout_batches(
    objective: Objective, heldout: Batches, seed: int, num_steps: int
) -> list[dict[str, np.ndarray]]:
    """The first `num_steps` held-out batches (-1: all) as the model's evaluation masks them."""

    @plain_function
    def prepare(features, number):
        return objective.prepare(features, evaluation_seed(seed, number))

    return [
        {name: value.numpy() for name, value in prepare(features, number).items()}
        for number, features in heldout().take(num_steps).enumerate()
    ]


def score_model(
    objective: Objective, batches: list[dict[str, np.ndarray]], mask_id: int
) -> dict[str, float]:
    """The metrics of evaluation; those of the masked LM over the hidden tokens alone."""

    @plain_function
    def measure(batch):
        return objective.loss(batch, objective.normalizers(batch), training=False)[1]

    totals: dict[str, np.float64] = {}
    for batch in batches:
        hidden = {**batch, "masked_lm_weights": hidden_weights(batch, mask_id)}
        sums = measure({name: tf.constant(value) for name, value in hidden.items()})
        for name, value in sums.items():
            totals[name] = totals.get(name, 0.0) + value.numpy().astype(np.float64)
    return metrics.summarize(totals)


def main(_: list[str]) -> None:
    """Prints the table."""
    data_dir, model_dir = FLAGS.data_dir, FLAGS.model_dir
    check_there("--data_dir", data_dir)
    check_there("--model_dir", model_dir)
    step = checkpointing.step_of(checkpointing.latest_checkpoint(model_dir))
    hparams, run = read_settings(model_dir, {}, {})
    if not isinstance(hparams.objective, MaskedLMSettings):
        raise InputError(f"{model_dir}: its objective, {hparams.objective.name}, masks no tokens")
    vocabulary = check_vocabulary(data_dir, model_dir)
    heldout = Batches(data_dir, "heldout", hparams, run, create_strategy(run.strategy))
    tf_keras.mixed_precision.set_global_policy(hparams.precision)
    objective = load_objective(model_dir, mask_prob=MASK_PROB)
    mask_id = vocabulary.mask_id
    with clear_read_errors(heldout.files):
        batches = masked_heldout_batches(objective, heldout, hparams.seed, run.num_eval_steps)
    never_masked = [vocabulary.pad_id, vocabulary.cls_id, vocabulary.sep_id, mask_id]
    bigrams = count_training_text(data_dir, hparams, never_masked)
    result = {
        "step": step,
        "chosen": sum(int(batch["masked_lm_weights"].sum()) for batch in batches),
        "hidden": sum(int(hidden_weights(batch, mask_id).sum()) for batch in batches),
        "baselines": baseline_accuracies(bigrams, batches, mask_id),
        "model": score_model(objective, batches, mask_id),
    }
    print(f"\nHeld-out text of {data_dir}, {describe_data(data_dir, model_dir)}, step {step}")
    print(table(result))
    if FLAGS.output:
        write_json(FLAGS.output, result)


def count_training_text(
    data_dir: str, hparams: PretrainingHParams, never_masked: list[int]
) -> BigramModel:
    """Counts tokens and pairs of the training records."""
    files, vocab_size = record_files(data_dir, "train"), present(hparams.vocab_size)
    dataset = pretraining_dataset(
        files,
        batch_size=1024,
        max_seq_length=hparams.max_seq_length,
        vocab_size=vocab_size,
        training=False,
        packed=check_data(data_dir, hparams),
    )
    arrays = ((batch["input_ids"].numpy(), batch["input_mask"].numpy()) for batch in dataset)
    with clear_read_errors(files):
        return BigramModel(vocab_size, arrays, never_masked)


def table(result: dict) -> str:
    """Formats the accuracies of model and baselines on hidden tokens, and the detector's AUC."""
    hidden, chosen, model = result["hidden"], result["chosen"], result["model"]
    shown = f"{chosen - hidden:,} of the {chosen:,} chosen tokens are shown and not counted"
    lines = [f"Predicting {hidden:,} hidden tokens ({shown})"]
    accuracies = {**result["baselines"], "this model": model["masked_lm_accuracy"]}
    lines += [f"  {name:{_WIDTH}} {value:7.1%}" for name, value in accuracies.items()]
    if "disc_auc" in model:
        lines.append("Telling replaced from original tokens (area under the ROC curve)")
        for name, value in {"chance": 0.5, "this model": model["disc_auc"]}.items():
            lines.append(f"  {name:{_WIDTH}} {value:7.3f}")
    return "\n".join(lines)


if __name__ == "__main__":
    app.run(main_with_clear_errors(main))
