"""SavedModels of other programs: only those that can do no more than ours are loaded."""

import hashlib
import shutil

import pytest
import tensorflow as tf
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

import convbert
from convbert.data.vocabulary import Vocabulary
from convbert.serving.export import export
from convbert.serving.load import load_model_directory
from convbert.serving.trusted import OPERATIONS, check_graph
from tests.damage_support import edit
from tests.finetune.kinds_support import rejects
from tests.model.test_modern import MIXERS
from tests.model.test_modern import TINY as TINY_MODERN
from tests.model_support import TINY_XLNET
from tests.sentencepiece_support import comma_model
from tests.serving.conftest import SEARCH, TASKS
from tests.serving.support import fine_tuned, pretrained, task
from tests.serving.test_continuation import LINES

OF_FILES = {"SaveV2", "MergeV2Checkpoints", "RestoreV2"}
PIECES = Vocabulary.of_model(comma_model())
SUMMARY = {"summary_last": True, "type_vocab_size": 3}
CAUSAL = {"objective": "causal_lm", "overrides": {"causal": True}}


def tuned(own, *words, **settings):
    """Writes a fine-tuned model of one layer."""
    return lambda folder: fine_tuned(folder, own, *words, num_hidden_layers=1, **settings)


def trained(*words, **hparams):
    """Writes a pre-trained model."""
    return lambda folder: pretrained(folder, *words, **hparams)


CHANGES = [
    *({"convolution": name} for name in ("dynamic", "static")),
    *({"span_kernel": name} for name in ("key", "concatenation")),
    *({"token_mixer": name} for name in ("attention", "convolution")),
    *({"hidden_act": name} for name in ("relu", "gelu_new", "silu")),
    *({"mask_padding": False}, {"linear_groups": 2}),
]
MODELS = {
    **{kind: tuned(own()) for kind, own in (TASKS | SEARCH).items()},
    "multi_label": tuned(task("multi_label")),
    "version_2": tuned(task("span", version_2=True)),
    "crf": tuned(task("tagging"), hparams={"head": "crf"}),
    "pooler": tuned(task("classification"), hparams={"classifier": "pooler"}),
    **{kind: tuned(task(kind), PIECES, **SUMMARY) for kind in ("tagging", "span")},
    **{name: trained(objective=name) for name in ("masked_lm", "self_critic")},
    "causal_lm": trained(**CAUSAL),
    "adaptive": trained(**CAUSAL, adaptive_softmax_cutoffs=[60]),
    "words": trained(LINES, **CAUSAL),
    "pieces": trained(PIECES, objective="masked_lm", overrides=SUMMARY),
    "permutation_lm": trained(
        PIECES, objective="permutation_lm", model_size="xlnet-tiny", tiny=TINY_XLNET
    ),
    **{f"encoder {number}": trained(overrides=of) for number, of in enumerate(CHANGES)},
    **{
        f"modern {name}": trained(
            objective="masked_lm", model_size="modern-tiny", tiny=TINY_MODERN, overrides=of
        )
        for name, of in MIXERS.items()
    },
}


def graph_of(folder):
    content = SavedModel()
    content.ParseFromString((folder / "saved_model.pb").read_bytes())
    return content


@pytest.mark.slow  # needs four minutes: exports all kinds of models
def test_all_exports_are_loaded_and_need_all_operations(tmp_path):
    found = set()
    for number, write in enumerate(MODELS.values()):
        run, output = tmp_path / f"run{number}", tmp_path / f"out{number}"
        write(run)
        export(load_model_directory(str(run)), str(output), "run")
        graph = graph_of(output).meta_graphs[0].graph_def
        nodes = [graph.node, *(function.node_def for function in graph.library.function)]
        found |= {node.op for of in nodes for node in of}
    assert found - OF_FILES == OPERATIONS
    for number in range(len(MODELS)):
        check_graph(str(tmp_path / f"out{number}"), None)


@pytest.fixture
def copy(saved, tmp_path):
    """An export, to be changed."""
    return shutil.copytree(saved["classification"], tmp_path / "copy")


def replaced(folder, function):
    """Replaces its graph by one with a single function; the description stays."""
    root = tf.Module()
    root.function = tf.function(function, input_signature=[tf.TensorSpec([None], tf.string)])
    for path in (folder / "saved_model.pb", folder / "variables"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    tf.saved_model.save(root, str(folder), signatures={"serving_default": root.function})
    describe(folder)


def edited(folder, change):
    content = graph_of(folder)
    change(content.meta_graphs[0])
    (folder / "saved_model.pb").write_bytes(content.SerializeToString())
    describe(folder)


def describe(folder):
    """Gives the description the digest of the graph, as a stranger would."""
    digest = hashlib.sha256((folder / "saved_model.pb").read_bytes()).hexdigest()
    edit("assets.extra/model.json", sha256=digest)(folder)


def reading(text):
    return {"probabilities": tf.io.read_file(text[0])}


def writing(text):
    with tf.control_dependencies([tf.io.write_file(text[0], "gone")]):
        return {"probabilities": tf.zeros([1, 3])}


def python(text):
    return {"probabilities": tf.numpy_function(lambda text: 0.0, [text], tf.float32)}


@pytest.mark.parametrize(
    ("function", "operation"),
    [(reading, "ReadFile"), (writing, "WriteFile"), (python, "PyFunc")],
)
def test_operations_that_ours_do_not_have_are_rejected(copy, function, operation):
    replaced(copy, function)
    with rejects("saved_model.pb", operation):
        convbert.load(copy)
    assert convbert.load(copy, trust=True).kind == "classification"


def call_the_saver(content):
    """Makes a function call the one that writes a checkpoint to any path."""
    functions = content.graph_def.library.function
    (saver,) = (f for f in functions if any(node.op == "SaveV2" for node in f.node_def))
    other = next(f for f in functions if f is not saver)
    node = other.node_def.add(name="more", op="StatefulPartitionedCall")
    node.attr["f"].func.name = saver.signature.name


def offer_the_saver(content):
    functions = content.graph_def.library.function
    (saver,) = (f for f in functions if any(node.op == "SaveV2" for node in f.node_def))
    known = content.object_graph_def.concrete_functions
    known[saver.signature.name].CopyFrom(next(iter(known.values())))


def read_outside(content):
    content.asset_file_def[0].filename = "../../secret.txt"


@pytest.mark.parametrize("change", [call_the_saver, offer_the_saver, read_outside])
def test_files_of_others_are_not_read_or_written(copy, change):
    edited(copy, change)
    with rejects("saved_model.pb"):
        convbert.load(copy)


def test_damaged_and_doubled_graphs_are_rejected(copy):
    (copy / "saved_model.pbtxt").write_text("")
    with rejects("saved_model.pbtxt"):
        convbert.load(copy)
    (copy / "saved_model.pbtxt").unlink()
    (copy / "saved_model.pb").write_bytes(b"\xff" * 99)
    with rejects("saved_model.pb"):
        convbert.load(copy)
