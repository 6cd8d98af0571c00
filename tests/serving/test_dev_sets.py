"""Real runs of run_finetuning.py: their SavedModels answer whole dev sets as they did.

A minute for four runs, two for an environment of its own that is downloaded.
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
from serving.client import Client
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
KINDS = ("classification", "regression", "tagging", "span")
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


def write_tasks(folder):
    """A declaration and files of each kind; labels depend on the words."""
    draw = np.random.default_rng(0)

    def words(most=14):
        return draw.choice(PLACES, draw.integers(1, most)).tolist()

    rows = {}
    for split, count in (("train", 64), ("dev", 50)):
        texts = [(words(), words()) for _ in range(count)]
        rows["classification", split] = [
            {"text": " ".join(a), "verdict": "yes" if "city" in a else "no"} for a, _ in texts
        ]
        rows["regression", split] = [
            {"a": " ".join(a), "b": " ".join(b), "score": 5 * min(1, len(a) / (len(b) + 9))}
            for a, b in texts
        ]
        rows["tagging", split] = [
            {"tokens": a + b, "tags": ["X" if word.isdigit() else word[0] for word in a + b]}
            for a, b in texts
        ]
    labels = sorted({word[0] for word in PLACES if not word.isdigit()} | {"X"})
    declarations = {
        "classification": {
            "columns": {"text_a": "text", "label": "verdict"},
            "labels": ["no", "yes"],
        },
        "regression": {
            "columns": {"text_a": "a", "text_b": "b", "label": "score"},
            "label_range": [0, 5],
        },
        "tagging": {"columns": {"words": "tokens", "tags": "tags"}, "labels": labels},
        "span": {"format": "squad", "version_2": True},
    }
    for kind, declaration in declarations.items():
        own = folder / kind
        own.mkdir()
        extension = {"classification": "csv", "span": "json"}.get(kind, "jsonl")
        files = {split: f"{split}.{extension}" for split in ("train", "dev")}
        (own / "task.json").write_text(
            json.dumps({"name": kind, "kind": kind, "files": files, **declaration})
        )
        for split, name in files.items():
            if kind == "span":
                small_file(own / name)
            elif extension == "csv":
                with open(own / name, "w", newline="", encoding="utf-8") as file:
                    writer = csv.DictWriter(file, list(rows[kind, split][0]))
                    writer.writeheader()
                    writer.writerows(rows[kind, split])
            else:
                lines = (json.dumps(row) + "\n" for row in rows[kind, split])
                (own / name).write_text("".join(lines))


def inputs_of(kind, folder):
    """The dev set as inputs of a signature: [{input: value}]."""
    if kind == "span":
        paragraphs = json.loads((folder / "dev.json").read_text())["data"][0]["paragraphs"]
        return [
            {"question": item["question"], "context": paragraph["context"]}
            for paragraph in paragraphs
            for item in paragraph["qas"]
        ]
    if kind == "classification":
        with open(folder / "dev.csv", newline="", encoding="utf-8") as file:
            return [{"text": row["text"]} for row in csv.DictReader(file)]
    rows = [json.loads(line) for line in (folder / "dev.jsonl").read_text().splitlines()]
    if kind == "tagging":
        return [{"words": row["tokens"]} for row in rows]
    return [{"text": row["a"], "text_pair": row["b"]} for row in rows]


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
    write_tasks(folder)
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
        found[kind] = (saved, inputs_of(kind, folder / kind), predicted)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_the_client_answers_as_the_run_did(answered, kind):
    saved, inputs, predicted = answered[kind]
    client = Client(saved, "words" if kind == "tagging" else "serving_default")
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
        for name in ("score", "null_score", "probabilities"):
            if name in expected:
                assert row[name] == pytest.approx(expected[name], abs=1e-5), name
    assert len({json.dumps(row["prediction"]) for row in found}) > 1


@pytest.mark.parametrize("fresh", [False, True])
def test_without_this_repository(fresh, answered, tmp_path):
    """Fresh: nothing but TensorFlow and TensorFlow Text is installed, which is 600 MB, minutes."""
    python = sys.executable
    if fresh:
        environment = tmp_path / "environment"
        venv.create(environment, with_pip=True)
        python = str(environment / "bin" / "python")
        wanted = ("tensorflow", "tensorflow-text")
        pins = [f"{name}=={importlib.metadata.version(name)}" for name in wanted]
        subprocess.run([python, "-m", "pip", "install", "--quiet", *pins], check=True)
    (tmp_path / "asked.json").write_text(json.dumps(questions(answered)))
    (tmp_path / "empty").mkdir()
    hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    subprocess.run(
        [python, "-c", ANSWER, str(tmp_path / "asked.json"), str(tmp_path / "answers.json")],
        cwd=tmp_path / "empty",
        env={name: value for name, value in os.environ.items() if name not in hidden},
        check=True,
    )
    found = json.loads((tmp_path / "answers.json").read_text())
    predicted = {kind: rows for kind, (_, _, rows) in answered.items()}

    def assert_close(kind, name, expected):
        np.testing.assert_allclose(found[kind][name], expected, rtol=0, atol=1e-5)

    rows = predicted["classification"]
    assert found["classification"]["label"] == [row["prediction"] for row in rows]
    shares = [list(row["probabilities"].values()) for row in rows]
    assert_close("classification", "probabilities", shares)
    assert_close("regression", "score", [row["prediction"] for row in predicted["regression"]])
    tags = [list(filter(None, row)) for row in found["tagging"]["tags"]]
    assert tags == [row["prediction"] for row in predicted["tagging"]]
    assert found["span"]["answer"] == [row["prediction"] for row in predicted["span"]]
    for name in ("score", "null_score"):
        assert_close("span", name, [row[name] for row in predicted["span"]])


def questions(answered):
    """Kind -> (SavedModel, signature, the whole dev set in columns)."""
    asked = {}
    for kind, (saved, inputs, _) in answered.items():
        columns = {name: [row[name] for row in inputs] for name in inputs[0]}
        if kind == "tagging":
            longest = max(map(len, columns["words"]))
            columns["words"] = [row + [""] * (longest - len(row)) for row in columns["words"]]
        asked[kind] = (saved, "words" if kind == "tagging" else "serving_default", columns)
    return asked
