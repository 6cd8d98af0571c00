"""The SavedModel as a folder: alone in the world, complete, whole or not there."""

import dataclasses
import json
import os
import pathlib
import re
import subprocess
import sys
import unittest.mock

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from tensorflow.core.framework import (
    resource_handle_pb2,
    tensor_pb2,
    tensor_shape_pb2,
    types_pb2,
)
from tensorflow.core.protobuf import saved_model_pb2

from errors import InputError
from finetune.choice import choose_run
from finetune.encoded import Encoded
from finetune.load import load_fine_tuned
from finetune.trial import WEIGHTS_NAME
from serving import export as exporting
from serving.export import export, size_on_disk
from serving.load import load
from signatures.tensors import Tensor, tensors_of
from tests import command_support
from tests.serving.support import WORDS, fine_tuned, pretrained, save, task

pytestmark = pytest.mark.bfloat16  # most read the exports of both precisions
ROOT = pathlib.Path(__file__).parent.parent.parent
DOCUMENTATION = (ROOT / "docs/serving.md").read_text(encoding="utf-8")
TEXTS = ["the city was born in 1995", "", "who? " * 40, "Café in 北京"]
# Prints what a SavedModel answers, with nothing but these imports.
ASK = """
import json, sys
import tensorflow as tf
import tensorflow_text
texts = tf.constant(json.loads(sys.argv[2]))
answers = tf.saved_model.load(sys.argv[1]).signatures["serving_default"](text=texts)
ours = {"model", "serving", "finetune", "data", "errors", "official"} & set(sys.modules)
answers = {name: value.numpy().tolist() for name, value in answers.items()}
answers["label"] = [label.decode() for label in answers["label"]]
print(json.dumps([answers, sorted(ours)]))
"""


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Folder with run, float32 and mixed_bfloat16; and what both said of themselves."""
    folder = tmp_path_factory.mktemp("export")
    fine_tuned(folder / "run", task("classification"), linear_groups=2)
    said = {
        precision: export(
            load(str(folder / "run"), precision=precision), str(folder / precision), "run"
        )
        for precision in ("float32", "mixed_bfloat16")
    }
    return folder, said


def ask(folder, texts=TEXTS):
    answers = tf.saved_model.load(str(folder)).signatures["serving_default"](tf.constant(texts))
    return {name: value.numpy() for name, value in answers.items()}


@pytest.mark.slow  # needs a process that imports TensorFlow
def test_it_answers_without_this_repository(exported, tmp_path):
    folder, _ = exported
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", ASK, str(folder / "float32"), json.dumps(TEXTS)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    answers, ours = json.loads(done.stdout)
    assert ours == []
    expected = ask(folder / "float32")
    assert answers["label"] == [label.decode() for label in expected["label"]]
    np.testing.assert_allclose(answers["probabilities"], expected["probabilities"], atol=1e-6)
    assert answers["truncated"] == [False, False, True, False]


def test_the_documented_python_runs(exported):
    folder, _ = exported
    section = DOCUMENTATION.split("## From Python")[1].split("\n## ")[0]
    code = "\n".join(line[4:] for line in section.splitlines() if line.startswith("    "))
    names = {}
    exec(code.replace('"my_model"', repr(str(folder / "float32"))), names)
    assert names["answers"]["label"].numpy()[0].decode() in ("bad", "fair", "good")


@pytest.mark.parametrize("program", ["export_savedmodel.py", "serving/predict.py"])
def test_every_flag_is_documented(program):
    source = (ROOT / program).read_text(encoding="utf-8")
    defined = set(re.findall(r"DEFINE_\w+\(\s*\"(\w+)\"", source))
    tables = re.findall(r"\n\n\| flag .*?\n\n", DOCUMENTATION, re.S)
    described = [set(re.findall(r"`--(\w+)`", table)) for table in tables]
    assert len(defined) >= 4
    assert defined in described


def test_the_graph_needs_nothing_special(exported):
    folder, _ = exported
    for precision in ("float32", "mixed_bfloat16"):
        saved = saved_model_pb2.SavedModel()
        saved.ParseFromString((folder / precision / "saved_model.pb").read_bytes())
        library = saved.meta_graphs[0].graph_def.library.function
        assert len(library) > 3
        for function in library:
            assert not function.attr["_XlaMustCompile"].b, function.signature.name
            operations = {node.op for node in function.node_def}
            assert not {op for op in operations if "PyFunc" in op or "XlaLaunch" in op}


def test_what_travels_with_it(exported):
    folder, said = exported
    description = json.loads((folder / "float32/assets.extra/model.json").read_text())
    assert description == said["float32"]
    assert description["kind"] == "classification"
    assert description["labels"] == ["bad", "fair", "good"]
    assert description["max_seq_length"] == 24
    vocabulary = description["vocabulary"]
    assert (vocabulary["do_lower_case"], vocabulary["strip_accents"]) == (True, True)
    lines = (folder / "float32" / vocabulary["file"]).read_text(encoding="utf-8").split("\n")
    assert tuple(lines[:-1]) == WORDS.tokens
    assert description["encoder"]["linear_groups"] == 2
    assert description["training"]["hparams"]["learning_rate"] == 3e-4
    assert description["versions"]["tensorflow"] == tf.__version__
    loaded = tf.saved_model.load(str(folder / "float32"))
    assert set(description["signatures"]) == set(loaded.signatures)
    for name, item in description["signatures"].items():
        outputs = loaded.signatures[name].structured_outputs
        assert {key: tensor.dtype for key, tensor in tensors_of(item, "outputs").items()} == {
            key: value.dtype.name for key, value in outputs.items()
        }
        inputs = loaded.signatures[name].structured_input_signature[1]
        assert set(inputs) == set(item["inputs"])
        for side in ("inputs", "outputs"):
            # The descriptions of models exported earlier have the text alone.
            tensors = tensors_of({side: item[side]}, side)
            assert tensors == tensors_of(item, side)
            assert {key: str(tensor) for key, tensor in tensors.items()} == item[side]


@pytest.mark.slow  # needs two exports
def test_bfloat16_is_what_the_network_computes_at_half_the_size(exported):
    folder, _ = exported
    data = "variables/variables.data-00000-of-00001"
    sizes = [(folder / name / data).stat().st_size for name in ("mixed_bfloat16", "float32")]
    assert sizes[0] < 0.6 * sizes[1]
    assert sizes[1] < size_on_disk(str(folder / "float32"))
    tf_keras.mixed_precision.set_global_policy("mixed_bfloat16")
    objective = load_fine_tuned(str(folder / "run")).objective
    served = load(str(folder / "run"), precision="mixed_bfloat16").objective
    ids = tf.constant(np.random.default_rng(0).integers(5, 99, [6, 20]), tf.int32)
    features = {"input_ids": ids, "input_mask": tf.ones_like(ids), "segment_ids": 0 * ids}
    expected, found = objective.predict(features)["logits"], served.predict(features)["logits"]
    np.testing.assert_array_equal(found, expected)  # to the bit
    dtypes = {variable.dtype for variable in served.variables}
    assert dtypes == {tf.float32, tf.bfloat16}
    full, half = (ask(folder / name) for name in ("float32", "mixed_bfloat16"))
    assert half["probabilities"].dtype == np.float32
    np.testing.assert_allclose(half["probabilities"], full["probabilities"], atol=0.03)


def test_loading_a_run_gives_its_network_back(tmp_path):
    own = task("regression", True, label_range=(1.0, 5.0))
    objective, hparams, words = fine_tuned(tmp_path, own)
    loaded = load_fine_tuned(str(tmp_path))
    assert (loaded.task, loaded.hparams, loaded.vocabulary) == (own, hparams, words)
    for ours, theirs in zip(loaded.objective.variables, objective.variables):
        np.testing.assert_array_equal(ours, theirs)
    assert load_fine_tuned(str(tmp_path), max_seq_length=40).hparams.max_seq_length == 40


@pytest.mark.slow  # needs an export
def test_a_score_outside_the_range_is_answered_and_described_so(tmp_path):
    """As predictions/ has it and as it is scored: not clipped."""
    own = task("regression", label_range=(1.0, 5.0))
    objective, *_ = fine_tuned(tmp_path / "run", own, num_hidden_layers=1)
    objective.head.dense.bias.assign_add([9.0])
    save(tmp_path / "run", tf.train.Checkpoint(objective=objective), WEIGHTS_NAME)
    said = export(load(str(tmp_path / "run")), str(tmp_path / "saved"), "run")
    assert "may lie outside" in said["signatures"]["serving_default"]["outputs"]["score"]
    assert np.all(ask(tmp_path / "saved")["score"] > 5.0)
    assert "may lie outside `label_range`" in DOCUMENTATION
    shares = {"score": np.array([9.0], np.float32)}
    encoded = Encoded(np.array([0, 1]), {}, {"example": np.array([0])}, 0)
    assert own.plugin.answers(own, [], encoded, shares, None) == [37.0]


def write_result(folder, score, setting, trial, init="pretrained", **more):
    (folder / "checkpoints").mkdir(parents=True)
    result = {"task": "own", "setting": {"learning_rate": setting}, "trial": trial, "init": init}
    result |= {"main_metric": "accuracy", "scores": {"dev": {"accuracy": score}}, **more}
    (folder / "result.json").write_text(json.dumps(result))


def test_of_a_folder_of_runs_the_highest_score_is_taken(tmp_path):
    """Of all runs: of any setting, from random weights, too."""
    for trial, score in enumerate([70, 72, 71]):
        write_result(tmp_path / f"a/lr1/trial_{trial}", score, 1e-3, trial)
    for trial, score in enumerate([50, 74, 60]):
        write_result(tmp_path / f"a/lr2/trial_{trial}", score, 1e-2, trial)
    (tmp_path / "a/lr2/trial_3").mkdir()
    choice = choose_run(str(tmp_path))
    assert choice.run["folder"] == str(tmp_path / "a/lr2/trial_1")
    write_result(tmp_path / "a/random/trial_0", 74.2, 1e-3, 0, init="random")
    choice = choose_run(str(tmp_path))
    assert choice.run["folder"] == str(tmp_path / "a/random/trial_0")
    assert len(choice.considered) == 7
    assert choice.left_out == {str(tmp_path / "a/lr2/trial_3"): "unfinished"}
    said = choice.lines()
    assert said[0] == f"best run: {tmp_path / 'a/random/trial_0'}, 74.2, from random weights"
    assert "dev accuracy of 7 considered, 1 left out" in said[1]
    assert "  not chosen: a/lr2/trial_1, 74.0" in said
    assert "  left out: a/lr2/trial_3, unfinished" in said
    assert choice.warnings() == []
    record = choice.record()
    assert (record["init"], record["score"], record["metric"]) == ("random", 74.2, "accuracy")
    assert record["chosen_from"]["others"]["a/lr1/trial_1"] == 72
    assert record["chosen_from"]["left_out"] == {"a/lr2/trial_3": "unfinished"}


def test_equal_undefined_and_weightless_runs(tmp_path):
    collapsed = {"collapsed": {"dev": "every prediction is 'a'"}}
    write_result(tmp_path / "a/x/trial_0", None, 1e-3, 0)
    write_result(tmp_path / "a/x/trial_1", 60, 1e-3, 1, **collapsed)
    assert choose_run(str(tmp_path)).run["trial"] == 1
    assert "every prediction is 'a'" in " ".join(choose_run(str(tmp_path)).warnings())
    write_result(tmp_path / "a/x/trial_2", 60, 1e-3, 2, init="random")
    assert choose_run(str(tmp_path)).run["trial"] == 2
    write_result(tmp_path / "a/x/trial_3", 60, 1e-3, 3)
    assert choose_run(str(tmp_path)).run["trial"] == 3
    for trial in (1, 2, 3):
        (tmp_path / f"a/x/trial_{trial}/checkpoints").rmdir()
    choice = choose_run(str(tmp_path))
    assert choice.run["trial"] == 0
    assert json.loads(json.dumps(choice.record()))["score"] is None
    assert "defined" in choice.warnings()[0]
    assert "weights were removed, 60.0" in choice.left_out[str(tmp_path / "a/x/trial_3")]
    (tmp_path / "a/x/trial_0/checkpoints").rmdir()
    with pytest.raises(InputError, match="with its weights"):
        choose_run(str(tmp_path))


@pytest.mark.parametrize(
    "other",
    [
        {"task": "other"},
        {"model": "other"},
        {"main_metric": "f1", "scores": {"dev": {"f1": 50}}},
        {"scores": {"dev_b": {"accuracy": 50}}},
    ],
)
def test_runs_that_do_not_compare_are_named(tmp_path, other):
    write_result(tmp_path / "a/x/trial_0", 99, 1e-3, 0)
    write_result(tmp_path / "a/y/trial_0", 98, 1e-3, 0, **other)
    with pytest.raises(InputError, match=r"one task and one model.* own, -, dev accuracy"):
        choose_run(str(tmp_path))


def test_an_export_names_its_run(tmp_path):
    for trial, (score, init) in enumerate([(71.9, "pretrained"), (74.2, "random")]):
        folder = tmp_path / f"runs/own/x/trial_{trial}"
        fine_tuned(folder, task("classification"), num_hidden_layers=1, seed=trial)
        result = {"task": "own", "setting": {}, "trial": trial, "init": init}
        result |= {"main_metric": "accuracy", "scores": {"dev": {"accuracy": score}}}
        (folder / "result.json").write_text(json.dumps(result))
    description = export(load(str(tmp_path / "runs")), str(tmp_path / "saved"), "runs")
    run = description["run"]
    assert (run["score"], run["trial"], run["init"]) == (74.2, 1, "random")
    assert run["folder"] == str(tmp_path / "runs/own/x/trial_1")
    assert run["chosen_from"]["others"] == {"own/x/trial_0": 71.9}
    assert json.loads((tmp_path / "saved/assets.extra/model.json").read_text())["run"] == run
    own = load(str(tmp_path / "runs/own/x/trial_0")).run
    assert (own["score"], "chosen_from" in own) == (71.9, False)


def spoiled(folder, change):
    """The folder of a run in which something has been changed."""
    fine_tuned(folder, task("classification"), num_hidden_layers=1)
    change(folder)
    return str(folder)


def shorten_vocabulary(folder):
    path = folder / "vocab.txt"
    path.write_text("\n".join(path.read_text(encoding="utf-8").split("\n")[:-9]) + "\n")


def change_casing(folder):
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": false}')


def remove(pattern):
    def change(folder):
        for path in folder.glob(pattern):
            path.unlink()

    return change


def cut_data(folder):
    (path,) = folder.glob("checkpoints/*.data*")
    path.write_bytes(path.read_bytes()[:100])


def widen(folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "intermediate_size": 64}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (shorten_vocabulary, "should have the 230 tokens"),
        (change_casing, "is not what the model was trained with"),
        (remove("checkpoints/*"), "there is no checkpoint"),
        (remove("checkpoints/*.data*"), "data-00000-of-00001 is missing"),
        (cut_data, "data-00000-of-00001 cannot be read"),
        (widen, "does not hold the networks"),
        (remove("hparams.json"), "hparams.json"),
        (lambda folder: (folder / "task.json").write_text("{"), "task.json, line 1"),
    ],
)
def test_model_directories_that_cannot_be_served(tmp_path, change, message):
    with pytest.raises(InputError, match=message):
        load(spoiled(tmp_path, change))


def test_what_else_is_refused(tmp_path):
    run = spoiled(tmp_path / "run", lambda folder: None)
    for arguments, message in (
        ((str(tmp_path / "nothing"), {}), "there is no such folder"),
        ((str(tmp_path / "run" / "checkpoints"), {}), "should hold finished runs"),
        ((run, {"max_seq_length": 65}), "at most 64"),
        ((run, {"max_seq_length": 7}), "at least 8"),
    ):
        with pytest.raises(InputError, match=message):
            load(arguments[0], **arguments[1])
    pretrained(tmp_path / "electra")
    with pytest.raises(InputError, match="at most 64"):
        load(str(tmp_path / "electra"), max_seq_length=65)
    assert load(str(tmp_path / "electra"), max_seq_length=64).max_seq_length == 64
    assert load(str(tmp_path / "electra")).max_seq_length == 24
    (index,) = (tmp_path / "electra").glob("checkpoints/*.index")
    index.write_bytes(index.read_bytes()[:50])
    with pytest.raises(InputError, match="index cannot be read"):
        load(str(tmp_path / "electra"))


def test_weights_that_are_not_finite(tmp_path):
    objective, *_ = fine_tuned(tmp_path, task("classification"), num_hidden_layers=1)
    bias = objective.head.dense.bias
    bias.assign(tf.constant([0.0, np.nan, np.inf]))
    save(tmp_path, tf.train.Checkpoint(objective=objective), "weights")
    with pytest.raises(InputError, match=r"bias.* should have finite values. Received: 2 of 3"):
        load(str(tmp_path))


def test_nothing_is_left_of_an_export_that_fails(tmp_path, monkeypatch):
    model = load(spoiled(tmp_path / "run", lambda folder: None))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("")
    with pytest.raises(InputError, match="should not exist yet"):
        export(model, str(tmp_path / "full"), "run")
    with pytest.raises(InputError, match="should not exist yet"):
        export(model, str(tmp_path / "full" / "file"), "run")

    before = sorted(os.listdir(tmp_path))
    no_space = tf.errors.ResourceExhaustedError(None, None, "No space left on device")
    for owner, name, error in (
        (exporting, "_check", OSError(28, "No space left on device")),
        (tf.saved_model, "save", no_space),
        (exporting, "_check", KeyboardInterrupt()),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, unittest.mock.Mock(side_effect=error))
            with pytest.raises((InputError, KeyboardInterrupt)) as raised:
                export(model, str(tmp_path / "saved"), "run")
        assert ("No space left on device" in str(raised.value)) == isinstance(error, Exception)
        assert sorted(os.listdir(tmp_path)) == before
    (tmp_path / "empty").mkdir()
    export(model, str(tmp_path / "empty"), "run")
    assert (tmp_path / "empty" / "saved_model.pb").exists()


def test_bfloat16_warns_where_the_cpu_has_none(tmp_path, monkeypatch, capsys):
    run = spoiled(tmp_path / "run", lambda folder: None)
    for precision, flags, warned in (
        ("mixed_bfloat16", "fpu avx2 avx512f", True),
        ("mixed_bfloat16", "fpu avx2 avx512_bf16", False),
        ("mixed_bfloat16", "fpu amx_bf16 amx_tile", False),
        ("float32", "fpu avx2", False),
    ):
        info = tmp_path / "cpuinfo"
        info.write_text(f"processor\t: 0\nflags\t\t: {flags}\nbugs\t\t: none\n")
        monkeypatch.setattr(exporting, "_CPU_INFO", str(info))
        with monkeypatch.context() as patch:
            patch.setattr(exporting, "_save", unittest.mock.Mock(side_effect=KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                export(load(run, precision=precision), str(tmp_path / "saved"), "run")
        errors = capsys.readouterr().err
        assert errors.startswith("warning: this CPU has no bfloat16") == warned
        assert errors.count("\n") == warned


def message_classes():
    """The messages of tensorflow_serving/apis that warm-up needs, as those files define them."""
    file = descriptor_pb2.FileDescriptorProto(name="warmup.proto", package="w", syntax="proto3")
    file.dependency.append("tensorflow/core/framework/tensor.proto")

    def message(name, *fields, parent=file.message_type):
        found = parent.add(name=name)
        for field, number, kind, repeated in fields:
            label = 3 if repeated else 1
            settings = {"type": 9} if kind == "string" else {"type": 11, "type_name": kind}
            found.field.add(name=field, number=number, label=label, **settings)
        return found

    message("PredictionLog", ("predict_log", 6, ".w.PredictLog", False))
    message("PredictLog", ("request", 1, ".w.PredictRequest", False))
    message("ModelSpec", ("name", 1, "string", False), ("signature_name", 3, "string", False))
    inputs = ("inputs", 2, ".w.PredictRequest.InputsEntry", True)
    request = message("PredictRequest", ("model_spec", 1, ".w.ModelSpec", False), inputs)
    item = (("key", 1, "string", False), ("value", 2, ".tensorflow.TensorProto", False))
    entry = message("InputsEntry", *item, parent=request.nested_type)
    entry.options.map_entry = True
    pool = descriptor_pool.DescriptorPool()
    for dependency in (types_pb2, tensor_shape_pb2, resource_handle_pb2, tensor_pb2):
        pool.AddSerializedFile(dependency.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("w.PredictionLog"))


@pytest.mark.parametrize("kind", ["classification", "tagging", "pretraining"])
def test_warm_up_requests(saved, kind):
    """Every signature is asked once, and answers."""
    path = pathlib.Path(saved[kind], "assets.extra", "tf_serving_warmup_requests")
    signatures = tf.saved_model.load(saved[kind]).signatures
    asked = []
    for record in tf.data.TFRecordDataset(str(path)):
        request = message_classes().FromString(record.numpy()).predict_log.request
        asked.append(request.model_spec.signature_name)
        inputs = {name: tf.make_ndarray(value) for name, value in request.inputs.items()}
        answers = signatures[asked[-1]](**{name: tf.constant(v) for name, v in inputs.items()})
        assert {len(value) for value in answers.values()} == {1}
        if asked[-1] == "masked_tokens":
            assert answers["num_masks"].numpy().tolist() == [1]
    assert sorted(asked) == sorted(signatures)


def test_an_answer_that_changed_in_saving_is_noticed(tmp_path):
    model = load(spoiled(tmp_path / "run", lambda folder: None))
    export(model, str(tmp_path / "saved"), "run")
    sample = {"text": tf.constant(["the city"])}
    answers = tf.saved_model.load(str(tmp_path / "saved")).signatures["serving_default"](**sample)
    exporting._check(str(tmp_path / "saved"), sample, answers)
    for name, value in (("scores", answers["scores"] + 1e-3), ("label", tf.constant(["?"]))):
        with pytest.raises(RuntimeError, match=f"`{name}`"):
            exporting._check(str(tmp_path / "saved"), sample, {**answers, name: value})


def test_the_command(tmp_path):
    """Says what can be asked, and the question it prints can be asked."""
    fine_tuned(tmp_path / "run", task("classification", True), num_hidden_layers=1)
    command = ["export_savedmodel.py", f"--model_dir={tmp_path / 'run'}"]
    command += [f"--output_dir={tmp_path / 'saved model'}", "--max_seq_length=30"]
    done = command_support.run(*command)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "MB, float32, classification" in lines[0]
    assert "    text, text_pair -> label, scores, probabilities, truncated" in lines
    description = json.loads((tmp_path / "saved model/assets.extra/model.json").read_text())
    assert description["max_seq_length"] == 30
    environment = {**os.environ, "PATH": f"{pathlib.Path(sys.executable).parent}:/usr/bin:/bin"}
    settings = {"cwd": ROOT, "env": environment, "capture_output": True, "text": True}
    answer = subprocess.run(lines[-1].strip(), shell=True, **settings)
    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout)["prediction"] in ("bad", "fair", "good")
    again = command_support.run(*command)
    assert again.returncode == 1
    assert again.stderr.strip().endswith("should not exist yet, or be an empty folder")


def test_descriptions_that_lie_are_noticed():
    text = {"text": Tensor("string", ("B",), "")}
    signature = exporting.Signature("", lambda text: {"length": tf.strings.length(text)}, text, {})
    length = Tensor("int32", ("B",), "")
    for wrong in ({"dtype": "int64"}, {"axes": ("B", "S")}, None):
        outputs = {} if wrong is None else {"length": dataclasses.replace(length, **wrong)}
        with pytest.raises(ValueError, match="outputs should be"):
            dataclasses.replace(signature, outputs=outputs).trace()
    dataclasses.replace(signature, outputs={"length": length}).trace()
