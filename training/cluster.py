"""Which processes train together, and which of them this one is. Needs no TensorFlow.

Read from TF_CONFIG, else from what SLURM says of a job step.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping

from errors import InputError

PORTS, FIRST_PORT = 16384, 16384  # of SLURM's steps, by the numbers of job and step
_PORTS_OF_STEP = 64  # on a node; more where it has more tasks
_SLURM = ("SLURM_PROCID", "SLURM_STEP_NODELIST", "SLURM_STEP_TASKS_PER_NODE")
_NODES = r"(?:[^,\[\]\s]|\[[\d,-]+\])+"  # one part of a list of nodes
_TYPES = ("chief", "worker")  # in the order in which TensorFlow counts them


@dataclasses.dataclass(frozen=True)
class Cluster:
    """The workers of a group, in TensorFlow's order; the first is the chief.

    Attributes:
        addresses: "host:port" of each worker.
        index: the number of this one.
        jobs: of each type of task, "chief" or "worker", how many there are.
    """

    addresses: tuple[str, ...]
    index: int
    jobs: Mapping[str, int]

    def name(self, worker: int) -> str:
        """What a message calls a worker: its number and its address."""
        return f"worker {worker} ({self.addresses[worker]})"

    def tf_config(self, worker: int | None = None) -> str:
        """The TF_CONFIG of a worker, by default of this one."""
        number, left = self.index if worker is None else worker, list(self.addresses)
        cluster = {job: [left.pop(0) for _ in range(count)] for job, count in self.jobs.items()}
        job = next(iter(self.jobs))
        if number >= self.jobs[job]:
            number, job = number - self.jobs[job], list(self.jobs)[1]
        return json.dumps({"cluster": cluster, "task": {"type": job, "index": number}})


def read_cluster(environment: Mapping[str, str]) -> Cluster:
    """The cluster of TF_CONFIG where it is set, else of SLURM.

    Raises:
        InputError: neither is there, or what is there cannot be right.
    """
    if environment.get("TF_CONFIG", "").strip():
        return from_tf_config(environment["TF_CONFIG"])
    if "SLURM_PROCID" in environment:
        return from_slurm(environment)
    raise InputError(
        "--strategy multi_worker should find its workers in TF_CONFIG, as `python -m"
        " training.launch` sets it, or in SLURM's variables, as srun does. Received: neither"
    )


def from_tf_config(text: str) -> Cluster:
    """The cluster of a TF_CONFIG such as

        {"cluster": {"worker": ["n1:2222", "n2:2222"]}, "task": {"type": "worker", "index": 0}}

    Raises:
        InputError: it is not JSON, or a part is missing or cannot be right.
    """
    try:
        config = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"TF_CONFIG should be JSON ({error}). Received: {text[:200]!r}") from error
    cluster, task = (
        config.get(name) if isinstance(config, dict) else None for name in ("cluster", "task")
    )
    if not isinstance(cluster, dict) or not cluster:
        raise _wrong("cluster", 'an object such as {"worker": ["host:port", ...]}', cluster)
    if not isinstance(task, dict):
        raise _wrong("task", 'an object such as {"type": "worker", "index": 0}', task)
    for job, addresses in cluster.items():
        if job not in _TYPES:
            raise _wrong("cluster", "of `worker` and `chief` tasks alone", job)
        if not isinstance(addresses, list) or not addresses:
            raise _wrong(f"cluster: {job}", "a list of host:port", addresses)
        for address in addresses:
            if not isinstance(address, str) or not _is_address(address):
                raise _wrong(f"cluster: {job}", "of addresses host:port", address)
    jobs = {job: len(cluster[job]) for job in _TYPES if job in cluster}
    if jobs.get("chief", 1) != 1:
        raise _wrong("cluster: chief", "one address", cluster["chief"])
    job, index = task.get("type"), task.get("index")
    if job not in jobs:
        raise _wrong("task: type", f"{' or '.join(jobs)}, as in its cluster", job)
    if type(index) is not int or not 0 <= index < jobs[job]:
        raise _wrong("task: index", f"from 0 to {jobs[job] - 1}, the tasks of its cluster", index)
    addresses = tuple(address for name in jobs for address in cluster[name])
    twice = next((name for name in addresses if addresses.count(name) > 1), None)
    if twice is not None:
        raise _wrong("cluster", "of different addresses", twice)
    return Cluster(addresses, index if job == next(iter(jobs)) else index + jobs["chief"], jobs)


def _wrong(part: str, expected: str, received: object) -> InputError:
    return InputError(f"TF_CONFIG, {part}: should be {expected}. Received: {received!r}")


def _is_address(text: str) -> bool:
    host, _, port = text.rpartition(":")
    return bool(host) and port.isdecimal() and 0 < int(port) < 2**16


def from_slurm(environment: Mapping[str, str]) -> Cluster:
    """The tasks of a SLURM job step, one worker each, as TensorFlow's SlurmClusterResolver.

    That one is not used: importing it takes seconds, it needs nvidia-smi, sorts the nodes by name,
    while SLURM numbers tasks in the order of its list, and gives all jobs the same ports.

    Raises:
        InputError: a variable is missing or cannot be read.
    """
    for name in _SLURM:
        if not environment.get(name):
            raise InputError(f"{name} is missing: start the workers by srun, or set TF_CONFIG")
    nodes = expand_nodes(environment["SLURM_STEP_NODELIST"])
    tasks = expand_tasks(environment["SLURM_STEP_TASKS_PER_NODE"])
    if len(nodes) != len(tasks):
        raise InputError(
            f"SLURM_STEP_TASKS_PER_NODE should count the tasks of {len(nodes)} nodes."
            f" Received: {environment['SLURM_STEP_TASKS_PER_NODE']!r}"
        )
    numbers = (environment.get(name, "0") for name in ("SLURM_JOB_ID", "SLURM_STEP_ID"))
    job, step = (int(number) if number.isdecimal() else 0 for number in numbers)
    width = max(_PORTS_OF_STEP, *tasks)
    # Jobs that follow each other, and steps of a job, may share a node.
    first = FIRST_PORT + (job + 37 * step) % (PORTS // width) * width
    addresses = tuple(
        f"{node}:{first + task}" for node, count in zip(nodes, tasks) for task in range(count)
    )
    index = environment["SLURM_PROCID"]
    if not index.isdecimal() or int(index) >= len(addresses):
        raise InputError(
            f"SLURM_PROCID should be from 0 to {len(addresses) - 1}. Received: {index!r}"
        )
    here = environment.get("SLURMD_NODENAME")
    if here and here != addresses[int(index)].rpartition(":")[0]:
        raise InputError(
            f"task {index} should be on node {addresses[int(index)].rpartition(':')[0]}, as srun"
            f" --distribution=block deals them. Received: {here}"
        )
    return Cluster(addresses, int(index), {"worker": len(addresses)})


def expand_nodes(text: str) -> list[str]:
    """The names of a list of nodes: "n[001-003,7],m" is n001, n002, n003, n7, m.

    Raises:
        InputError: it is no such list.
    """
    if not re.fullmatch(f"{_NODES}(,{_NODES})*", text):
        raise _no_list(text)
    nodes = []
    for part in re.findall(_NODES, text):
        names = [""]
        for plain, ranges in re.findall(r"([^\[\]]+)|\[([^\[\]]+)\]", part):
            ends = [plain] if plain else _expand_ranges(ranges, text)
            names = [name + end for name in names for end in ends]
        nodes += names
    return nodes


def _expand_ranges(text: str, whole: str) -> list[str]:
    """The numbers of "001-003,7" with the zeros in front."""
    numbers = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if not match or int(match[2] or match[1]) < int(match[1]):
            raise _no_list(whole)
        first, last = int(match[1]), int(match[2] or match[1])
        numbers += [str(number).zfill(len(match[1])) for number in range(first, last + 1)]
    return numbers


def _no_list(text: str) -> InputError:
    return InputError(
        f"SLURM_STEP_NODELIST should be a list of nodes such as n[001-003,7]. Received: {text!r}"
    )


def expand_tasks(text: str) -> list[int]:
    """The number of tasks of each node: "2(x3),1" is 2, 2, 2, 1.

    Raises:
        InputError: it is no such list.
    """
    counts = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part)
        if not match:
            raise InputError(
                f"SLURM_STEP_TASKS_PER_NODE should be counts such as 2(x3),1. Received: {text!r}"
            )
        counts += [int(match[1])] * int(match[2] or 1)
    return counts
