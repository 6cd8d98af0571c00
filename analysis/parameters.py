"""Counts the parameters of every named size, or of one run, by building the networks.

    convbert parameters
    convbert parameters --hparams configs/convbert_small.json [--plugins FILE]

The whole pre-training graph is the encoder with everything that trains beside it: the discriminator
head, the generator and its head for replaced-token detection, the output layer for masked language
modelling. Optimizer slots are not counted.
"""

from __future__ import annotations

import convbert.common.startup  # noqa: F401  TensorFlow reads the environment when it is imported

# isort: split
import math
import sys
from typing import NamedTuple

from convbert.analysis.operations import recipe_hparams
from convbert.analysis.tables import HPARAMS, format_table, parse_arguments
from convbert.common.errors import main_with_clear_errors
from convbert.common.settings import present
from convbert.model import SIZES
from convbert.pretrain.hparams import PretrainingHParams, encoder_config, resolve_hparams

_SIZES = tuple(SIZES)  # those of plug-ins come later, and their objective is not known

# BERT's English ones; they do not affect the objective's parameters.
_SPECIAL_IDS = {"cls": 101, "sep": 102, "mask": 103}


class Parameters(NamedTuple):
    """Numbers of trained values."""

    encoder: int  # the encoder for fine-tuning, without heads (the papers' "Params")
    graph: int  # the whole pre-training graph


def count_parameters(hparams: PretrainingHParams) -> Parameters:
    """Builds an objective and its networks, and counts their variables."""
    config = encoder_config(hparams, present(hparams.vocab_size))
    # Not in a `tf.Graph`, where variables would take no memory: there, Keras changes the bases of
    # our classes, which breaks existing models in the process.
    objective = hparams.build_objective(config, _SPECIAL_IDS)
    variables = (objective.encoder.trainable_variables, objective.trainable_variables)
    return Parameters(*(sum(math.prod(v.shape) for v in part) for part in variables))


def default_hparams(size: str) -> PretrainingHParams:
    """Returns a named size with its objective: masked LM for BERT, causal LM for causal encoders,
    permutation LM for XLNet, else replaced-token detection."""
    named = {"bert": "masked_lm", "causal": "causal_lm", "xlnet": "permutation_lm"}
    objective = named.get(size.split("-")[0], "replaced_token_detection")
    values = {"model_size": size, "objective": objective}
    return resolve_hparams(values, SIZES[size].vocab_size)


def main(argv: list[str]) -> None:
    """Prints the table."""
    arguments = parse_arguments(argv, hparams=HPARAMS)
    rows, runs = [], map(default_hparams, _SIZES)
    for run in [recipe_hparams(arguments.hparams)] if arguments.hparams else runs:
        counts = (run.vocab_size, *count_parameters(run))
        rows.append([run.model_size, *(f"{n:,}" for n in counts), run.objective.name])
    header = ["size", "vocabulary", "encoder", "pre-training graph", "objective"]
    print(format_table(header, rows))


if __name__ == "__main__":
    main_with_clear_errors(main, takes_arguments=True)(["parameters", *sys.argv[1:]])
