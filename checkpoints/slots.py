"""Transfers values between variables and tensors in other formats."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np
import tensorflow as tf
import tf_keras

from convbert.common.errors import InputError
from convbert.common.plugins import source
from convbert.model import DiscriminatorHead, Encoder, MaskedLMHead
from convbert.model.modern.network import ModernEncoder
from convbert.model.xlnet.network import XLNet, XLNetLMHead

# Networks that other formats support. Subclasses may compute something else.
_NETWORKS = (Encoder, ModernEncoder, XLNet, DiscriminatorHead, MaskedLMHead, XLNetLMHead)
TRANSPOSED = (1, 0)  # torch's linear layers hold [out, in]


class Tensors(Protocol):
    """The tensors of a checkpoint in another format; errors name its path, `where`."""

    where: str

    @property
    def shapes(self) -> Mapping[str, Sequence[int]]:
        """Returns the shapes of all tensors by name."""

    def read(self, name: str) -> np.ndarray:
        """Reads a tensor as float32; InputError if it is unreadable or of another type."""


@dataclasses.dataclass(frozen=True)
class Slot:
    """Variables of one shape, and the tensor that stacks them.

    `axes` are the variables' axes in the order of the tensor's; None: the same order.
    """

    variables: tuple[tf.Variable, ...]
    shape: tuple[int, ...]
    axes: tuple[int, ...] | None = None

    @classmethod
    def of(cls, variable: tf.Variable, axes: tuple[int, ...] | None = None) -> Slot:
        """Makes a slot for one variable, with permuted axes."""
        shape = tuple(variable.shape)
        return cls((variable,), shape if axes is None else tuple(shape[i] for i in axes), axes)

    def assign(self, tensor: np.ndarray) -> None:
        """Assigns a tensor of `shape` to the variables."""
        parts = tensor.reshape([len(self.variables), -1])
        for variable, part in zip(self.variables, parts, strict=True):
            axes = range(len(variable.shape)) if self.axes is None else self.axes
            part = part.reshape([variable.shape[axis] for axis in axes])
            variable.assign(np.transpose(part, np.argsort(axes)))

    def tensor(self) -> np.ndarray:
        """Returns the tensor, contiguous."""
        parts = [variable.numpy() for variable in self.variables]
        if self.axes is not None:  # None would reverse the axes in NumPy
            parts = [np.transpose(part, self.axes) for part in parts]
        return np.ascontiguousarray(np.stack(parts).reshape(self.shape))


def fill(
    slots: Mapping[str, Slot], tensors: Tensors, left_out: Callable[[str], str | None]
) -> list[str]:
    """Assigns tensors to variables; returns notes on unused tensors.

    `left_out` returns the reason why a tensor without a variable may be left out, "" if it is read
    elsewhere, or None if it may not be left out.

    InputError for a tensor that is missing, of another shape, not finite, or without a variable,
    and for tensors of one variable that differ.
    """
    where = tensors.where
    if missing := sorted(set(slots) - set(tensors.shapes)):
        raise InputError(f"{where}: tensors are missing: {_listed(missing)}")
    for name, slot in slots.items():
        if (received := tuple(tensors.shapes[name])) != slot.shape:
            expected = f"{name} should have shape {list(slot.shape)} by its configuration"
            raise InputError(f"{where}: {expected}. Received: {list(received)}")
    reasons: dict[str | None, list[str]] = {}
    for name in sorted(set(tensors.shapes) - set(slots)):
        reasons.setdefault(left_out(name), []).append(name)
    if unknown := reasons.pop(None, []):
        raise InputError(f"{where}: tensors without a variable: {_listed(unknown)}")
    first: dict = {}
    for name, slot in slots.items():
        tensor = tensors.read(name)
        if wrong := tensor.size - np.count_nonzero(np.isfinite(tensor)):
            raise InputError(f"{where}: {name} should be finite. Received: {wrong} NaN or infinite")
        other = first.setdefault(slot.variables[0].ref(), name)
        if other != name and not np.array_equal(tensor, slot.tensor()):
            raise InputError(f"{where}: {name} and {other}, shared here, should be equal")
        slot.assign(tensor)
    found = reasons.items()
    return [f"{where}: left out: {', '.join(names)} ({why})" for why, names in found if why]


def checked(slots: dict[str, Slot], *networks: tf_keras.layers.Layer | None) -> dict[str, Slot]:
    """Returns slots; InputError for a network with another computation or an unnamed variable."""
    named = {variable.ref() for slot in slots.values() for variable in slot.variables}
    for network in filter(None, networks):
        if type(network) not in _NETWORKS:
            raise InputError(f"no format has {network.name}, a {source(type(network))}")
        if unnamed := [v.name for v in network.variables if v.ref() not in named]:
            raise InputError(f"no format has the variables {_listed(unnamed)} of {network.name}")
    return slots


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
