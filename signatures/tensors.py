"""What an input or an output of a signature is. Needs no TensorFlow."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

_TEXT_FORM = re.compile(r"(\w+) \[([A-Z](?:, [A-Z])*)\], (.*)", re.DOTALL)


@dataclasses.dataclass(frozen=True)
class Tensor:
    """The description of a tensor; `str` gives the form that people read.

    Attributes:
        dtype: its name.
        axes: a letter each: B batch, S tokens, D hidden, L labels, W words, M masked places, C
            options, K candidates or beam.
        about: the meaning.
        default: of an input that clients need not name, a number for every text.
    """

    dtype: str
    axes: tuple[str, ...]
    about: str
    default: float | int | None = None

    def __str__(self) -> str:
        return f"{self.dtype} [{', '.join(self.axes)}], {self.about}"

    def to_json(self) -> dict[str, Any]:
        """The fields as JSON values."""
        fields = {**dataclasses.asdict(self), "axes": list(self.axes)}
        return {name: value for name, value in fields.items() if value is not None}

    def but(self, addition: str) -> Tensor:
        """The same with more to its meaning."""
        return dataclasses.replace(self, about=self.about + addition)


def tensors_of(signature: dict[str, Any], side: str) -> dict[str, Tensor]:
    """The "inputs" or "outputs" of an item of `signatures` in model.json, by name.

    Before there were `tensors`, there was nothing but the text.
    """
    if "tensors" in signature:
        return {
            name: Tensor(item["dtype"], tuple(item["axes"]), item["about"], item.get("default"))
            for name, item in signature["tensors"][side].items()
        }
    found = {}
    for name, text in signature[side].items():
        dtype, axes, about = _TEXT_FORM.match(text).groups()
        found[name] = Tensor(dtype, tuple(axes.split(", ")), about)
    return found
