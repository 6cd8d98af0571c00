"""Labels for many short texts: `convbert.load(...).predict` beside transformers' pipeline.

    python -m convbert.benchmarks.prediction --texts 10000

The weights are random and the same: a classifier whose head transformers has. Texts are of made-up
words, as long as sentences and in no order. Each system is a process of its own. The first
text's probabilities, asked for alone, should be equal (8-bit ones are not compared); with others
they depend on padding in Hugging Face's ConvBERT, and not in ours.
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
_TEXTS = flags.DEFINE_integer("texts", 10_000, "Number of texts.", lower_bound=1)
_BATCH = flags.DEFINE_integer("batch", 32, "Batch size of the pipeline.", lower_bound=1)
_ROUNDS = flags.DEFINE_integer("rounds", 3, "Interleaved runs of each system.", lower_bound=1)
_PIPELINE, _INT8 = "pipeline", "LiteRT int8"
# Ours, by the folder that `served.prepare` writes.
_FOLDERS = {"model directory": "model", "SavedModel": "saved", "LiteRT": "float32", _INT8: "int8"}


def main(argv: list[str]) -> None:
    """Prints a row for each system."""
    columns = {"system": "", "texts/s": ".0f", "times the pipeline": ".2f", "peak GiB": ".2f"}
    report = Report(columns)
    with tempfile.TemporaryDirectory() as folder:
        results = measure(systems(folder), _ROUNDS.value, seconds=0.0)
    check_same(results, "shares", {name: 1e-3 for name in results if name != _INT8})
    for name, found in results.items():
        faster = ratio(results[_PIPELINE], found)
        report.row(name, _TEXTS.value / found.median, faster, found.peak_memory)
    report.missing(results)
    report.end()


def systems(folder: str) -> list[System]:
    """Writes the model in all formats."""
    needed = ["huggingface", "saved", "float32", "int8"]
    served.prepare(_SIZE.value, folder, needed, "classifier")
    count = {"count": _TEXTS.value}
    target, models = "convbert.benchmarks.prediction:ours", _FOLDERS.items()
    found = [System(name, target, {"path": f"{folder}/{file}", **count}) for name, file in models]
    given = {"folder": f"{folder}/huggingface", "batch": _BATCH.value, **count}
    peer = "convbert.benchmarks.huggingface:classification_pipeline"
    return [*found, System(_PIPELINE, peer, given)]


def ours(path: str, count: int):
    """Labels of texts by `convbert.load`; TensorFlow is imported in this process alone."""
    model, texts = lazily("convbert.serving.model:load")(path), sentences(count)

    def predict() -> None:
        model.predict(texts, progress=False)

    vars(predict).update(
        facts={"shares": model.predict(texts[0]).probabilities.tolist()},
        warm_up=lambda: model.predict(texts[:WARM_UP], progress=False),
    )
    return predict


if __name__ == "__main__":
    app.run(main_with_clear_errors(main))
