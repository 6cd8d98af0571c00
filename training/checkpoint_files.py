"""The files of a folder of checkpoints: which are complete and readable, what a kill left behind.

TensorFlow writes a checkpoint under temporary names (`PREFIX_temp/`), renames the data, writes
`PREFIX.index`, and updates the list of checkpoints (the file `checkpoint`) last.
"""

from __future__ import annotations

import dataclasses
import functools
import glob
import math
import os
import re
import stat

import tensorflow as tf

import files
import storage
from errors import reason

LIST_FILE = "checkpoint"
_PART = re.compile(r"(.+)\.(?:index|data-\d{5}-of-\d{5})")
_TEMPORARY_FOLDER = re.compile(r"(.+-\d+)_temp")
_TEMPORARY_LIST = re.compile(r"checkpoint\.tmp[0-9a-f]{32}")
_LISTED = re.compile(r'^(model_checkpoint_path|all_model_checkpoint_paths): "(.*)"\s*$', re.M)
_MISSING = (FileNotFoundError, NotADirectoryError)  # other errors of a storage may pass
READING_ERRORS = (tf.errors.OpError, ValueError, RuntimeError, IndexError, SystemError)


@dataclasses.dataclass(frozen=True)
class ListedCheckpoints:
    """What the list of checkpoints says.

    Folders are left out of names: those of a folder that was moved are others.

    Attributes:
        latest: name of the latest; None where the list is missing or damaged.
        names: of all of them.
        whole: whether the latest, which is the last of all, is among them: else it was cut.
    """

    latest: str | None
    names: frozenset[str]
    whole: bool


def read_list(folder: str) -> ListedCheckpoints:
    """Reads the list of checkpoints of a folder; nothing is raised, whatever is in it.

    Raises:
        OSError: it is there and cannot be read.
    """
    try:
        with storage.open(
            os.path.join(folder, LIST_FILE), encoding="utf-8", errors="replace"
        ) as file:
            lines = _LISTED.findall(file.read())
    except _MISSING:
        lines = []
    latest = [os.path.basename(path) for key, path in lines if key == "model_checkpoint_path"]
    latest = latest[0] if latest and latest[0] else None
    names = {os.path.basename(path) for key, path in lines if key != "model_checkpoint_path"}
    all_names = frozenset(filter(None, {*names, latest}))
    return ListedCheckpoints(latest, all_names, latest in names)


def find_checkpoints(folder: str) -> list[str]:
    """Prefixes of the checkpoints of a folder, also of damaged ones, the newest first.

    The newest is that which the list of checkpoints names, the others follow by their steps. A
    checkpoint whose writing was cut off by the end of the process is none.
    """
    listed = read_list(folder)
    try:
        entries = storage.listdir(folder)
    except _MISSING:
        return []
    names = {match[1] for match in map(_PART.fullmatch, entries) if match}
    if listed.latest:
        names.add(listed.latest)
    names = [name for name in names if not _is_unfinished(folder, name, listed)]
    names.sort(key=lambda name: (name == listed.latest, step_of(name), name), reverse=True)
    return [os.path.join(folder, name) for name in names]


def newest_readable(folder: str) -> tuple[str | None, list[str]]:
    """The newest checkpoint of which every tensor can be read, and what is wrong with others.

    Returns:
        Its prefix, None when there is none; and, file by file, what is wrong with the list of
        checkpoints and with newer checkpoints.
    """
    path, found = os.path.join(folder, LIST_FILE), find_checkpoints(folder)
    wrong = []
    if storage.lexists(path) or found:
        if not storage.lexists(path):
            wrong.append(f"{path} is missing")
        elif read_list(folder).latest is None:
            wrong.append(f"{path} names no checkpoint")
    for prefix in found:
        fault = damage(prefix)
        if fault is None:
            return prefix, wrong
        wrong.append(fault)
    return None, wrong


def damage(prefix: str, *, thorough: bool = True) -> str | None:
    """What is wrong with a checkpoint, beginning with the file; None when nothing is.

    Args:
        prefix: its path without `.index`.
        thorough: whether every tensor is read, which finds changed bytes by their checksums; else
            the index is, and the sizes of files are compared. Files are read once per process.
    """
    names = [f"{prefix}.index", *_beginning_with(prefix, ".data-*")]
    sizes = []
    for name in sorted(names):
        try:
            status = storage.stat(name)
        except _MISSING:  # or deleted meanwhile
            continue
        if not stat.S_ISREG(status.st_mode):
            return f"{name} is not a regular file"
        sizes.append((name, status.st_size, status.st_mtime_ns))
    return _damage(prefix, tuple(sizes), thorough)


@functools.cache
def _damage(prefix: str, sizes: tuple[tuple[str, int, int], ...], thorough: bool) -> str | None:
    index = f"{prefix}.index"
    data = {name: size for name, size, _ in sizes if name != index}
    if len(data) == len(sizes):
        return f"{index} is missing"
    total = max((int(name[-5:]) for name in data), default=1)
    for part in range(total):
        name = f"{prefix}.data-{part:05d}-of-{total:05d}"
        if name not in data:
            return f"{name} is missing"
    try:
        reader = tf.train.load_checkpoint(prefix)
        shapes, types = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
    except READING_ERRORS as error:
        return f"{index} cannot be read ({reason(error)})"
    files_of_data = ", ".join(sorted(data))
    needed = sum(
        math.prod(shape) * types[name].size
        for name, shape in shapes.items()
        if types[name] != tf.string
    )
    if sum(data.values()) < needed:
        return (
            f"{files_of_data} cannot be read (of {needed} bytes or more there are"
            f" {sum(data.values())})"
        )
    for name in sorted(shapes) if thorough else ():
        try:
            reader.get_tensor(name)
        except READING_ERRORS as error:
            return f"{files_of_data} cannot be read ({name}: {reason(error)})"
    return None


def clean(folder: str, newest: str | None) -> None:
    """Removes what killed processes left in a folder, and lists its good checkpoints.

    Only for a process that begins to train here: it may remove what another is writing.

    Raises:
        InputError: the list of checkpoints cannot be written.
    """
    listed = read_list(folder)
    try:
        entries = storage.listdir(folder)
    except _MISSING:  # nothing was saved here yet
        return
    for entry in entries:
        path = os.path.join(folder, entry)
        match = _TEMPORARY_FOLDER.fullmatch(entry)
        if match and storage.isdir(path):
            # The folder last: it is what says that the writing of the others was cut off.
            if _is_unfinished(folder, match[1], listed):
                _remove(os.path.join(folder, match[1]))
            storage.rmtree(path, ignore_errors=True)
        elif _TEMPORARY_LIST.fullmatch(entry):
            storage.remove(path)
    if newest is None:
        return
    found = find_checkpoints(folder)
    for prefix in found:  # deleting an old one begins with its index
        if step_of(prefix) < step_of(newest) and not storage.exists(f"{prefix}.index"):
            _remove(prefix)
    # What stands before the newest readable one is damaged; what comes after is looked at briefly.
    older = [p for p in found[found.index(newest) + 1 :] if damage(p, thorough=False) is None]
    known = [prefix for prefix in older if os.path.basename(prefix) in listed.names]
    if not listed.whole or os.path.basename(newest) not in listed.names:
        kind = newest.rpartition("-")[0]
        known = [prefix for prefix in older if prefix.rpartition("-")[0] == kind]
    _write_list(folder, [*sorted(known, key=step_of), newest])


def _write_list(folder: str, prefixes: list[str]) -> None:
    """Writes the list of checkpoints, from the oldest to the newest."""
    names = [os.path.basename(prefix) for prefix in prefixes]
    lines = [f'model_checkpoint_path: "{names[-1]}"']
    lines += [f'all_model_checkpoint_paths: "{name}"' for name in names]
    # Without times TensorFlow would keep these for ever.
    times = [storage.getmtime(f"{prefix}.index") for prefix in prefixes]
    lines += [f"all_model_checkpoint_timestamps: {time}" for time in times]
    files.write_text(os.path.join(folder, LIST_FILE), "\n".join(lines) + "\n")


def step_of(prefix: str) -> int:
    """The number that the name of a checkpoint ends with; -1 without one."""
    match = re.search(r"-(\d+)$", prefix)
    return int(match[1]) if match else -1


def _is_unfinished(folder: str, name: str, listed: ListedCheckpoints) -> bool:
    """Whether a process was ended while it wrote this checkpoint, which nothing has listed."""
    prefix = os.path.join(folder, name)
    if name in listed.names or not storage.isdir(f"{prefix}_temp"):
        return False
    return damage(prefix, thorough=False) is not None


def _beginning_with(prefix: str, pattern: str) -> list[str]:
    folder, name = os.path.split(prefix)
    return storage.matching(folder, glob.escape(name) + pattern)


def _remove(prefix: str) -> None:
    for path in _beginning_with(prefix, ".*"):
        if _PART.fullmatch(path):
            storage.remove(path)
