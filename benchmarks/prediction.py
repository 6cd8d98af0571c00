"""Labels or vectors of many short texts: `convbert.load(...)` beside transformers' pipeline, or
sentence-transformers.

    python -m convbert.benchmarks.prediction --texts 10000
    python -m convbert.benchmarks.prediction --texts 10000 --kind embedding --size electra-small

The weights are random and the same: a classifier whose head transformers has, or means of states.
Texts are of made-up words, as long as sentences and in no order. Each system is a process of its
own. The first text's probabilities or vectors, asked for alone, should be equal (8-bit ones are not
compared); with others they depend on padding in Hugging Face's ConvBERT, and not in ours.
"""

from __future__ import annotations

import tempfile

from absl import app, flags

from convbert.benchmarks import served
from convbert.benchmarks.interleaved import System, check_same, measure, ratio
from convbert.benchmarks.table import Report
from convbert.benchmarks.texts import WARM_UP, sentences
from convbert.common.errors import main_with_clear_errors
from convbert.common.plugins import lazily

_SIZE = flags.DEFINE_string("size", "small", "Named size of ConvBERT, or another's, electra-small.")
_KINDS = {"classifier": "classification_pipeline", "embedding": "sentence_vectors"}  # and the peer
_KIND = flags.DEFINE_enum("kind", "classifier", [*_KINDS], "Kind of the model.")
_TEXTS = flags.DEFINE_integer("texts", 10_000, "Number of texts.", lower_bound=1)
_BATCH = flags.DEFINE_integer("batch", 32, "Batch size of the peer.", lower_bound=1)
_ROUNDS = flags.DEFINE_integer("rounds", 3, "Interleaved runs of each system.", lower_bound=1)
_INT8 = "LiteRT int8"
# Ours, by the folder that `served.prepare` writes.
_FOLDERS = {"model directory": "model", "SavedModel": "saved", "LiteRT": "float32", _INT8: "int8"}


def main(argv: list[str]) -> None:
    """Prints a row for each system."""
    columns = {"system": "", "texts/s": ".0f", "times the peer": ".2f", "peak GiB": ".2f"}
    report = Report(columns)
    with tempfile.TemporaryDirectory() as folder:
        results = measure(systems(folder), _ROUNDS.value, seconds=0.0)
    check_same(results, "shares", {name: 1e-3 for name in results if name != _INT8})
    *_, peer = results
    for name, found in results.items():
        faster = ratio(results[peer], found)
        report.row(name, _TEXTS.value / found.median, faster, found.peak_memory)
    report.missing(results)
    report.end()


def systems(folder: str) -> list[System]:
    """Writes the model in all formats."""
    needed = ["huggingface", "saved", "float32", "int8"]
    served.prepare(_SIZE.value, folder, needed, _KIND.value)
    count, peer = {"count": _TEXTS.value}, _KINDS[_KIND.value]
    target, models = "convbert.benchmarks.prediction:ours", _FOLDERS.items()
    own = {"kind": _KIND.value, **count}
    found = [System(name, target, {"path": f"{folder}/{file}", **own}) for name, file in models]
    given = {"folder": f"{folder}/huggingface", "batch": _BATCH.value, **count}
    return [*found, System(peer, f"convbert.benchmarks.huggingface:{peer}", given)]


def ours(path: str, count: int, kind: str):
    """Answers to texts by `convbert.load`; TensorFlow is imported in this process alone."""
    model, texts = lazily("convbert.serving.model:load")(path), sentences(count)
    ask = model.embed if kind == "embedding" else model.predict

    def run() -> None:
        ask(texts, progress=False)

    first = ask(texts[0])
    vars(run).update(
        facts={"shares": (first if kind == "embedding" else first.probabilities).tolist()},
        warm_up=lambda: ask(texts[:WARM_UP], progress=False),
    )
    return run


if __name__ == "__main__":
    app.run(main_with_clear_errors(main))
