"""Small corpora for the builder's tests."""

import random
from dataclasses import replace
from pathlib import Path

import pytest

from convbert.data import build
from tests.build_support import LETTERS, VOCABULARY


@pytest.fixture(scope="module")
def given(tmp_path_factory) -> build.BuildOptions:
    """Options for 12 files of 10 documents of random words, and a vocabulary of letters."""
    folder = tmp_path_factory.mktemp("given")
    (folder / "corpus").mkdir()
    choices = random.Random(0)

    def sentence() -> str:
        sizes = [choices.randrange(1, 9) for _ in range(choices.randrange(1, 30))]
        return " ".join("".join(choices.choices(LETTERS, k=size)) for size in sizes) + "."

    for i in range(12):
        counts = (choices.randrange(1, 6) for _ in range(10))
        documents = ["\n".join(sentence() for _ in range(count)) for count in counts]
        (folder / "corpus" / f"{i}.txt").write_text("\n\n".join(documents))
    VOCABULARY.save(folder / "vocabulary")
    places = str(folder / "corpus"), "text", "", str(folder / "vocabulary")
    sizes = {"max_seq_length": 32, "heldout_fraction": 0.2, "num_shards": 3, "num_processes": 1}
    return build.BuildOptions(*places, **sizes, seed=5)


@pytest.fixture(scope="module")
def built(given, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("built") / "data"
    build.build(replace(given, output_dir=str(folder)))
    return folder
