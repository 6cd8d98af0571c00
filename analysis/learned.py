"""What a pre-trained model has learned, against guesses that need no network.

    python -m analysis.learned --data_dir DATA --model_dir MODEL

The model's figures are those of its last evaluation on held-out text (`run_pretraining.py
--do_eval`). The guesses are counted from the training text and scored on the same held-out tokens,
masked the same way.
"""

from __future__ import annotations

import library_logs  # noqa: F401  TensorFlow reads the environment when it is imported

# isort: split
import numpy as np
import tensorflow as tf
from absl import app, flags

from analysis.guesses import BigramGuesser, score_guesses
from data.input_pipeline import pretraining_dataset, record_files
from data.vocabulary import Vocabulary
from errors import InputError, main_with_clear_errors
from pretrain.load import load_hparams, load_objective
from training.loop import evaluation_seed
from training.monitoring import read_metrics

FLAGS = flags.FLAGS
flags.DEFINE_string("data_dir", None, "The data it was trained on.")
flags.DEFINE_string("model_dir", None, "The model directory.")


def masked_heldout_batches(model_dir: str, data_dir: str) -> list[dict[str, np.ndarray]]:
    """The held-out batches exactly as the model's evaluation masked them."""
    hparams, run = load_hparams(model_dir)
    dataset = pretraining_dataset(
        record_files(data_dir, "heldout"),
        batch_size=run["eval_batch_size"] or hparams.train_batch_size,
        max_seq_length=hparams.max_seq_length,
        seed=0,
        shuffle=False,
        repeat=False,
        drop_remainder=False,
    )
    objective = load_objective(model_dir)

    @tf.function
    def prepare(features, number):
        """The masks that evaluation draws for this batch."""
        return objective.prepare(features, evaluation_seed(hparams.seed, number))

    numbered = dataset.take(run["num_eval_steps"]).enumerate()
    return [
        {name: value.numpy() for name, value in prepare(features, number).items()}
        for number, features in numbered
    ]


def count_training_text(data_dir: str, vocab_size: int, max_seq_length: int) -> BigramGuesser:
    """Counts tokens and pairs of the training records."""
    dataset = pretraining_dataset(
        record_files(data_dir, "train"),
        batch_size=1024,
        max_seq_length=max_seq_length,
        seed=0,
        shuffle=False,
        repeat=False,
        drop_remainder=False,
    )
    arrays = ((batch["input_ids"].numpy(), batch["input_mask"].numpy()) for batch in dataset)
    return BigramGuesser(vocab_size, arrays)


def main(argv: list[str]) -> None:
    """Prints the table."""
    rows = [row for row in read_metrics(FLAGS.model_dir) if row["split"] == "heldout"]
    if not rows:
        raise InputError(f"{FLAGS.model_dir}: was not evaluated; run_pretraining.py --do_eval does")
    hparams, _ = load_hparams(FLAGS.model_dir)
    vocabulary = Vocabulary.load(FLAGS.model_dir)
    guesser = count_training_text(FLAGS.data_dir, vocabulary.size, hparams.max_seq_length)
    batches = masked_heldout_batches(FLAGS.model_dir, FLAGS.data_dir)
    never_masked = [vocabulary.ids[t] for t in ("[PAD]", "[CLS]", "[SEP]", "[MASK]")]
    print_table(rows[-1], score_guesses(guesser, batches, never_masked))


def print_table(model: dict[str, float], guesses: dict[str, float]) -> None:
    """The table that `make quickstart` ends with."""
    slots = guesses.pop("slots")
    print(f"\nHeld-out text, step {model['step']}: predicting {slots:,} masked tokens")
    width = 34
    for name, accuracy in guesses.items():
        print(f"  {name:{width}} {accuracy:7.1%}")
    print(f"  {'this model':{width}} {model['masked_lm_accuracy']:7.1%}")
    if "disc_auc" in model:
        print("Telling replaced from original tokens (area under the ROC curve)")
        print(f"  {'chance':{width}} {0.5:7.3f}")
        print(f"  {'this model':{width}} {model['disc_auc']:7.3f}")


if __name__ == "__main__":
    flags.mark_flags_as_required(["data_dir", "model_dir"])
    app.run(main_with_clear_errors(main))
