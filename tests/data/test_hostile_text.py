"""Data building from hostile text: each corpus with the time and memory it took, and how it ended.

python -m pytest tests/data/test_hostile_text.py -m hostile -s     prints the table
"""

from __future__ import annotations

import pathlib
import random
import subprocess
import sys
import time

import pytest

from data.manifest import read_manifest

ROOT = pathlib.Path(__file__).parents[2]
MIB = 1 << 20
THAI = list("กขคงจชดตทนบปพมยรลวสหอ")
VOWELS = ["า", "ิ", "ี", "ุ", "ู", "เ", "แ", "โ", "่", "้"]


def words(seed: int, letters: list[str], endings: list[str], count: int) -> list[str]:
    """Random words, the first ones the most frequent."""
    choices = random.Random(seed)
    shape = [choices.randrange(1, 4) for _ in range(3000)]
    known = [
        "".join(choices.choice(letters) + choices.choice(endings) for _ in range(n)) for n in shape
    ]
    weights = [1 / (1 + i) for i in range(len(known))]
    return choices.choices(known, weights, k=count)


def latin(count: int) -> list[str]:
    return words(0, list("bcdfghklmnprst"), list("aeiou"), count)


def thai(size: int) -> str:
    """Phrases of about 40 characters, as Thai is written."""
    text = words(1, THAI, VOWELS, size)
    phrases = ["".join(text[i : i + 10]) for i in range(0, len(text), 10)]
    return "\n".join(" ".join(phrases[i : i + 6]) for i in range(0, len(phrases), 6))


def one_line(size: int) -> bytes:
    line = " ".join(latin(100_000)).encode() + b" "
    return (line * (size // len(line) + 1))[:size]


CORPORA = {
    "one line of 200 MB": lambda: one_line(200 * MIB),
    "a word of 50 MB": lambda: b"abcdefgh" * (50 * MIB // 8),
    "2 MB of combining marks in turns": lambda: ("a" + "\u0327\u0301" * 500_000).encode(),
    "2 MB of other marks in turns": lambda: ("a" + "\u302e\U0001d165" * 290_000).encode(),
    "3 MB of unspaced Thai": lambda: thai(200_000).encode(),
    "Thai in lines of a phrase": lambda: thai(200_000).replace(" ", "").encode(),
    "300 kB of random bytes": lambda: random.Random(0).randbytes(300_000),
    "UTF-16": lambda: "\n".join(latin(10_000)).encode("utf-16"),
    "only whitespace": lambda: b" \t\n" * MIB,
    "only NUL": lambda: b"\0" * MIB,
    "a million blank lines, then text": lambda: b"\n" * 1_000_000 + one_line(100_000),
    "a million documents of a word": lambda: "\n\n".join(latin(1_000_000)).encode(),
    "control and format characters": lambda: ("\u200d\u202e\u0007a b " * 100_000).encode(),
}
# What ends with an error, and what its message names.
REFUSED = {
    "300 kB of random bytes": "--max_undecodable_share",
    "UTF-16": "UTF-16",
    "only whitespace": "at least one document",
    "only NUL": "words",
}
MAX_SECONDS, MAX_MIB = 300, 1300
# Executes its arguments, and prints status and peak memory; of a child of the tests' process the
# system would count the memory of that one too.
MEASURE = """
import os, subprocess, sys
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
_, status, usage = os.wait4(process.pid, 0)
print(os.waitstatus_to_exitcode(status), usage.ru_maxrss >> 10)
"""


@pytest.mark.hostile  # needs ten minutes of two cores, 3 GiB of memory and 1 GiB of disk
@pytest.mark.parametrize("name", CORPORA)
def test_hostile_text_ends_in_bounded_time_and_memory(tmp_path, name):
    (tmp_path / "corpus.txt").write_bytes(CORPORA[name]())
    arguments = ["--corpus", tmp_path / "corpus.txt", "--output_dir", tmp_path / "data"]
    start = time.time()
    command = [sys.executable, "build_pretraining_data.py", *arguments]
    command += ["--vocab_size", "2000", "--num_processes", "1"]
    ended = subprocess.run(
        [sys.executable, "-c", MEASURE, *command], cwd=ROOT, capture_output=True, text=True
    )
    seconds, message = time.time() - start, ended.stderr.strip()
    returncode, mib = map(int, ended.stdout.split())
    manifest = read_manifest(str(tmp_path / "data"))
    outcome = message.splitlines()[-1:] or ["complete"]
    print(f"\n| {name} | {seconds:.0f} s | {mib} MiB | {outcome[0][:150]} |")
    assert "Traceback" not in message
    assert seconds < MAX_SECONDS
    assert mib < MAX_MIB
    if name in REFUSED:
        assert returncode == 1
        assert REFUSED[name] in message
        assert manifest is None
    else:
        assert returncode == 0
        assert manifest["splits"]["train"]["tokens"] > 0
    assert ("combining marks of Thai" in message) == ("Thai" in name)
