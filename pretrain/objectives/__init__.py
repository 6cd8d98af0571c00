"""Pre-training objectives by name.

To add an objective, write a file with a registered subclass of `ObjectiveSettings` and import it
here. `--plugins FILE` imports a file outside of this repository.
"""

# ruff: noqa: F401
from convbert.pretrain.objectives import (
    causal_lm,
    masked_lm,
    permutation_lm,
    replaced_token_detection,
    self_critic,
)
from convbert.pretrain.objectives.base import ObjectiveSettings, ScoringMethod, get, names, register
