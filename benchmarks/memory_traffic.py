"""Bytes that the kernels of a compiled XLA module exchange with a device's main memory.

XLA's "bytes accessed" counts every operand and result of a kernel. On a TPU most of them never
leave the vector memory on the chip: the compiler's text says so of each by a memory space, S(1).
A part of a tensor counts as that part: what a kernel slices, or writes into its place.
"""

from __future__ import annotations

import collections
import functools
import math
import re

_INSTRUCTION = re.compile(
    r"^\s+(ROOT )?%?([\w.\-]+) = (\(.*?\)|\S+) ([\w\-]+)\((.*?)\)(?=,|$)(.*)$", re.MULTILINE
)
_ARRAY = re.compile(r"([a-z]+\d*)\[([\d,]*)\](?:\{([^{}]*)\})?")
_NAME = re.compile(r"%([\w.\-]+)")
_CALLED = re.compile(r"calls=%?([\w.\-]+)")
_BITS = re.compile(r"(\d+)$")
_SLICES = ("dynamic-slice", "slice", "gather")
_VIEWS = ("bitcast", "reshape")
# Targets of custom calls that only name memory.
_NO_KERNEL = ("AllocateBuffer", "ConcatBitcast")


def main_memory_bytes(computations: dict[str, str], executions: dict[str, int], starts) -> float:
    """Bytes read from and written to main memory.

    Args:
        computations: text by name, of `hlo_text.Module`.
        executions: how often each computation runs that is no part of a kernel.
        starts: whether an opcode starts a kernel.
    """
    traffic = _Traffic(computations)
    return sum(times * traffic.of(name, starts) for name, times in executions.items())


class _Traffic:
    def __init__(self, computations):
        self._found = {name: _INSTRUCTION.findall(text) for name, text in computations.items()}
        self.inside = functools.cache(self._inside)

    def of(self, name, starts):
        """The bytes of a computation that is no part of a kernel, run once."""
        types = {result: type_ for _, result, type_, *_ in self._found[name]}
        total = 0
        for _, _, type_, opcode, arguments, rest in self._found[name]:
            if starts(opcode) and not any(target in rest for target in _NO_KERNEL):
                operands = [types.get(operand, "") for operand in _NAME.findall(arguments)]
                called = _CALLED.search(rest)
                total += self._kernel(opcode, type_, operands, called and called[1])
        return total

    def _kernel(self, opcode, type_, operands, called):
        if opcode.endswith("-start"):  # a copy: (from, to, ...) or (to, from, ...)
            sizes = [_bytes(array) for array in _ARRAY.findall(type_)]
            moved = min(sizes[:2], default=0)
            return sum(moved for array in _ARRAY.findall(type_)[:2] if _is_main(array))
        if opcode in _SLICES:
            return 2 * _main(type_) if _main(operands[0]) else _main(type_)
        if opcode == "dynamic-update-slice":
            return 2 * _main(operands[1])
        if called not in self._found:
            return sum(map(_main, operands)) + _main(type_)
        reads, writes = self.inside(called)
        total = sum(
            min(reads.get(number, math.inf), _main(operand))
            for number, operand in enumerate(operands)
        )
        return total + sum(
            min(_bytes(array), written)
            for array, written in zip(_ARRAY.findall(type_), writes, strict=False)
            if _is_main(array)
        )

    def _inside(self, name):
        """Bytes that a fused computation reads of each parameter, and writes of each result."""
        known = {result: rest for _, result, *rest in self._found[name]}
        users = collections.defaultdict(list)
        for _, result, _, opcode, arguments, _ in self._found[name]:
            if opcode not in ("parameter", "constant"):
                for place, operand in enumerate(_NAME.findall(arguments)):
                    users[operand].append((result, place))

        def read(result):
            whole, total = _all(known[result][0]), 0
            for user, place in users[result]:
                type_, opcode, _, rest = known[user]
                called = _CALLED.search(rest)
                if opcode in _SLICES and place == 0:
                    total += _all(type_)
                elif opcode == "dynamic-update-slice" and place == 0:
                    continue  # what stays as it is
                elif opcode in _VIEWS:
                    total += read(user)
                elif opcode == "fusion" and called and called[1] in self._found:
                    total += self.inside(called[1])[0].get(place, whole)
                else:
                    return whole
            return min(whole, total)

        def written(result):
            type_, opcode, arguments, rest = known[result]
            operands = _NAME.findall(arguments)
            if opcode == "dynamic-update-slice":
                return [_all(known[operands[1]][0])]
            if opcode == "tuple":
                return [size for operand in operands for size in written(operand)]
            if opcode in _VIEWS:
                return written(operands[0])
            if opcode == "fusion" and _CALLED.search(rest):
                return self.inside(_CALLED.search(rest)[1])[1]
            return [_bytes(array) for array in _ARRAY.findall(type_)]

        root = next(result for is_root, result, *_ in self._found[name] if is_root)
        parameters = [
            (int(arguments), result)
            for _, result, _, opcode, arguments, _ in self._found[name]
            if opcode == "parameter"
        ]
        return {number: read(result) for number, result in parameters}, written(root)


def _bytes(array):
    dtype, shape, _ = array
    bits = 8 if dtype == "pred" else int(found[1]) if (found := _BITS.search(dtype)) else 0
    return math.prod(int(n) for n in shape.split(",") if n) * bits // 8


def _is_main(array):
    return not re.search(r"S\([1-9]", array[2])


def _main(type_):
    return sum(_bytes(array) for array in _ARRAY.findall(type_) if _is_main(array))


def _all(type_):
    return sum(_bytes(array) for array in _ARRAY.findall(type_))
