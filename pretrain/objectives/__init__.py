"""The objectives of pre-training by name.

A new objective is one file, with a registered subclass of `ObjectiveSettings`, and its import here.
A file outside of this repository is imported with `--plugins FILE`.
"""

# ruff: noqa: F401
from convbert.pretrain.objectives import (
    causal_lm,
    masked_lm,
    permutation_lm,
    replaced_token_detection,
    self_critic,
)
from convbert.pretrain.objectives.base import (
    ObjectiveSettings,
    ScoringMethod,
    choose,
    get,
    names,
    register,
)
