"""Counts the floating-point operations of pre-training runs: of recipes and of published rows.

What "training FLOPs" means is a convention; two are known here, see `Convention`. Components are
counted in model/flops.py; which of them a step computes, the objective says. analysis.flops
prints them.
"""

from __future__ import annotations

import dataclasses
from typing import Any

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
    translate,
)


@dataclasses.dataclass(frozen=True)
class Convention:
    """A convention for counting training FLOPs; a multiply-add is two operations in either.

    Attributes:
        name: for the table.
        backward: cost of the backward pass in forward passes.
        dense_lookup: whether embedding lookups count as products with one-hot vectors.
    """

    name: str
    backward: float
    dense_lookup: bool


# flops_computation.py of ELECTRA, which its paper and ConvBERT's follow: one backward pass costs as
# much as a forward pass, and looking up a word costs 2 E V.
ELECTRA = Convention("ELECTRA's", backward=1.0, dense_lookup=True)
# What is executed: gradients of a product with respect to both of its factors; lookups are free.
EXECUTED = Convention("executed", backward=2.0, dense_lookup=False)


def pretraining(hparams: PretrainingHParams, convention: Convention = ELECTRA) -> Flops | None:
    """The forward pass of one token of a pre-training step; None where it is not counted."""
    config = encoder_config(hparams, present(hparams.vocab_size))
    return hparams.objective.operations(config, hparams.max_seq_length, convention.dense_lookup)


def training_flops(hparams: PretrainingHParams, convention: Convention = ELECTRA) -> float | None:
    """Operations of a whole run: forward and backward, all tokens, all steps. See `pretraining`."""
    forward = pretraining(hparams, convention)
    batch_size = present(hparams.train_batch_size)
    tokens = hparams.num_train_steps * batch_size * hparams.max_seq_length
    return None if forward is None else forward.total * (1 + convention.backward) * tokens


def recipe_hparams(text_or_path: str) -> PretrainingHParams:
    """Hyper-parameters given as JSON text or as a file such as a recipe, resolved."""
    values = translate(read_json_object(text_or_path))
    values.pop("about", None)
    values, _, _ = split_hparams(values)
    parsed = parse_hparams(values)
    return resolve_hparams(values, parsed.vocab_size or named_size(parsed.model_size).vocab_size)


def hparams_of(row: Published, **changes: Any) -> PretrainingHParams:
    """A published row's hyper-parameters, resolved."""
    values = {**row.settings, **changes}
    return resolve_hparams(values, values.get("vocab_size", SIZES["bert-base"].vocab_size))
