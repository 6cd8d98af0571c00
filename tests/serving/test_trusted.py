"""SavedModels of other programs: only those that can do no more than ours are loaded."""

import contextlib
import hashlib
import os
import shutil

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

import convbert
from convbert.common.errors import InputError
from convbert.data.vocabulary import Vocabulary
from convbert.serving.export import export
from convbert.serving.load import load_model_directory
from convbert.serving.trusted import OPERATIONS
from tests.damage_support import cut, edit
from tests.finetune.kinds_support import rejects
from tests.model.test_modern import MIXERS
from tests.model_support import TINY_MODERN, TINY_XLNET
from tests.sentencepiece_support import comma_model
from tests.serving.conftest import SEARCH, TASKS
from tests.serving.support import task, trained, tuned
from tests.serving.test_pretraining import LINES

OF_FILES = {"SaveV2", "MergeV2Checkpoints", "RestoreV2"}
PIECES = Vocabulary.of_model(comma_model())
SUMMARY = {"summary_last": True, "type_vocab_size": 3}
CAUSAL = {"objective": "causal_lm", "overrides": {"causal": True}}
CHANGES = [
    *({"convolution": name} for name in ("dynamic", "static")),
    *({"span_kernel": name} for name in ("key", "concatenation")),
    *({"token_mixer": name} for name in ("attention", "convolution")),
    *({"hidden_act": name} for name in ("relu", "gelu_new", "silu")),
    *({"mask_padding": False}, {"linear_groups": 2}),
]
MODELS = {
    **{kind: tuned(own()) for kind, own in (TASKS | SEARCH).items()},
    "blanks": tuned(task("multiple_choice"), hparams={"question_apart": False, "fill_blank": True}),
    "version_2": tuned(task("span", version_2=True)),
    "crf": tuned(task("tagging"), hparams={"head": "crf"}),
    "pooler": tuned(task("classification"), hparams={"classifier": "pooler"}),
    **{f"pieces, {kind}": tuned(task(kind), PIECES, **SUMMARY) for kind in ("tagging", "span")},
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
            objective="masked_lm",
            model_size="modern-tiny",
            tiny=TINY_MODERN,
            overrides={**of, "num_hidden_layers": 2},  # the second one has a window
        )
        for name, of in MIXERS.items()
    },
}


def graph_of(folder):
    return SavedModel.FromString((folder / "saved_model.pb").read_bytes())


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
        convbert.load(tmp_path / f"out{number}")


@pytest.fixture
def copy(saved, tmp_path):
    return shutil.copytree(saved["classification"], tmp_path / "copy")


def replaced(folder, function, root=None):
    """Replaces its graph by one with a single signature; the description stays."""
    root = root or tf.Module()
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
    digest = hashlib.sha256((folder / "saved_model.pb").read_bytes()).hexdigest()
    edit("assets.extra/model.json", sha256=digest)(folder)


def test_operations_that_ours_do_not_have_are_rejected(copy):
    replaced(copy, lambda text: {"probabilities": tf.io.read_file(text[0])})
    with rejects("saved_model.pb", "ReadFile"):
        convbert.load(copy)
    assert convbert.load(copy, trust=True).kind == "classification"


def saving(path):
    arguments = {"prefix": path, "tensor_names": ["a"], "shape_and_slices": [""]}
    return tf.control_dependencies([tf.raw_ops.SaveV2(**arguments, tensors=[tf.constant(1.0)])])


def in_a_signature(folder, path):
    def function(text):
        with saving(path):
            return {"probabilities": tf.zeros([1, 3])}

    replaced(folder, function)


def in_what_no_function_calls(folder, path):
    """TensorFlow replaces a function by another one that implements the same for a device."""
    root = tf.Module()
    root.zeros = tf.Variable(tf.zeros([1, 3]))

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def inner(text):
        return root.zeros + 0.0

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def hidden(text):
        with saving(path):
            return root.zeros + 0.0

    root.hidden, root.inner = hidden, inner
    replaced(folder, lambda text: {"probabilities": inner(text)}, root)

    def change(content):
        for function in content.graph_def.library.function:
            for name, device in (("inner", b"GPU"), ("hidden", b"CPU")):
                if f"__inference_{name}" in function.signature.name:
                    function.attr["api_implements"].s = b"zeros"
                    function.attr["api_preferred_device"].s = device
        for node in content.object_graph_def.nodes:
            if node.WhichOneof("kind") == "function":
                del node.function.concrete_functions[:], node.children[:]

    edited(folder, change)


@pytest.mark.parametrize("hide", [in_a_signature, in_what_no_function_calls])
def test_functions_that_write_files_cannot_be_called(copy, tmp_path, hide):
    path = str(tmp_path / "written")
    hide(copy, path)
    with contextlib.suppress(InputError):
        convbert.load(copy).predict([path])
    assert not list(tmp_path.glob("written*"))
    with contextlib.suppress(Exception):  # without labels, after the file has been written
        convbert.load(copy, trust=True).predict([path])
    assert list(tmp_path.glob("written*"))


def test_a_graph_of_tensorflow_1_is_rejected(copy, tmp_path):
    """Whose main operation would run while it is loaded."""
    path = str(tmp_path / "written")
    shutil.rmtree(copy / "variables")
    (copy / "saved_model.pb").rename(tmp_path / "before")
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        text = tf.compat.v1.placeholder(tf.string, [None])
        with saving(path):
            operation = tf.no_op()
        outputs = {"probabilities": tf.zeros([1, 3])}
        signature = tf.compat.v1.saved_model.predict_signature_def({"text": text}, outputs)
        builder = tf.compat.v1.saved_model.Builder(str(tmp_path / "old"))
        signatures = {"serving_default": signature}
        builder.add_meta_graph_and_variables(session, ["serve"], signatures, main_op=operation)
        builder.save()
    shutil.copytree(tmp_path / "old", copy, dirs_exist_ok=True)
    describe(copy)
    with rejects("TensorFlow 1"):
        convbert.load(copy)
    assert not list(tmp_path.glob("written*"))


def test_assets_lie_inside(copy):
    def change(content):
        content.asset_file_def[0].filename = "../../secret.txt"

    edited(copy, change)
    with rejects("secret.txt"):
        convbert.load(copy)


def test_variables_that_are_cut_are_rejected(copy):
    cut(copy / "variables" / "variables.data-00000-of-00001")
    with rejects(str(copy)):
        convbert.load(copy)


def test_damaged_graphs_are_rejected(copy):
    """Also one that is trusted, and what is no file."""
    path = copy / "saved_model.pb"
    path.write_bytes(path.read_bytes() + b"x")
    for trust in (False, True):
        with rejects("saved_model.pb", "digest"):
            convbert.load(copy, trust=trust)
    path.write_bytes(b"\xff" * 99)
    describe(copy)
    with rejects("saved_model.pb"):
        convbert.load(copy)
    path.unlink()
    os.mkfifo(path)
    with rejects("saved_model.pb"):
        convbert.load(copy)


def test_a_model_at_a_url(copy):
    url = "ram://trusted"
    for path in copy.rglob("*"):
        if path.is_file():
            target = f"{url}/{path.relative_to(copy)}"
            tf.io.gfile.makedirs(target.rpartition("/")[0])
            tf.io.gfile.copy(str(path), target, overwrite=True)
    texts = ["the city", ""]
    found, expected = (convbert.load(of).predict(texts) for of in (url, copy))
    np.testing.assert_array_equal(found.probabilities, expected.probabilities)
