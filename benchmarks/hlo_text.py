"""What the text of a compiled XLA module says: kernels, sums over devices, loops, the host.

XLA's cost analysis counts the body of a loop once, however often it runs; `executions` says how
often that is.
"""

from __future__ import annotations

import collections
import re

from benchmarks import memory_traffic

# An instruction: its name, type, opcode, and what follows.
_INSTRUCTION = re.compile(
    r"^\s+(?:ROOT )?%?[\w.\-]+ = (?:\(.*?\)|\S+) ([\w\-]+)\((.*)$", re.MULTILINE
)
_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{\n((?:.*\n)*?)\}", re.MULTILINE)
_CALLED = re.compile(r"(?:to_apply|(?:true|false)_computation|branch_computations)=(\{.*?\}|\S+)")
_CONDITION, _BODY = re.compile(r"condition=%?([\w.\-]+)"), re.compile(r"body=%?([\w.\-]+)")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')
_INTEGER = re.compile(r"= [su]\d+\[\]\S* constant\((\d+)\)")
_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
_SCOPE = re.compile(r'op_name="([^"]*)"')
_TARGET = re.compile(r'custom_call_target="([^"]*)"')
_HOST = ("infeed", "outfeed", "send", "recv", "send-done", "recv-done")
# Parameters, tuples and views start nothing; nor does what contains others, which are counted.
_NO_LAUNCH = ("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all")
_NO_LAUNCH += ("while", "call", "conditional")


class Module:
    """The text of a module, whose instructions are counted as often as they run.

    Attributes:
        executions: computation -> how often it runs, of those that are not part of a kernel. Of
            the branches of a conditional each counts.
        unknown_loops: how many loops the text does not say the length of. They count once.
    """

    def __init__(self, text: str):
        self._text = text
        found = _COMPUTATION.findall(text)
        self._computations = {name: body for _, name, body in found}
        (self._entry,) = (name for entry, name, _ in found if entry)
        self.executions: collections.Counter[str] = collections.Counter()
        self.unknown_loops = 0
        self._visit(self._entry, 1)

    def _visit(self, name: str, times: int) -> None:
        self.executions[name] += times
        for opcode, rest in _INSTRUCTION.findall(self._computations[name]):
            if opcode == "while":
                self._visit(_BODY.search(rest)[1], times * self._trips(rest))
            elif opcode in ("call", "conditional"):
                for called in _CALLED.findall(rest):
                    for inner in re.findall(r"[\w.\-]+", called):
                        self._visit(inner, times)

    def _trips(self, rest: str) -> int:
        """How often the body of a `while` runs; its counter begins at 0."""
        if known := _TRIPS.search(rest):
            return int(known[1])
        condition = self._computations[_CONDITION.search(rest)[1]]
        limits = [int(limit) for limit in _INTEGER.findall(condition)]
        if "direction=LT" in condition and limits:
            return min(limits)
        self.unknown_loops += 1
        return 1

    def _instructions(self):
        """Opcode, what follows, and how often it runs, of each instruction outside of kernels."""
        for name, times in self.executions.items():
            for opcode, rest in _INSTRUCTION.findall(self._computations[name]):
                yield opcode, rest, times

    def as_entry(self, name: str) -> str:
        """The text of a module that runs this computation, and what it calls, alone."""
        head, _, rest = self._text.partition("\n")
        head = head.partition(",")[0]  # without the layouts of its parameters
        rest = re.sub(r"^ENTRY ", "", rest, flags=re.MULTILINE)
        return f"{head}\n" + re.sub(
            rf"^(%?{re.escape(name)} \()", r"ENTRY \1", rest, flags=re.MULTILINE
        )

    def loop_bodies(self, name: str) -> list[str]:
        """The bodies of the loops of a computation, and of what it calls."""
        found = []
        for opcode, rest in _INSTRUCTION.findall(self._computations[name]):
            if opcode == "while":
                found.append(_BODY.search(rest)[1])
            elif opcode in ("call", "conditional"):
                for called in _CALLED.findall(rest):
                    for inner in re.findall(r"[\w.\-]+", called):
                        found += self.loop_bodies(inner)
        return found

    @property
    def entry(self) -> str:
        """The name of the computation that is the program."""
        return self._entry

    def main_memory_bytes(self) -> float:
        """See `memory_traffic`."""
        found = memory_traffic.main_memory_bytes
        return found(self._computations, self.executions, _starts_kernel)

    def all_reduces(self) -> int:
        """How many times the devices of a program sum something."""
        sums = ("all-reduce", "all-reduce-start")
        return sum(times for opcode, _, times in self._instructions() if opcode in sums)

    def host_operations(self) -> list[str]:
        """The operations that exchange data with the host, by opcode or target."""
        found = set()
        for opcode, rest in _INSTRUCTION.findall(self._text):
            target = _TARGET.search(rest) if opcode == "custom-call" else None
            if opcode in _HOST or (target and re.search("[Hh]ost|callback", target[1])):
                found.add(target[1] if target else opcode)
        return sorted(found)

    def scopes(self) -> dict[str, tuple[int, int]]:
        """Where the time goes: scope -> cycles, as a TPU's compiler estimates them, and kernels.

        Scopes are TensorFlow's, four deep, with # for every number; the largest first.
        """
        found: dict[str, tuple[int, int]] = {}
        for opcode, rest, times in self._instructions():
            if _starts_kernel(opcode):
                scope, cycles = _SCOPE.search(rest), _CYCLES.search(rest)
                parts = re.sub(r"\d+", "#", scope[1] if scope else opcode).split("/")[:4]
                known = found.get("/".join(parts), (0, 0))
                cycles = times * int(cycles[1]) if cycles else 0
                found["/".join(parts)] = (known[0] + cycles, known[1] + times)
        return dict(sorted(found.items(), key=lambda item: item[1], reverse=True))

    def launches(self) -> dict[str, int]:
        """How many kernels a GPU starts, all together and of some kinds.

        `clip` and `update` are those of the scopes in which training.optimizer clips and updates.
        """
        counts = collections.Counter(total=0, fusions=0, library=0, clip=0, update=0)
        for opcode, rest, times in self._instructions():
            if not _starts_kernel(opcode):
                continue
            scope = _SCOPE.search(rest)
            counts["total"] += times
            counts["fusions"] += times * (opcode == "fusion")
            counts["library"] += times * (opcode == "custom-call")
            counts["clip"] += times * bool(scope and "clip_gradients/" in scope[1])
            counts["update"] += times * bool(scope and "update_weights/" in scope[1])
        return dict(counts)


def _starts_kernel(opcode: str) -> bool:
    return opcode not in _NO_LAUNCH and not opcode.endswith("-done")
