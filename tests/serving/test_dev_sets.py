"""Real runs of run_finetuning.py: their SavedModels answer whole dev sets as they did.

Two minutes for six runs, two for each environment of its own that is downloaded.
"""

import csv
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

from finetune import predictions
from model import build_encoder
from serving import litert_export
from serving.client import Client
from serving.description import read_description
from serving.export import export
from serving.load import load
from serving.records import Record
from tests import command_support
from tests.finetune.squad_support import small_file
from tests.model_support import TINY
from tests.serving.support import WORDS, describe, save

pytestmark = pytest.mark.slow  # see above for what it needs

HPARAMS = {"learning_rate": 1e-2, "num_train_epochs": 1, "train_batch_size": 8}
HPARAMS |= {"max_seq_length": 48, "max_query_length": 16, "doc_stride": 8, "qa_na_threshold": -1.0}
# So that it says yes and no.
CHANGES = {"classification": {"num_train_epochs": 12, "learning_rate": 5e-3}}
CHANGES["crf"] = {"head": "crf"}
KINDS = ("classification", "regression", "tagging", "crf", "span", "multiple_choice")
PLACES = ("the", "city", "was", "Café", "born", "in", "1995", "who?", "what", "北京")
# Answers a dev set with nothing but TensorFlow: SavedModel and JSON lines of inputs -> outputs.
ANSWER = """
import json, sys
import tensorflow as tf
import tensorflow_text
answers = {}
for kind, (folder, signature, inputs) in json.load(open(sys.argv[1])).items():
    ask = tf.saved_model.load(folder).signatures[signature]
    outputs = ask(**{name: tf.constant(values) for name, values in inputs.items()})
    decode = lambda x: [decode(y) for y in x] if isinstance(x, list) else x.decode()
    answers[kind] = {
        name: decode(value.numpy().tolist()) if value.dtype == tf.string else value.numpy().tolist()
        for name, value in outputs.items()
    }
assert not {"model", "serving", "finetune", "data", "errors", "official"} & set(sys.modules)
json.dump(answers, open(sys.argv[2], "w"))
"""
# The same of LiteRT files with nothing but LiteRT: file and token ids -> outputs of `predict`.
ANSWER_BY_LITERT = """
import json, sys
import numpy as np
from ai_edge_litert.interpreter import Interpreter
answers = {}
for kind, (path, inputs) in json.load(open(sys.argv[1])).items():
    ask = Interpreter(path).get_signature_runner("predict")
    outputs = ask(**{name: np.array(values, np.int32) for name, values in inputs.items()})
    answers[kind] = {name: value.tolist() for name, value in outputs.items()}
assert "tensorflow" not in sys.modules
json.dump(answers, open(sys.argv[2], "w"))
"""

DECLARATIONS = {
    "classification": {
        "columns": {"text_a": "text", "label": "verdict"},
        "labels": ["no", "yes"],
        "format": "csv",
    },
    "regression": {
        "columns": {"text_a": "text", "text_b": "text_pair", "label": "score"},
        "label_range": [0, 5],
    },
    "tagging": {
        "columns": {"words": "words", "tags": "tags"},
        "labels": sorted({word[0] for word in PLACES if not word.isdigit()} | {"X"}),
    },
    "span": {"format": "squad", "version_2": True},
    "multiple_choice": {
        "columns": {name: name for name in ("context", "options", "label")},
        "labels": ["0", "1"],
    },
}
DECLARATIONS["crf"] = {"kind": "tagging", **DECLARATIONS["tagging"]}


def rows_of(kind, path):
    """Writes rows whose labels depend on the words; returns the inputs of each."""
    if kind == "span":
        small_file(path)
        paragraphs = json.loads(path.read_text())["data"][0]["paragraphs"]
        return [
            {"question": item["question"], "context": paragraph["context"]}
            for paragraph in paragraphs
            for item in paragraph["qas"]
        ]
    draw, rows = np.random.default_rng(len(path.name)), []
    for _ in range(60):
        a, b = (draw.choice(PLACES, draw.integers(1, 14)).tolist() for _ in range(2))
        if kind == "classification":
            row = {"text": " ".join(a)}, {"verdict": "yes" if "city" in a else "no"}
        elif kind == "regression":
            score = 5 * min(1, len(a) / (len(b) + 9))
            row = {"text": " ".join(a), "text_pair": " ".join(b)}, {"score": score}
        elif kind == "multiple_choice":
            label = int(draw.integers(2))
            options = [" ".join(b), " ".join(a[:2])][:: -1 if label == 0 else 1]
            row = {"context": " ".join(a), "options": options}, {"label": label}
        else:
            tags = ["X" if word.isdigit() else word[0] for word in a + b]
            row = {"words": a + b}, {"tags": tags}
        rows.append(row)
    with open(path, "w", newline="", encoding="utf-8") as file:
        if path.suffix == ".csv":
            writer = csv.DictWriter(file, ["text", "verdict"])
            writer.writeheader()
            writer.writerows(inputs | gold for inputs, gold in rows)
        else:
            file.writelines(json.dumps(inputs | gold) + "\n" for inputs, gold in rows)
    return [inputs for inputs, _ in rows]


def write_task(kind, folder):
    """A declaration and its files; returns the inputs of its dev set."""
    declaration = DECLARATIONS[kind]
    extension = {"csv": "csv", "squad": "json"}.get(declaration.get("format"), "jsonl")
    files = {split: f"{split}.{extension}" for split in ("train", "dev")}
    folder.mkdir()
    declaration = {"name": kind, "kind": kind, "files": files, **declaration}
    (folder / "task.json").write_text(json.dumps(declaration))
    return [rows_of(kind, folder / name) for name in files.values()][-1]


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
    inputs = {kind: write_task(kind, folder / kind) for kind in KINDS}
    commands = [
        [
            f"--model_dir={model}",
            f"--task={folder / kind / 'task.json'}",
            f"--output_dir={folder / 'runs'}",
            f"--hparams={json.dumps(HPARAMS | CHANGES.get(kind, {}))}",
        ]
        for kind in KINDS
    ]
    done = command_support.run(
        "tests/finetuning_driver.py", folder / "outcomes.json", text=json.dumps(commands)
    )
    assert done.returncode == 0, done.stderr
    assert json.loads((folder / "outcomes.json").read_text()) == [None] * len(KINDS)
    found = {}
    for kind in KINDS:
        saved = str(folder / f"saved_{kind}")
        export(load(str(folder / "runs" / kind)), saved, "run")
        (run,) = (folder / "runs" / kind).glob("*/trial_0")
        predicted = predictions.read(str(run / "predictions" / "dev.jsonl"))
        found[kind] = (saved, inputs[kind], predicted)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_the_client_answers_as_the_run_did(answered, kind):
    saved, inputs, predicted = answered[kind]
    client = Client.of(saved, signature_of(kind))
    records = [Record("", row["id"], values) for row, values in zip(predicted, inputs)]
    found = list(client.answers(records, 16))
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
    return "words" if "words" in DECLARATIONS[kind].get("columns", ()) else "serving_default"


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
        [python, "-c", script, str(folder / "asked.json"), str(folder / "answers.json")],
        cwd=folder / "empty",
        env={name: value for name, value in os.environ.items() if name not in hidden},
        check=True,
    )
    return json.loads((folder / "answers.json").read_text())


@pytest.mark.parametrize("fresh", [False, True])
def test_without_this_repository(fresh, answered, tmp_path):
    """Fresh: nothing but TensorFlow and TensorFlow Text is installed, which is 600 MB, minutes."""
    packages = ("tensorflow", "tensorflow-text") if fresh else ()
    found = ask_elsewhere(ANSWER, questions(answered), tmp_path, packages)
    predicted = {kind: rows for kind, (_, _, rows) in answered.items()}

    def assert_close(kind, name, expected):
        np.testing.assert_allclose(found[kind][name], expected, rtol=0, atol=1e-5)

    rows = predicted["classification"]
    assert found["classification"]["label"] == [row["prediction"] for row in rows]
    shares = [list(row["probabilities"].values()) for row in rows]
    assert_close("classification", "probabilities", shares)
    assert_close("regression", "score", [row["prediction"] for row in predicted["regression"]])
    for kind in ("tagging", "crf"):
        tags = [list(filter(None, row)) for row in found[kind]["tags"]]
        assert tags == [row["prediction"] for row in predicted[kind]]
    assert max(found["crf"]["score"]) < 0  # log-probabilities of the paths
    options = [row["option"] for row in predicted["multiple_choice"]]
    assert found["multiple_choice"]["option"] == options
    assert found["span"]["answer"] == [row["prediction"] for row in predicted["span"]]
    for name in ("score", "null_score"):
        assert_close("span", name, [row[name] for row in predicted["span"]])


def questions(answered):
    """Kind -> (SavedModel, signature, the whole dev set in columns)."""
    asked = {}
    for kind, (saved, inputs, _) in answered.items():
        columns = {name: [row[name] for row in inputs] for name in inputs[0]}
        if signature_of(kind) == "words":
            longest = max(map(len, columns["words"]))
            columns["words"] = [row + [""] * (longest - len(row)) for row in columns["words"]]
        asked[kind] = (saved, signature_of(kind), columns)
    return asked


@pytest.mark.parametrize("fresh", [False, True])
def test_litert_without_tensorflow(fresh, answered, tmp_path):
    """Fresh: nothing but LiteRT is installed, which is 50 MB."""
    asked, expected = {}, {}
    ids = np.random.default_rng(0).integers(5, WORDS.size, [3, 19], np.int32)
    mask = (np.arange(19) < [[19], [7], [2]]).astype(np.int32)
    features = {"input_ids": ids * mask, "input_mask": mask, "segment_ids": 0 * ids}
    for kind, (saved, _, _) in answered.items():
        model = load(read_description(saved)["run"]["folder"])
        litert_export.export(model, str(tmp_path / kind), "run")
        inputs = {name: value.tolist() for name, value in features.items()}
        asked[kind] = (str(tmp_path / kind / "model.tflite"), inputs)
        expected[kind] = model.objective.predict(features)
    packages = ("ai-edge-litert",) if fresh else ()
    found = ask_elsewhere(ANSWER_BY_LITERT, asked, tmp_path, packages)
    for kind, outputs in expected.items():
        assert outputs.keys() == found[kind].keys()
        for name, value in outputs.items():
            np.testing.assert_allclose(found[kind][name], value, rtol=1e-6, atol=1e-4)
