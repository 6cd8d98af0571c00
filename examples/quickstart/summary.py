"""The last lines of `make quickstart`: what was learned, where it is, what to try next.

    python -m convbert.examples.quickstart.summary runs/quickstart

It reads what the steps before have left in the folder.
"""

from __future__ import annotations

import convbert.common.startup  # noqa: F401  as every command does

# isort: split
import os
import sys

from convbert.common.files import read_json
from convbert.common.settings import present
from convbert.finetune.results import headline_score, read_results

MODEL = "models/convbert-tiny"
_PASSAGE = (
    "This function returns the sum all of elements the in array, or raises error an if empty."
)


def summary(folder: str) -> str:
    """The text, from the figures that the steps before have left in the folder."""
    learned = read_json(os.path.join(folder, "learned.json"))
    accuracy = learned["model"]["masked_lm_accuracy"]
    _, left, both = learned["baselines"].values()
    runs, _ = read_results(os.path.join(folder, MODEL, "finetuning"))
    scores = {run["init"]: present(headline_score(run)) / 100 for run in runs}
    return f"""
What was learned
  Of the hidden words of documents that it has not seen, the model predicts {accuracy:.1%}.
  Counting pairs of words gives {left:.1%} from the word before, {both:.1%} from both neighbours.
  Is the word order of a passage disturbed? The model is right in {scores["pretrained"]:.1%} of
  the cases, a network without pre-training in {scores["random"]:.1%}. By chance it is 50.0%.

Where it is
  {folder}/{MODEL}: the pre-trained model
  {folder}/{MODEL}/finetuning/report.md: the scores of the task
  {folder}/savedmodel: a model that takes text and needs no code of this project

Next: ask it, or pre-train on your own text
  echo '{_PASSAGE}' |
    .venv/bin/convbert predict --model {folder}/savedmodel
  .venv/bin/python build_pretraining_data.py --corpus my_text/ --output_dir my_data"""


if __name__ == "__main__":
    print(summary(sys.argv[1]))
