"""LiteRT files answer as SavedModels do, of every kind of model and of hostile texts."""

import collections
import functools
import json
import zipfile

import numpy as np
import pytest
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter

import convbert
from convbert.serving.description import litert_graph, read_description
from convbert.serving.export import export_litert
from convbert.serving.litert import load_signatures
from convbert.serving.load import load_model_directory, signatures
from tests.command_support import run
from tests.finetune.kinds_support import rejects
from tests.model_support import TINY_MODERN, slow_but
from tests.serving.conftest import SEARCH, TASKS
from tests.serving.support import asked, assert_equal, fine_tuned, task, trained, tuned

DRAW = np.random.default_rng(0)
PIECES = ["the", "city", "was", "born", "1995", "Café", "[MASK]"]
PIECES += ["北京", "a\u0327\u0301", "\x07", "\x00", "🙂"]
TEXTS = [" ".join(DRAW.choice(PIECES, n)) for n in (0, 1, 2, 5, 9, 17, 40)]
TEXTS += ["\t\n", "\u200b", "abc-def" * 9, "[MASK]" * 12]
TEXTS = [text.encode() for text in TEXTS] + [b"\xff\xfe\xc3( the"]

MODERN = TINY_MODERN.replace(token_mixer="mixed", canon_kernel_size=3)
MODELS = {
    **{kind: tuned(own()) for kind, own in (TASKS | SEARCH).items()},
    "wide": lambda folder: fine_tuned(
        folder, task("classification"), hidden_size=64, embedding_size=64
    ),
    "crf": tuned(task("tagging"), hparams={"head": "crf"}),
    "dense": tuned(task("classification"), hparams={"classifier": "dense"}),
    "padding enters": tuned(task("tagging"), mask_padding=False),
    "replaced_token_detection": trained(),
    **{name: trained(objective=name) for name in ("masked_lm", "self_critic")},
    **{
        f"modern {kind}": tuned(own(), tiny=MODERN, num_hidden_layers=2)
        for kind, own in (TASKS | SEARCH).items()
    },
    "modern": lambda folder: fine_tuned(
        folder, task("classification"), tiny=MODERN, hidden_size=64, embedding_size=64
    ),
    "modern convolution": lambda folder: fine_tuned(
        folder, task("tagging"), tiny=MODERN, token_mixer="gated_convolution"
    ),
}


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Kind of a model, and of its weights -> the model, its file, its description."""
    folder = tmp_path_factory.mktemp("litert")

    @functools.cache
    def model_of(kind):
        MODELS[kind](folder / kind)
        return load_model_directory(str(folder / kind))

    @functools.cache
    def export_one(kind, weights="float32"):
        output = folder / f"{kind}-{weights}"
        description = export_litert(model_of(kind), str(output), "run", weights)
        return model_of(kind), output / "model.tflite", description

    return export_one


# The slow ones need three minutes: each converts a model and traces its signatures twice.
@pytest.mark.parametrize(
    "kind", slow_but(["classification"], [kind for kind in MODELS if kind != "wide"])
)
def test_answers_are_those_of_the_saved_model(exported, kind):
    model, path, description = exported(kind)
    assert read_description(str(path)) == read_description(str(path.parent)) == description
    theirs, ours = load_signatures(str(path)), signatures(model)
    assert list(theirs) == list(ours) == list(description["signatures"])
    for name, signature in ours.items():
        if name == "token_ids":
            ids = {"input_ids": [[2, 7, 9, 3], [2, 3, 0, 0]], "segment_ids": np.zeros([2, 4])}
            requests, dtype = [{**ids, "input_mask": [[1] * 4, [1, 1, 0, 0]]}], tf.int32
        else:
            texts = {n: own for n, own in signature.inputs.items() if own.dtype == "string"}
            requests, dtype = [asked(texts, TEXTS[:count]) for count in (None, 1, 0)], tf.string
        found, expected = theirs[name].trace(), signature.trace()
        for request in requests:
            request = {key: tf.constant(value, dtype) for key, value in request.items()}
            assert_equal(found(**request), expected(**request), rtol=1e-4)


@pytest.mark.slow  # needs seventeen seconds: three files
@pytest.mark.parametrize("kind", ["wide", "modern"])
def test_smaller_weights(exported, kind):
    def answers(path):
        asked = load_signatures(str(path))["serving_default"].trace()
        return asked(text=tf.constant(TEXTS))["probabilities"]

    model, whole, _ = exported(kind)
    expected = answers(whole)
    matrices = sum(v.shape.num_elements() for v in model.variables if v.shape.rank == 2)
    for weights, saved in (("float16", 2), ("int8", 3)):
        _, small, _ = exported(kind, weights)
        assert read_description(str(small))["litert"]["weights"] == weights
        assert 0 < np.abs(answers(small) - expected).max() < 0.1
        assert whole.stat().st_size - small.stat().st_size > 0.7 * saved * matrices


def test_operations_of_the_file(exported):
    """They are LiteRT's own, and read no shapes at run time, which would keep XNNPACK out."""
    counts = []
    for kind in ("classification", "wide"):  # of one layer and of two
        interpreter = Interpreter(str(exported(kind)[1]))
        operations = [operation["op_name"] for operation in interpreter._get_ops_details()]
        assert all(name.isupper() for name in operations), operations  # others are not built in
        counts.append(collections.Counter(operations))
    one, two = counts
    assert two["FULLY_CONNECTED"] > one["FULLY_CONNECTED"]
    for name in ("SHAPE", "RESHAPE", "PACK", "TRANSPOSE"):
        assert two[name] == one[name]
    runner = interpreter.get_signature_runner("encode")  # of any batch size and length
    for shape in ((1, 3), (2, 24), (5, 7)):
        ids = np.ones(shape, np.int32)
        found = runner(input_ids=ids, input_mask=ids, segment_ids=0 * ids)
        assert found["sequence"].shape[:2] == shape


def test_the_commands(exported, tmp_path):
    run_dir = exported("classification")[1].parent.parent / "classification"
    arguments = ["--model_dir", run_dir, "--output_dir", tmp_path / "out"]
    run("export_savedmodel.py", *arguments, "--format=litert", "--weights=float16")
    path = tmp_path / "out" / "model.tflite"
    asked = run("-m", "convbert.serving.predict", "--model", path, text="the city\nborn\n")
    rows = [json.loads(line) for line in asked.stdout.splitlines()]
    assert [row["id"] for row in rows] == ["0", "1"]
    with zipfile.ZipFile(path) as archive:
        assert json.loads(archive.read("model.json"))["labels"] == ["bad", "fair", "good"]
        assert archive.read("vocab.txt").startswith(b"[PAD]\n")
    wrong = run("export_savedmodel.py", *arguments, "--weights=int8", status=1)
    assert "--format litert" in wrong.stderr


@pytest.mark.parametrize("content", [b"[" * 200_000, b" " * 2**26])
def test_a_description_that_cannot_be_read(tmp_path, exported, content):
    path = tmp_path / "model.tflite"
    path.write_bytes(litert_graph(str(exported("classification")[1])))
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("model.json", content)
    with rejects("model.tflite"):
        convbert.load(path)
