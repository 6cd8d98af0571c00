"""Hyper-parameters of the runs whose operations are counted: recipes and published rows."""

from __future__ import annotations

from typing import Any

from finetune.published import Published
from model import SIZES, named_size
from pretrain.hparams import (
    PretrainingHParams,
    parse_hparams,
    resolve_hparams,
    split_hparams,
    translate,
)
from settings import read_json_object


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
