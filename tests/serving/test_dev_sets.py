"""Real runs of run_finetuning.py: their SavedModels answer whole dev sets as they did.

Two minutes for six runs, two for an environment of its own that is downloaded.
"""

import importlib.metadata
import json
import os
import subprocess
import sys
import venv

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import convbert
from model import build_encoder
from serving.export import export
from serving.load import load
from serving.records import Record
from tests import command_support
from tests.finetune.kinds_support import read_predictions
from tests.model_support import TINY
from tests.serving.conftest import TASKS
from tests.serving.support import WORDS, describe, save, task, write_labelled

pytestmark = pytest.mark.slow  # see above for what it needs

HPARAMS = {"learning_rate": 1e-2, "num_train_epochs": 1, "train_batch_size": 8}
HPARAMS |= {"max_seq_length": 48, "max_query_length": 16, "doc_stride": 8, "qa_na_threshold": -1.0}
# So that it gives several labels.
CHANGES = {"classification": {"num_train_epochs": 12, "learning_rate": 5e-3}}
CHANGES["crf"] = {"head": "crf"}
OWN = {name: TASKS[name]() for name in ("classification", "regression", "multiple_choice")}
OWN |= {"tagging": task("tagging"), "crf": task("tagging"), "span": task("span", version_2=True)}
# Answers a dev set with nothing but TensorFlow: SavedModel and inputs -> outputs.
ANSWER = """
import json, sys
import numpy as np
import tensorflow as tf
import tensorflow_text
answers = {}
for kind, (folder, signature, inputs) in json.load(open(sys.argv[1])).items():
    ask = tf.saved_model.load(folder).signatures[signature]
    outputs = ask(**{name: tf.constant(values) for name, values in inputs.items()})
    for name, value in outputs.items():
        value = value.numpy()
        answers[f"{kind}/{name}"] = value.astype("S") if value.dtype == object else value
assert not {"model", "serving", "finetune", "data", "errors", "official"} & set(sys.modules)
np.savez(sys.argv[2], **answers)
"""


def write_task(kind, folder):
    """A declaration and its files; returns the inputs of its dev set."""
    declaration = {**OWN[kind].to_json(), "name": kind}
    del declaration["folders"]
    folder.mkdir()
    (folder / "task.json").write_text(json.dumps(declaration))
    files = declaration["files"].values()
    return [write_labelled(folder / name, OWN[kind], seed) for seed, name in enumerate(files)][-1]


@pytest.fixture(scope="module")
def answered(tmp_path_factory):
    """Kind -> (SavedModel, inputs of its dev set, what the run predicted for it)."""
    folder = tmp_path_factory.mktemp("dev")
    model = folder / "model"
    config = TINY.replace(vocab_size=WORDS.size, num_hidden_layers=1)
    tf_keras.utils.set_random_seed(0)
    encoder = build_encoder(config)
    describe(model, config, WORDS, {})
    save(model, tf.train.Checkpoint(objective=tf.train.Checkpoint(encoder=encoder)), "model.ckpt")
    inputs = {kind: write_task(kind, folder / kind) for kind in OWN}
    commands = [
        [
            f"--model_dir={model}",
            f"--task={folder / kind / 'task.json'}",
            f"--output_dir={folder / 'runs'}",
            f"--hparams={json.dumps(HPARAMS | CHANGES.get(kind, {}))}",
        ]
        for kind in OWN
    ]
    done = command_support.run(
        "tests/finetuning_driver.py", folder / "outcomes.json", text=json.dumps(commands)
    )
    assert done.returncode == 0, done.stderr
    assert json.loads((folder / "outcomes.json").read_text()) == [None] * len(OWN)
    found = {}
    for kind in OWN:
        saved = str(folder / f"saved_{kind}")
        export(load(str(folder / "runs" / kind)), saved, "run")
        (run,) = (folder / "runs" / kind).glob("*/trial_0")
        predicted = read_predictions(str(run / "predictions" / "dev.jsonl"))
        found[kind] = (saved, inputs[kind], predicted)
    return found


@pytest.mark.parametrize("kind", OWN)
def test_the_client_answers_as_the_run_did(answered, kind):
    saved, inputs, predicted = answered[kind]
    client = convbert.load(saved).client(signature_of(kind))
    records = [Record("", row["id"], values) for row, values in zip(predicted, inputs)]
    found = client.rows(records)
    assert len(found) == len(predicted) == len(inputs) > 20
    for row, expected in zip(found, predicted):
        for name in ("id", "words"):
            assert row.get(name) == expected.get(name)
        if kind == "regression":
            assert row["prediction"] == pytest.approx(expected["prediction"], abs=1e-5)
            continue
        assert row["prediction"] == expected["prediction"]
        for name in ("option", "score", "null_score", "probabilities"):
            if name in expected:
                assert row[name] == pytest.approx(expected[name], abs=1e-5), name
    assert len({json.dumps(row["prediction"]) for row in found}) > 1


def signature_of(kind):
    return "words" if OWN[kind].kind == "tagging" else "serving_default"


def ask_elsewhere(script, questions, folder, packages):
    """What a script answers in a folder without this repository.

    With `packages`, in an environment where nothing but these of this one's versions is installed.
    """
    python = sys.executable
    if packages:
        environment = folder / "environment"
        venv.create(environment, with_pip=True)
        python = str(environment / "bin" / "python")
        pins = [f"{name}=={importlib.metadata.version(name)}" for name in packages]
        subprocess.run([python, "-m", "pip", "install", "--quiet", *pins], check=True)
    (folder / "asked.json").write_text(json.dumps(questions))
    (folder / "empty").mkdir()
    # The last says which Keras this repository has; there, there is one alone.
    hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "TF_USE_LEGACY_KERAS")
    subprocess.run(
        [python, "-c", script, str(folder / "asked.json"), str(folder / "answers.npz")],
        cwd=folder / "empty",
        env={name: value for name, value in os.environ.items() if name not in hidden},
        check=True,
    )
    with np.load(folder / "answers.npz") as found:
        return dict(found)


@pytest.mark.parametrize("fresh", [False, True])
def test_without_this_repository(fresh, answered, tmp_path):
    """Fresh: nothing but TensorFlow and TensorFlow Text is installed, which is 600 MB, minutes."""
    asked, expected = {}, {}
    for kind, (saved, inputs, _) in answered.items():
        columns = {name: [row[name] for row in inputs] for name in inputs[0]}
        if signature_of(kind) == "words":
            longest = max(map(len, columns["words"]))
            columns["words"] = [row + [""] * (longest - len(row)) for row in columns["words"]]
        asked[kind] = (saved, signature_of(kind), columns)
        loaded = tf.saved_model.load(saved)
        tensors = {name: tf.constant(values) for name, values in columns.items()}
        for name, value in loaded.signatures[signature_of(kind)](**tensors).items():
            expected[f"{kind}/{name}"] = value.numpy()
    packages = ("tensorflow", "tensorflow-text") if fresh else ()
    found = ask_elsewhere(ANSWER, asked, tmp_path, packages)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        if value.dtype == np.float32:
            np.testing.assert_allclose(found[name], value, rtol=0, atol=1e-5)
        else:
            np.testing.assert_array_equal(found[name], value.astype(found[name].dtype))
