"""What a pre-trained model has learned, against guesses that need no network.

    python -m analysis.learned --data_dir DATA --model_dir MODEL

The model's figures are those of its last evaluation on held-out text (`run_pretraining.py
--do_eval`). The guesses are counted from the training text and scored on the same held-out tokens,
masked the same way.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import tensorflow as tf
from absl import app, flags

from data.input_pipeline import pretraining_dataset, record_files
from data.vocabulary import Vocabulary
from errors import InputError, main_with_clear_errors
from pretrain.load import load_hparams, load_objective
from training.loop import evaluation_seed
from training.monitoring import read_metrics

FLAGS = flags.FLAGS
flags.DEFINE_string("data_dir", None, "The data it was trained on.")
flags.DEFINE_string("model_dir", None, "The model directory.")


class BigramGuesser:
    """Guesses a token from its visible neighbours, by counts of adjacent pairs in training text.

    Args:
        vocab_size: V.
        batches: pairs of ids and mask, int [B, S]; the mask is 1 for tokens, 0 for padding.
    """

    def __init__(self, vocab_size: int, batches: Iterable[tuple[np.ndarray, np.ndarray]]):
        self.vocab_size = V = vocab_size
        self.unigrams = np.zeros(V, np.int64)
        pairs, counts = np.zeros(0, np.int64), np.zeros(0, np.int64)
        for ids, mask in batches:
            self.unigrams += np.bincount(ids[mask > 0], minlength=V)
            both = (mask[:, 1:] > 0) & (mask[:, :-1] > 0)
            codes = (ids[:, :-1].astype(np.int64) * V + ids[:, 1:])[both]  # left * V + right
            pairs, counts = _merge(pairs, counts, *np.unique(codes, return_counts=True))
        self.pairs, self.counts = pairs, counts

    def count(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """How often `right` followed `left`, elementwise."""
        codes = left.astype(np.int64) * self.vocab_size + right
        index = np.minimum(np.searchsorted(self.pairs, codes), len(self.pairs) - 1)
        return np.where(self.pairs[index] == codes, self.counts[index], 0)

    def after(self, left: int) -> tuple[np.ndarray, np.ndarray]:
        """The tokens seen after `left` and how often."""
        V = self.vocab_size
        start, stop = np.searchsorted(self.pairs, [left * V, (left + 1) * V])
        return self.pairs[start:stop] - left * V, self.counts[start:stop]

    def from_left(self, left: int, allowed: np.ndarray) -> int | None:
        """The token most often seen after `left`, or None when that was never seen."""
        tokens, counts = self.after(left)
        counts = counts * allowed[tokens]
        return int(tokens[np.argmax(counts)]) if counts.any() else None

    def from_both(self, left: int, right: int, allowed: np.ndarray) -> int | None:
        """argmax over w of P(w | left) P(right | w), or None when no w was seen with both."""
        tokens, counts = self.after(left)
        following = self.count(tokens, np.full_like(tokens, right))
        scores = counts * allowed[tokens] * following / self.unigrams[tokens]
        return int(tokens[np.argmax(scores)]) if scores.any() else None


def _merge(pairs, counts, more_pairs, more_counts):
    """Adds two sparse counts, each with sorted keys."""
    keys = np.concatenate([pairs, more_pairs])
    unique, inverse = np.unique(keys, return_inverse=True)
    values = np.concatenate([counts, more_counts])
    return unique, np.bincount(inverse, weights=values, minlength=len(unique)).astype(np.int64)


def score_guesses(
    guesser: BigramGuesser, batches: list[dict[str, np.ndarray]], never_masked: list[int]
) -> dict[str, float]:
    """Accuracy of each guess on masked held-out tokens.

    Args:
        guesser: counts of the training text.
        batches: prepared batches, see `pretrain.masking.mask_tokens`.
        never_masked: ids that are never predicted and so never guessed.

    Returns:
        `commonest token`, `bigram, left neighbour`, `bigram, both neighbours`, `slots`.
    """
    allowed = np.ones(guesser.vocab_size, bool)
    allowed[never_masked] = False
    commonest = int(np.argmax(guesser.unigrams * allowed))
    hits, slots = np.zeros(3, np.int64), 0
    for batch in batches:
        for row, slot in zip(*np.nonzero(batch["masked_lm_weights"])):
            seen, position = batch["masked_input_ids"][row], batch["masked_lm_positions"][row, slot]
            answer = batch["masked_lm_ids"][row, slot]
            slots += 1
            if allowed[seen[position]]:  # not hidden: every guess, as the model may, copies it
                hits += seen[position] == answer
                continue
            left, right = int(seen[position - 1]), int(seen[min(position + 1, len(seen) - 1)])
            one = guesser.from_left(left, allowed)
            one = commonest if one is None else one  # a hidden neighbour says nothing
            two = guesser.from_both(left, right, allowed)
            guesses = (commonest, one, one if two is None else two)
            hits += np.array(guesses) == answer
    names = ("commonest token", "bigram, left neighbour", "bigram, both neighbours")
    return {**dict(zip(names, (hits / max(1, slots)).tolist())), "slots": slots}


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
