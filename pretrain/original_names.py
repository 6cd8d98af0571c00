"""What the original's JSON calls otherwise than ours."""

from __future__ import annotations

from typing import Any

from errors import InputError
from settings import checked_bool

_OBJECTIVES = {True: "replaced_token_detection", False: "masked_lm"}


def translate(values: dict[str, Any]) -> dict[str, Any]:
    """A JSON object of hyper-parameters with `objective` in place of `electra_objective`.

    Every JSON object passes here where it is read: `--hparams`, recipes, the original's
    `config.json`, and `hparams.json` of runs that were recorded under the original's name.

    Raises:
        InputError: `electra_objective` is neither true nor false, or contradicts `objective`.
    """
    if "electra_objective" not in values:
        return values
    values = dict(values)
    name = _OBJECTIVES[checked_bool("electra_objective", values.pop("electra_objective"))]
    if values.get("objective", name) != name:
        raise InputError(
            f"`objective` should be {name}, as `electra_objective` says."
            f" Received: {values['objective']!r}"
        )
    return {**values, "objective": name}
