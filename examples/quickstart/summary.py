"""The last lines of `make quickstart`: what was learned, where it is, what to try next.

python -m examples.quickstart.summary runs/quickstart
"""

from __future__ import annotations

import argparse
import os

from files import read_json
from finetune.results import group_results, read_results

MODEL = "models/convbert-tiny"
_NEXT = "python build_pretraining_data.py --corpus my_text/ --output_dir my_data"


def best_scores(runs: str) -> dict[str, float]:
    """The headline score, in percent, of the best run of each initialization."""
    scores: dict[str, float] = {}
    for group in group_results(read_results(runs)[0]):
        init = group.results[0]["init"]
        best = max(group.values(group.split, group.metric))
        scores[init] = max(100 * best, scores.get(init, 0.0))
    return scores


def summary(folder: str) -> str:
    """The text, from the figures that the steps before have left in the folder."""
    learned = read_json(os.path.join(folder, "learned.json"))
    accuracy = learned["model"]["masked_lm_accuracy"]
    _, left, both = learned["baselines"].values()
    scores = best_scores(os.path.join(folder, MODEL, "finetuning"))
    return f"""
What was learned
  Hidden words of documents it has not seen: {accuracy:.1%} predicted. Counting pairs of words
  gives {left:.1%} from the word before, {both:.1%} from the words on both sides.
  Is the word order of a passage disturbed? {scores["pretrained"]:.1f} % right after pre-training,
  {scores["random"]:.1f} % from random weights, 50 % by chance.
Where it is
  {folder}/{MODEL}/curves.png     how training went
  {folder}/{MODEL}                the pre-trained model
  {folder}/{MODEL}/finetuning/report.md
  {folder}/savedmodel                    answers texts; needs TensorFlow alone
Next
  echo 'This passage has sixteen words or more, and two of them were of exchanged with their
  neighbours.' | .venv/bin/python -m serving.predict --model {folder}/savedmodel
  Your own text: .venv/bin/{_NEXT}"""


def main() -> None:
    """Prints the summary."""
    parser = argparse.ArgumentParser(prog="python -m examples.quickstart.summary")
    parser.add_argument("folder", help="output folder of `make quickstart`")
    print(summary(parser.parse_args().folder))


if __name__ == "__main__":
    main()
