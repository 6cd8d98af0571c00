"""Speed and size of the whole data builder, beside the path that the original code takes.

    python -m benchmarks.data_building --corpus wiki/ --corpus_format wikiextractor --vocab V

The original's path, in one process: read, BERT's Python tokenizer (tf-models-official's copy),
example building on Python lists, one tf.train.Example at a time. Both write finished record files
from the same text in the same run; the slow one from the first few units of the corpus only.
Imports are not counted, everything after them is. analysis.cost takes its rates from here.
"""

from __future__ import annotations

import collections
import functools
import os
import random
import statistics
import tempfile
import time
from collections.abc import Iterator

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import tensorflow as tf
from absl import app, flags

from benchmarks.table import Report
from common.errors import main_with_clear_errors
from common.machine import num_cores
from data import build
from data.corpus import CORPUS_FORMATS, open_corpus

_CORPUS = flags.DEFINE_string("corpus", "", "Corpus of build_pretraining_data.py.")
_CORPUS_FORMAT = flags.DEFINE_enum("corpus_format", "text", CORPUS_FORMATS, "Format of --corpus.")
_VOCAB = flags.DEFINE_string("vocab", None, "A lower-cased BERT vocab.txt.", required=True)
_UNITS = flags.DEFINE_integer("original_units", 3, "Units of the corpus for the original's path.")
_ROUNDS = flags.DEFINE_integer("rounds", 3, "Interleaved runs of each path.")
_LENGTH = flags.DEFINE_integer("max_seq_length", 128, "Maximum sequence length.", lower_bound=16)
ORIGINAL = "original's, one process"


class OriginalPath:
    """The original's steps and rules, including what they throw away."""

    def __init__(self, vocab: str):
        from official.nlp.tools.tokenization import FullTokenizer

        self.tokenizer = FullTokenizer(vocab, do_lower_case=True)
        self.random = random.Random(0)
        self.length = _LENGTH.value
        self.counts: collections.Counter[str] = collections.Counter()

    def examples(self, lines: list[str]) -> Iterator[bytes]:
        """Serialised examples of one document."""
        current, length, target = [], 0, self.length
        for line in lines:
            ids = self.tokenizer.convert_tokens_to_ids(self.tokenizer.tokenize(line))
            self.counts.update(tokens=len(ids), characters=len(line))
            current.append(ids)
            length += len(ids)
            if length >= target:
                yield self.example(current, target)
                current, length = [], 0
                short = self.random.random() < 0.05
                target = self.random.randint(5, self.length) if short else self.length
        if length:
            yield self.example(current, target)

    def example(self, lines: list[list[int]], target: int) -> bytes:
        """Two segments, cut to the maximum sequence length."""
        wanted = 100_000 if self.random.random() < 0.1 else (target - 3) // 2
        first: list[int] = []
        second: list[int] = []
        for line in lines:
            fits = not first or len(first) + len(line) < wanted
            if fits or (not second and len(first) < wanted and self.random.random() < 0.5):
                first += line
            else:
                second += line
        first = first[: self.length - 2]
        second = second[: max(0, self.length - len(first) - 3)]
        self.counts.update(tokens_kept=len(first) + len(second), examples=1)
        vocab = self.tokenizer.vocab
        ids = [vocab["[CLS]"], *first, vocab["[SEP]"]]
        segments = [0] * len(ids)
        if second:
            ids += [*second, vocab["[SEP]"]]
            segments += [1] * (len(second) + 1)
        values = {"input_ids": ids, "input_mask": [1] * len(ids), "segment_ids": segments}
        features = {}
        for name, value in values.items():
            padded = tf.train.Int64List(value=value + [0] * (self.length - len(ids)))
            features[name] = tf.train.Feature(int64_list=padded)
        example = tf.train.Example(features=tf.train.Features(feature=features))
        return example.SerializeToString()


def build_as_original(folder: str) -> dict[str, int]:
    """Reads the first units of the corpus; counts tokens, characters, examples and bytes."""
    path, corpus = OriginalPath(_VOCAB.value), open_corpus(_CORPUS.value, _CORPUS_FORMAT.value)
    file = os.path.join(folder, "original.tfrecord")
    with tf.io.TFRecordWriter(file) as writer:
        for unit in corpus.units[: _UNITS.value]:
            for document in corpus.documents(unit, collections.Counter()):
                for example in path.examples(document.lines):
                    writer.write(example)
    return {**path.counts, "bytes": os.path.getsize(file)}


def build_with(processes: int, folder: str) -> dict[str, int]:
    """Runs our builder over the whole corpus; counts the same."""
    options = build.BuildOptions(
        corpus=_CORPUS.value,
        corpus_format=_CORPUS_FORMAT.value,
        output_dir=os.path.join(folder, "built"),
        vocab=_VOCAB.value,
        max_seq_length=_LENGTH.value,
        num_processes=processes,
    )
    content = build.build(options)
    names = ("tokens", "tokens_kept", "characters", "examples")
    counts = {name: sum(split[name] for split in content["splits"].values()) for name in names}
    return {**counts, "bytes": sum(file["bytes"] for file in content["files"].values())}


def main(argv: list[str]) -> None:
    """Prints a row per path: medians over interleaved runs."""
    paths = {ORIGINAL: build_as_original}
    for name, processes in {"one process": 1, f"{num_cores()} processes": num_cores()}.items():
        paths[f"builder, {name}"] = functools.partial(build_with, processes)
    columns = {"path": "", "M tokens/s": ".3f", "kept": ".2%", "speed / original's": ".1f"}
    columns |= {"characters / token": ".3f", "tokens / example": ".2f", "bytes / example": ".1f"}
    report = Report(columns)
    speeds: dict[str, list[float]] = {name: [] for name in paths}
    counts = {}
    for number in range(_ROUNDS.value):
        for name in list(paths)[:: 1 if number % 2 == 0 else -1]:
            with tempfile.TemporaryDirectory() as folder:
                start = time.perf_counter()
                counts[name] = paths[name](folder)
                seconds = time.perf_counter() - start
            speeds[name].append(counts[name]["tokens"] / seconds / 1e6)
    for name, measured in speeds.items():
        speed = statistics.median(a / b for a, b in zip(measured, speeds[ORIGINAL]))
        count, tokens = counts[name], counts[name]["tokens"]
        sizes = (count["characters"] / tokens, tokens / count["examples"])
        kept = count["tokens_kept"] / tokens
        row = (statistics.median(measured), kept, speed, *sizes, count["bytes"] / count["examples"])
        report.row(name, *row)
    report.end()


if __name__ == "__main__":
    app.run(main_with_clear_errors(main))
