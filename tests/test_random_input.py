"""Random input of every kind is read, or rejected by an InputError; nothing else is raised.

    CASES=1000 python -m pytest -m slow tests/test_random_input.py --hypothesis-seed 0

runs that many cases of each kind (the default is 100), and prints the input that fails.
"""

import contextlib
import dataclasses
import json
import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from convbert.common.errors import InputError
from convbert.common.settings import read_json_object
from convbert.data import input_pipeline
from convbert.data.manifest import settings_digest
from convbert.experiments import declaration as experiments
from convbert.finetune import declaration, kinds
from convbert.finetune.hparams import resolve_hparams
from convbert.finetune.readers.conll import read_conll, read_conllu
from convbert.finetune.readers.questions import read_race, read_squad
from convbert.finetune.readers.tables import read_jsonl, read_table
from convbert.finetune.readers.treebank import read_treebank
from convbert.finetune.report import group_results
from convbert.finetune.results import read_results
from convbert.model import load_config
from convbert.pretrain import hparams as pretraining
from convbert.serving import beir
from convbert.serving.description import inputs_of, options_of, read_description
from convbert.training.monitoring import read_metrics
from convbert.training.run_record import read_record
from tests.model_support import TINY

CASES = int(os.environ.get("CASES", "100"))
NUMBERS = st.integers() | st.floats() | st.integers(-3, 600) | st.just(10**400)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=8,
)


def mixed(example, *more):
    """Objects with the names of an example: its values, or any others, and sometimes more names."""
    fields = {name: st.just(value) | VALUES for name, value in example.items()}
    fields |= dict.fromkeys(more, VALUES)
    return st.fixed_dictionaries({}, optional=fields).flatmap(
        lambda found: st.dictionaries(st.text(max_size=6), VALUES, max_size=1).map(
            lambda others: others | found
        )
    )


TASK = {"name": "own", "kind": "classification", "metrics": ["accuracy"], "labels": ["a", "b"]}
TASK |= {"files": {"train": "train.tsv", "dev": "dev.tsv"}}
TASK |= {"columns": {"text_a": "text", "label": "label"}}
EXPERIMENT = json.loads((experiments.FOLDER / "convbert_table3.json").read_text())
HPARAMS = {"objective": "masked_lm", "model_size": "convbert-small", "learning_rate": 1e-4}
SQUAD = {"data": [{"paragraphs": [{"context": "a b", "qas": [
    {"id": "1", "question": "a?", "answers": [{"text": "b", "answer_start": 2}]}]}]}]}  # fmt: skip
RACE = {"article": "a", "questions": ["b"], "options": [["1", "2", "3", "4"]]}
RACE |= {"answers": ["A"], "id": "x"}
MANIFEST = {
    "settings": {"max_seq_length": 32},
    "files": {"pretrain_tfrecords/pretrain_data.tfrecord-0-of-1": {"records": 1, "bytes": 3}},
}
RESULT = {"task": "cola", "model": "m", "init": "random", "setting": {}, "trial": 0}
RESULT |= {"main_metric": "accuracy", "scores": {"dev": {"accuracy": 50.0}}}
TENSOR = {"dtype": "string", "axes": "B", "default": None}
SIGNATURE = {"about": "", "inputs": {"text": TENSOR}, "outputs": {"mean": TENSOR}}
DESCRIPTION = {"kind": "pretraining", "labels": [], "task": None, "sha256": "0"}
DESCRIPTION |= {"signatures": {"serving_default": SIGNATURE}}
TREE = "( (S (NP (NN a)) (VP (VB b))) )\n a/NN [ b/VB ]\n=====\n"
LINES = [
    "a\tb\tc\n", "1\ta\t_\tNN\n", '"a', "text\tlabel\n", "\r", "\x00", "\ufeff", "# x\n", "\n",
    "1-2\ta\tb\tc\td\te\tf\tg\th\ti\n", "[ a/NN ]", "'", ",", '{"a": 1}\n',
    '{"_id": "1", "text": "a"}\n', "-DOCSTART- -X- -X- O\n", "a\\/b/NN", "====\n",
]  # fmt: skip
TEXTS = st.lists(st.sampled_from(LINES) | st.text(max_size=12), max_size=12).map("".join)
BYTES = TEXTS.map(lambda text: text.encode("utf-8", "surrogatepass")) | st.binary(max_size=64)


def data_folder(folder):
    """Reads of a manifest what commands read."""
    files = folder / "pretrain_tfrecords"
    files.mkdir(exist_ok=True)
    (files / "pretrain_data.tfrecord-0-of-1").write_bytes(b"abc")
    settings_digest(str(folder))
    pretraining.with_length_of_data({}, str(folder))
    return input_pipeline.count_records(input_pipeline.record_files(str(folder)))


def described(folder):
    """Reads of a description what a client reads."""
    found = read_description(str(folder))
    inputs = inputs_of(found, "serving_default")
    options_of(found, "serving_default", {})
    return inputs


def damaged(value):
    """An object as JSON in bytes, with a value at any depth replaced, or a part of the text."""
    places = [*_places(value)]

    def replaced(place, new):
        copy = json.loads(json.dumps(value))
        inner = copy
        for key in place[:-1]:
            inner = inner[key]
        inner[place[-1]] = new
        return f"{json.dumps(copy)}\n".encode("utf-8", "surrogatepass")

    def cut(start, count, more):
        text = f"{json.dumps(value)}\n"
        return (text[:start] + more + text[start + count :]).encode("utf-8", "surrogatepass")

    more = st.text(max_size=6) | st.just("[" * 99999)
    return st.builds(replaced, st.sampled_from(places), VALUES) | st.builds(
        cut, st.integers(0, len(json.dumps(value))), st.integers(0, 30), more
    )


def _places(value):
    """Yields the keys that lead to each value in a JSON value."""
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        yield (key,)
        if isinstance(inner, (dict, list)):
            yield from ((key, *place) for place in _places(inner))


def rows(name, read, contents, *arguments):
    """A file's name, a function that reads all its rows in a folder, and contents."""
    return name, lambda f: [*read(str(f / name), *arguments)], contents


ROW = {"step": 1, "split": "train"}
# A file's name, a function that reads it in a folder, and a value that it accepts.
OF_JSON = {
    "squad": rows("q.json", read_squad, SQUAD),
    "race": ("1.txt", lambda f: [*read_race(str(f))], RACE),
    "config": ("config.json", lambda f: load_config(str(f)), TINY.to_json()),
    "manifest": ("manifest.json", data_folder, MANIFEST),
    "description": ("assets.extra/model.json", described, DESCRIPTION),
    "record": ("hparams.json", lambda f: read_record(str(f)), {"hparams": HPARAMS}),
    "metrics": ("metrics.jsonl", lambda f: read_metrics(str(f)), ROW),
    "result": (
        "result.json",
        lambda f: [g.headline for g in group_results(read_results(str(f))[0])],
        RESULT,
    ),
    "task": ("task.json", lambda f: declaration.load_task(str(f / "task.json")), TASK),
    "recipe": ("r.json", lambda f: read_json_object(str(f / "r.json")), HPARAMS),
    "experiment": ("e.json", lambda f: experiments.load(str(f / "e.json"), "hour"), EXPERIMENT),
}
READERS = {
    "table": rows("t.tsv", read_table, BYTES, False, {"a": "text"}),
    "quoted": rows("t.csv", read_table, BYTES, True, {"a": "text"}),
    "numbered": rows("t.tsv", read_table, BYTES, False, {"a": 1}),
    "jsonl": rows("t.jsonl", read_jsonl, BYTES, {"a": "a"}),
    "conll": rows("t.txt", read_conll, BYTES, {"words": 0, "tags": 1}),
    "conllu": rows("t.conllu", read_conllu, BYTES, "upos"),
    "treebank": rows("wsj_0001.pos", read_treebank, BYTES | st.just(TREE.encode())),
    "corpus": ("corpus.jsonl", lambda f: beir.read(str(f)), BYTES),
    **{kind: (file, read, damaged(value)) for kind, (file, read, value) in OF_JSON.items()},
}
FINETUNING = dict.fromkeys(kinds.hparam_names(), 1)
PRETRAINING = pretraining.parse_hparams(HPARAMS).as_json()
MORE = ("mask_prob", "disc_weight", "hidden_size", "conv_type", "temperature")
OBJECTS = {
    "pretraining": (
        lambda values: pretraining.resolve_hparams(values, 30522),
        mixed(PRETRAINING | HPARAMS, *MORE),
    ),
    "fine-tuning": (
        lambda values: resolve_hparams(values, declaration.load_task("cola"), TINY),
        mixed(FINETUNING | {"learning_rate": 1e-4, "num_train_epochs": 3}),
    ),
    "task": (
        lambda values: declaration.parse(values, "task.json"),
        mixed(TASK, "test", "splits", "symmetric", "label_range"),
    ),
    "encoder": (lambda values: TINY.overridden(values), mixed(dataclasses.asdict(TINY))),
}

cases = settings(
    max_examples=CASES, deadline=None, database=None, suppress_health_check=[*HealthCheck]
)
pytestmark = pytest.mark.slow  # needs a minute


@pytest.mark.parametrize("kind", READERS)
def test_files(kind, tmp_path):
    name, read, contents = READERS[kind]
    (tmp_path / name).parent.mkdir(exist_ok=True)

    @cases
    @given(contents)
    def check(content):
        (tmp_path / name).write_bytes(content)
        with contextlib.suppress(InputError):
            read(tmp_path)

    check()


@pytest.mark.parametrize("kind", OBJECTS)
def test_objects(kind):
    read, values = OBJECTS[kind]

    @cases
    @given(values)
    def check(value):
        with contextlib.suppress(InputError):
            read(value)

    check()


def test_examples_are_accepted(tmp_path):
    """Those that `damaged` and `mixed` start from; else their damage would not be looked at."""
    for value in (HPARAMS, PRETRAINING):
        pretraining.resolve_hparams(value, 30522)
    TINY.overridden(dataclasses.asdict(TINY))
    for kind, (name, read, value) in OF_JSON.items():
        file = tmp_path / kind / name
        file.parent.mkdir(parents=True)
        file.write_text(f"{json.dumps(value)}\n")
        assert read(tmp_path / kind), kind
