"""Damage to files, functions of a path or of a folder, and random draws."""

import json
import os
import random
import shutil
import time


def random_draw() -> random.Random:
    """Another generator each time; prints its seed, which the variable FAULTS_SEED sets."""
    seed = int(os.environ.get("FAULTS_SEED", time.time_ns() % 2**32))
    print(f"\nFAULTS_SEED={seed}")
    return random.Random(seed)


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def shorten(path):
    path.write_bytes(path.read_bytes()[:-50])


def empty(path):
    path.write_bytes(b"")


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 16
    path.write_bytes(content)


def delete(path):
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def each(pattern, damage):
    return lambda folder: [damage(path) for path in folder.glob(pattern)]


def edit(name, **changes):
    """Changes an object of a JSON file in a folder, named `path:key`."""
    path, _, key = name.partition(":")

    def change(folder):
        value = json.loads((folder / path).read_text())
        (value[key] if key else value).update(changes)
        (folder / path).write_text(json.dumps(value))

    return change
