"""Counts parameters and floating-point operations of pre-training, for recipes and papers' rows.

There are two conventions for "training FLOPs", see `Convention`. model/flops.py counts components;
the objective determines which ones a step computes. analysis.flops prints them.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

from convbert.common.settings import present, read_json_object
from convbert.finetune.published import Published
from convbert.model import SIZES, named_size
from convbert.model.flops import Flops
from convbert.pretrain.hparams import (
    PretrainingHParams,
    encoder_config,
    parse_hparams,
    resolve_hparams,
    split_hparams,
)

# BERT's English ones; they do not affect the objective's parameters.
_SPECIAL_IDS = {"cls": 101, "sep": 102, "mask": 103}


class Parameters(NamedTuple):
    """Numbers of trained values."""

    encoder: int  # the encoder for fine-tuning, without heads (the papers' "Params")
    graph: int  # with all that trains beside it: generator, heads; not the optimizer's moments


def count_parameters(hparams: PretrainingHParams) -> Parameters:
    """Builds an objective and its networks, and counts their variables."""
    config = encoder_config(hparams, present(hparams.vocab_size))
    # Not in a `tf.Graph`, where variables would take no memory: there, Keras changes the bases of
    # our classes, which breaks existing models in the process.
    objective = hparams.build_objective(config, _SPECIAL_IDS)
    variables = (objective.encoder.trainable_variables, objective.trainable_variables)
    return Parameters(*(sum(math.prod(v.shape) for v in part) for part in variables))


@dataclasses.dataclass(frozen=True)
class Convention:
    """A convention for counting training FLOPs; a multiply-add is always two operations."""

    name: str  # for the table
    backward: float  # cost of the backward pass in forward passes
    dense_lookup: bool  # whether embedding lookups count as products with one-hot vectors


# flops_computation.py of ELECTRA, used in its paper and ConvBERT's: a backward pass costs as much
# as a forward pass, and an embedding lookup costs 2 E V.
ELECTRA = Convention("ELECTRA's", backward=1.0, dense_lookup=True)
# Executed operations: gradients of a product for both of its factors; lookups are free.
EXECUTED = Convention("executed", backward=2.0, dense_lookup=False)


def pretraining(hparams: PretrainingHParams, convention: Convention = ELECTRA) -> Flops:
    """Counts the forward pass of a pre-training step per token."""
    config = encoder_config(hparams, present(hparams.vocab_size))
    length, lookup = hparams.max_seq_length, convention.dense_lookup
    return hparams.objective.operations(config, length, lookup)


def training_flops(hparams: PretrainingHParams, convention: Convention = ELECTRA) -> float:
    """Counts a whole run: forward and backward, all tokens, all steps; NaN if not counted."""
    forward = pretraining(hparams, convention).total
    batch_size = present(hparams.train_batch_size)
    tokens = hparams.num_train_steps * batch_size * hparams.max_seq_length
    return forward * (1 + convention.backward) * tokens


def recipe_hparams(text_or_path: str) -> PretrainingHParams:
    """Reads and resolves hyper-parameters from JSON text or a file such as a recipe."""
    values = read_json_object(text_or_path)
    values.pop("about", None)
    values, _, _ = split_hparams(values)
    parsed = parse_hparams(values)
    return resolve_hparams(values, parsed.vocab_size or named_size(parsed.model_size).vocab_size)


def hparams_of(row: Published, **changes: Any) -> PretrainingHParams:
    """Returns a published row's hyper-parameters, resolved."""
    values = {**row.settings, **changes}
    return resolve_hparams(values, values.get("vocab_size", SIZES["bert-base"].vocab_size))
