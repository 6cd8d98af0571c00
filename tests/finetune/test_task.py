"""Declarations of tasks, among them those of docs/tasks.md, and the data that they load."""

import json
import pathlib
import re
import textwrap

import pytest

from convbert.common.errors import InputError
from convbert.data.vocabulary import SPECIAL_TOKENS, Vocabulary
from convbert.finetune.declaration import ALIASES, GLUE_TASKS, TASKS, load_task, parse
from convbert.finetune.hparams import resolve_hparams
from convbert.finetune.kinds.texts import TextExample
from convbert.finetune.task_data import load_task_data
from convbert.finetune.task_files import find_source, read_split, source_of
from tests.finetune.kinds_support import declared, rejects
from tests.model_support import TINY

CSV = ["stars,review,title", '5,"good, really","A ""find"""', '1,"bad', 'and long",no']


@pytest.fixture
def reviews(tmp_path):
    lines = dict.fromkeys(("train", "dev", "test"), CSV)
    fields = {"labels": [1, 5], "metrics": ["accuracy", "f1"], "name": "reviews"}
    path = declared(tmp_path, lines, {"text_a": "review", "label": "stars"}, **fields)
    return tmp_path, json.loads(pathlib.Path(path).read_text())


def load(folder, declaration):
    path = folder / "reviews.json"
    path.write_text(json.dumps(declaration), encoding="utf-8")
    return load_task(str(path))


def again(task):
    return parse(json.loads(json.dumps(task.to_json())), "task")


def test_built_in_tasks_by_either_spelling():
    assert tuple(TASKS)[:8] == GLUE_TASKS
    for spelling, name in {"CoLA": "cola", "SST-2": "sst", "sts-b": "sts", "MNLI": "mnli"}.items():
        assert load_task(spelling) is TASKS[name]
    assert set(ALIASES.values()) <= set(TASKS)
    assert {name: again(task) for name, task in TASKS.items()} == TASKS


def test_own_task(reviews):
    folder, declaration = reviews
    task = load(folder, declaration)
    assert (task.dev, task.test, task.labels) == (("dev",), ("test",), ("1", "5"))
    rows = [("0", "good, really", None, 1), ("1", "bad\nand long", None, 0)]
    expected = [TextExample(*row) for row in rows]
    assert read_split(task, "", "train") == expected  # beside the declaration
    assert again(task) == task
    assert read_split(again(task), "", "dev") == expected
    # A split may have any name: CoNLL's testa and testb are often both development splits.
    files = {"testb": "train.csv", "val": "dev.csv", "dev": "dev.csv", "test": "test.csv"}
    said = {"files": files, "train": "testb", "test": ["dev", "test"]}
    task = load(folder, declaration | said)
    assert (task.train, task.dev, task.test) == ("testb", ("val",), ("dev", "test"))


def test_where_files_are_looked_for(reviews, tmp_path):
    """In the data folder or beside the declaration; of built-in tasks in their folders."""
    folder, declaration = reviews
    task, other = load(folder, declaration), folder / "other"
    other.mkdir()
    assert source_of(task, str(other), "train").path == str(folder / "train.csv")
    apart = load(
        folder, declaration | {"files": {"train": str(folder / "train.csv"), "dev": "dev.csv"}}
    )
    assert source_of(apart, str(other), "dev").path == str(folder / "dev.csv")
    (other / "dev.csv").write_text("review,stars\nfine,5\n", encoding="utf-8")
    assert [e.text_a for e in read_split(task, str(other), "dev")] == ["fine"]
    assert not find_source(task, str(other), "test")  # which is beside the declaration
    task = load_task("mnli")
    for place in ("MNLI/dev_matched.tsv", "AX/diagnostic.tsv"):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).touch()
        for base in (tmp_path, tmp_path / "MNLI") if "dev" in place else (tmp_path,):
            split = "dev_matched" if "dev" in place else "diagnostic"
            assert source_of(task, str(base), split).path == str(tmp_path / place)


# Field that the error names, changes of a declaration.
CHOICE = {"kind": "multiple_choice", "format": "jsonl", "labels": [0, 1], "metrics": ["accuracy"]}
CHOSEN = ("context", "options", "label")
TAGS = {"kind": "tagging", "format": "conllu", "metrics": ["token_accuracy"]}
MISTAKES = [
    ("colums", {"colums": {}}),
    ("kind", {"kind": "clasification"}),
    ("files", {"files": {"train": "a.csv"}}),
    ("files", {"format": "csv", "files": {"train": "a", "dev": "b", "x": "c"}}),
    ("format", {"files": {"train": [], "dev": "b.csv"}}),
    ("columns", {"columns": {"text_a": "review"}}),
    ("columns", {"columns": {"text_a": "review", "label": "review"}}),
    ("columns", TAGS | {"columns": {"tags": "feats"}}),
    ("columns", CHOICE | {"columns": {"context": "a", "label": "label"}}),
    ("labels", {"kind": "regression", "metrics": ["pearson"]}),
    ("labels", {**CHOICE, "columns": dict(zip(CHOSEN, CHOSEN)), "labels": [0, "A"]}),
    ("metrics", {"metrics": ["acuracy"]}),
    ("metrics", {"labels": [1, 2, 3]}),  # f1 is of two
    ("metrics", TAGS | {"columns": {"tags": "upos"}, "metrics": ["f1"], "labels": ["X", "Y"]}),
    ("symmetric", {"symmetric": True}),
    ("label_range", {"label_range": [5, 0]}),
    ("colums", {"per_split": {"dev": {"colums": {}}}}),
    ("name", {"name": "a/b"}),
    ("name", {"name": "cola"}),  # a built-in one
    ("version_2", {"version_2": True}),  # fields that the kind or the format does not read
    ("label_range", {"label_range": [0, 5]}),
    ("lenient", TAGS | {"columns": {"tags": "upos"}, "lenient": True}),
    ("header", TAGS | {"columns": {"tags": "upos"}, "header": False}),
    ("columns", {"per_split": {"dev": {"columns": {"text_a": "a", "text_b": "b", "label": "c"}}}}),
]


@pytest.mark.parametrize(("field", "changes"), MISTAKES)
def test_mistakes_in_a_declaration(reviews, field, changes):
    folder, declaration = reviews
    with rejects(f"{folder}/reviews.json", f"`{field}"):
        load(folder, declaration | changes)


def test_files_and_tasks_that_are_not_there(reviews):
    folder, declaration = reviews
    for data_dir in ("", str(folder)):
        with rejects(data_dir or "--data_dir"):
            read_split(load_task("cola"), data_dir, "train")
    for place in ("nowhere", "train.csv"):  # not passed over in favour of the declaration's folder
        with pytest.raises(InputError):
            read_split(load(folder, declaration), str(folder / place), "train")
    for language in ("en", "de"):
        (folder / f"{language}-ud-train.conllu").touch()
    with pytest.raises(InputError):
        source_of(load_task("pos"), str(folder), "train")


DOCUMENT = pathlib.Path(__file__).parents[2] / "docs" / "tasks.md"
TEXT = DOCUMENT.read_text(encoding="utf-8")
FILE = re.compile(r"^`(\w+/[\w.]+)`:\n\n((?:    .*\n|\n)+)", re.MULTILINE)
LENGTHS = {"max_seq_length": 48, "max_query_length": 12, "doc_stride": 16}
# And their words, questions, or places of options in the training split.
DECLARED = {"topics": 4, "ner": 7 + 5 + 7, "facts": 4, "choices": 4 * 3}


@pytest.mark.parametrize("name", DECLARED)
def test_the_declarations_are_read(tmp_path, name):
    for path, content in FILE.findall(TEXT):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(textwrap.dedent(content), encoding="utf-8")
    task = load_task(str(tmp_path / name / f"{name}.json"))
    assert task.name == name
    config = TINY.replace(vocab_size=1000)
    names = ("max_seq_length", *task.plugin.shaping)
    lengths = {name: LENGTHS[name] for name in names if name in LENGTHS}
    hparams = resolve_hparams(lengths, task, config)
    words = {word.lower() for word in re.findall(r"\w+|[^\w\s]", TEXT)}
    vocabulary = Vocabulary((*SPECIAL_TOKENS, *sorted(words)))
    data = load_task_data(task, "", vocabulary, hparams)
    assert vocabulary.unk_id not in data.train.tokens["input_ids"]  # all words are the document's
    if name == "ner":
        assert data.task.labels == ("B-LOC", "B-PER", "I-PER", "O")
        assert data.train.tokens["tag_weight"].sum() == DECLARED[name]
    else:
        assert len(data.train.sequences["example"]) == DECLARED[name]
    assert (list(data.splits), len(data.splits["dev"].examples)) == (["dev"], 2)


TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "One", "one", "two", "three", "##s")


def data_of(task, **values):
    hparams = resolve_hparams({"max_seq_length": 16, **values}, task, TINY)
    return load_task_data(task, "", Vocabulary(TOKENS), hparams)


def test_both_orders_are_trained_and_only_one_is_measured(tmp_path, capsys):
    lines = {"train": ["label,a,b", "yes,One two,three", "no,two twos three one,One"]}
    lines["dev"] = ["label,a,b", "no,one,three three", "yes,one two three one,two one"]
    columns = {"text_a": "a", "text_b": "b", "label": "label"}
    pairs = load_task(declared(tmp_path, lines, columns, symmetric=True))
    both, one = data_of(pairs), data_of(pairs, double_unordered=False)
    rows = [data.train.tokens["input_ids"].tolist() for data in (both, one)]
    count = len(rows[1])
    assert rows[0][:count] == rows[1] != rows[0][count:]
    assert sorted(rows[0][count:]) == sorted(rows[1])
    dev = [data.splits["dev"].encoded.tokens["input_ids"].tolist() for data in (both, one)]
    assert dev[0] == dev[1]
    labels = [data.train.sequences["label"].tolist() for data in (both, one)]
    assert labels[0] == labels[1] * 2
    # What is cut is counted.
    data = data_of(pairs, max_seq_length=8)
    assert data.splits["dev"].encoded.truncated == 1
    assert "1 of 2 examples" in capsys.readouterr().err


ROWS = ["pos,one"] * 3 + ["neg,two"] * 2


@pytest.mark.parametrize(
    ("rows", "dev", "labels", "named"),
    [
        ([*ROWS, "pos ,one"], ROWS, [], ("train.csv", "'pos '")),
        (ROWS, ["pos,one", "new,two"], [], ("dev.csv, line 3", "'new'")),
        (ROWS[:3], ROWS, [], ("train.csv", "'pos'")),
        (ROWS[:3], ROWS, ["pos", "neg"], ("train.csv", "'pos'")),
        ([*ROWS, ",one"], ROWS, [], ("train.csv, line 7",)),
        ([], ROWS, [], ("train.csv",)),
    ],
)
def test_labels_that_are_rejected(tmp_path, rows, dev, labels, named):
    lines = {"train": ["label,text", *rows], "dev": ["label,text", *dev]}
    path = declared(tmp_path, lines, {"text_a": "text", "label": "label"}, labels=labels)
    with rejects(*named):
        data_of(load_task(path))
